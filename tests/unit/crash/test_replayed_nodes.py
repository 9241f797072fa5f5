"""Where the nodes of a cluster lie in a state that is mounted again, and what became of them."""

from __future__ import annotations

from pgstrata.crash.replay import ReplayedNode, replayed_nodes
from pgstrata.spec.crash import cluster_power_campaign, crash_campaign, named_stacks
from pgstrata.stack.plan import PlanContext, StackPlan, plan_stack

CONTEXT = PlanContext(trial_id="t", scratch="/s", loop_size_bytes=1 << 30, mount_root="/m")


def planned(text: str) -> StackPlan:
    return plan_stack(cluster_power_campaign(named_stacks([text])).stacks[0], CONTEXT)


def test_each_node_has_its_disks_and_its_fate() -> None:
    primary, first, second = replayed_nodes(planned("cluster(3,ANY 1)/ext4@wal=xfs"), ("primary",), "standby2")
    data, wal = primary.mount_points
    assert (data, wal) == ("/m/pgstrata-t/data", "/m/pgstrata-t/wal")
    assert primary == ReplayedNode("primary", "did not come back", (data, wal), f"{data}/pgdata", went_on=False)
    assert (first.fate, first.went_on, second.went_on) == ("came back", False, True)
    assert second.mount_points == ("/m/pgstrata-t/standby2.data", "/m/pgstrata-t/standby2.wal")


def test_of_memory_nothing_is_left_and_the_archive_stands_at_the_end() -> None:
    primary, standby, archive = replayed_nodes(planned("cluster(2)/tmpfs@archive=ext4"), (), "archive")
    assert [(n.fate, n.mount_points, n.data_directory) for n in (primary, standby)] == [
        ("nothing is left", (), None)
    ] * 2
    points = ("/m/pgstrata-t/archive",)
    assert archive == ReplayedNode("archive", "came back", points, f"{points[0]}/base", went_on=True)
    *_, in_memory = replayed_nodes(planned("cluster(2)/ext4@archive=tmpfs"), (), "primary")
    assert (in_memory.fate, in_memory.data_directory) == ("nothing is left", None)


def test_a_node_whose_wal_was_in_memory_has_a_disk_that_nobody_uses() -> None:
    primary, _ = replayed_nodes(planned("cluster(2)/ext4@wal=tmpfs"), (), "")
    assert (primary.fate, primary.mount_points) == ("nothing is left", ("/m/pgstrata-t/data",))


def test_a_server_that_is_alone_has_no_nodes() -> None:
    alone = plan_stack(crash_campaign(named_stacks(["ext4"])).stacks[0], CONTEXT)
    assert replayed_nodes(alone, (), "") == ()
