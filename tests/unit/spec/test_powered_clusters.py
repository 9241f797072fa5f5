"""Clusters all of whose nodes lose power: what is put on recorded disks, who comes back, what is refused."""

from __future__ import annotations

import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.crash import cluster_power_campaign, named_stacks, nodes_in_memory, nodes_left, power_problem
from pgstrata.spec.stack import Stack


def powered(text: str) -> Stack:
    (stack,) = cluster_power_campaign(named_stacks([text])).stacks
    return stack


def test_all_that_lies_on_disks_is_recorded_and_memory_stays_what_it_is() -> None:
    stack = powered("cluster(3,ANY 1)/tmpfs@standby1=media(hdd-7200)/ext4@archive=xfs")
    assert {role: volume.recorded for role, volume in stack.volumes.items()} == {
        "data": False, "standby1.data": True, "standby2.data": False, "archive": True,
    }  # fmt: skip
    assert stack.topology is not None
    standby = stack.topology.standbys[0].data
    assert standby is not None
    assert standby.device.render() == "media(hdd-7200,size=512m,recorded=true)"
    everything = powered("cluster(3,ANY 1)/ext4@wal=xfs")
    assert all(volume.recorded for volume in everything.volumes.values())
    assert len(everything.volumes) == 6


@pytest.mark.parametrize(
    ("text", "in_memory", "left"),
    [
        ("cluster(3)/ext4", (), ("primary", "standby1", "standby2")),
        ("cluster(2)/tmpfs", ("primary", "standby1"), ()),
        ("cluster(2)/ext4@wal=tmpfs", ("primary", "standby1"), ()),
        ("cluster(2)/tmpfs@standby=ext4", ("primary",), ("standby1",)),
    ],
)
def test_a_node_comes_back_where_all_that_it_had_lay_on_disks(
    text: str, in_memory: tuple[str, ...], left: tuple[str, ...]
) -> None:
    stack = powered(text)
    assert (nodes_in_memory(stack), nodes_left(stack, ())) == (in_memory, left)


def test_who_is_gone_does_not_come_back() -> None:
    assert nodes_left(powered("cluster(3)/ext4"), ("primary", "standby2")) == ("standby1",)


@pytest.mark.parametrize(
    ("text", "gone", "problem"),
    [
        ("cluster(2)/ext4", (), ""),
        ("cluster(2)/tmpfs@archive=ext4", (), ""),
        ("cluster(2)/tmpfs", (), "nothing is left"),
        ("cluster(2)/tmpfs@archive=tmpfs", (), "nothing is left"),
        ("cluster(2)/ext4", ("primary", "standby1"), "nothing is left"),
        ("cluster(2)/ext4", ("standby2",), "it has no node 'standby2' (there are: primary, standby1)"),
    ],
)
def test_what_leaves_nothing_is_refused(text: str, gone: tuple[str, ...], problem: str) -> None:
    found = power_problem(powered(text), gone)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_a_volume_that_nobody_can_record_is_refused() -> None:
    with pytest.raises(UsageError, match=r"power cannot be cut below .*: archive: crash trials do not take dir"):
        powered("cluster(2)/ext4@archive=dir:/srv/archive")
