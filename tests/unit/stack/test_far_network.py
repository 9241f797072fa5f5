"""The network of nodes on several hosts, and the plan of a stack that has some: what is done where."""

from __future__ import annotations

from dataclasses import replace

from pgstrata.spec.notation.stack import parse_stack
from pgstrata.stack.network import RoundTripCheck
from pgstrata.stack.plan import PlanContext, plan_empty_caches, plan_stack
from pgstrata.stack.preflight import required_for

TEXT = "cluster(3,bandwidth_mbit=100)/ext4@standby2.host=ssh://db2@standby2=tmpfs@vm.swappiness=1"
THERE = PlanContext("t1-there", "/far", 2**30, owner="pg", mount_root="/mnt", address="10.0.0.2")
HERE = PlanContext(
    "t1-here", "/here", 2**30, owner="postgres", mount_root="/run", address="10.0.0.1", elsewhere={"ssh://db2": THERE}
)
PLAN = plan_stack(parse_stack(TEXT), HERE)


def test_what_a_node_has_is_made_where_it_is() -> None:
    far = [step for step in PLAN.steps if step.host]
    assert {step.host for step in far} == {"ssh://db2"}
    assert all(step.name.endswith(" on ssh://db2") for step in far)
    for step in PLAN.steps:
        assert {command.host for command in step.commands} <= {step.host}
        shown = " ".join(step.shown_commands)
        assert ("/far" in shown or "/mnt/" in shown) <= bool(step.host), shown
        assert ("/here" in shown or "/run/" in shown) <= (not step.host), shown
        assert {undo.path.split("/")[1] for undo in step.undo if hasattr(undo, "path")} <= (
            {"far", "mnt"} if step.host else {"here", "run"}
        )
    assert [(s.host, s.settings[0].value) for s in PLAN.steps if s.settings] == [("", "1"), ("ssh://db2", "1")]
    assert PLAN.standbys[1].host == "ssh://db2"
    assert [(v.role, v.host) for v in PLAN.volumes][-1] == ("standby2.data", "ssh://db2")
    assert plan_empty_caches(PLAN, "ssh://db2") == ()


def test_each_host_is_checked_by_itself_and_all_nodes_answer() -> None:
    assert PLAN.far_checks.keys() == {"ssh://db2"}
    links = [check.link.node for check in PLAN.far_checks["ssh://db2"] if hasattr(check, "link")]
    assert links == ["standby2"]
    (trips,) = [check for check in PLAN.checks if isinstance(check, RoundTripCheck)]
    assert [link.node for link in trips.links] == ["driver", "primary", "standby1", "standby2"]
    assert [row.holds for row in trips.rows("standby2", None)] == [False, True]


def test_a_tunnel_knows_who_is_behind_which_host_and_learns_nothing() -> None:
    assert PLAN.network is not None
    here, there = [step for step in PLAN.network.steps if step.name.startswith("tunnel")]
    add, *table, join = [command.argv for command in here.commands]
    assert tuple(add[add.index("local") : add.index("local") + 2]) == ("local", "10.0.0.1")
    assert "nolearning" in add
    assert "nsenter" not in add, "its packets go by the network of the host"
    assert "--net=/run/pgstrata-t1-here/net.hub" in join
    known = [(argv[argv.index("append") + 1], argv[-1]) for argv in table]
    assert known == [("00:00:00:00:00:00", "10.0.0.2"), ("02:00:c6:12:00:04", "10.0.0.2")]
    back = [command.argv[-1] for command in there.commands[1:-1]]
    assert back == ["10.0.0.1"] * 4, "pgbench, the primary and standby1 are behind the one host"
    assert here.commands[0].argv[here.commands[0].argv.index("id") + 1] == str(_id(there.commands[0].argv))


def _id(argv: object) -> object:
    words = list(argv)  # type: ignore[call-overload]
    return words[words.index("id") + 1]


def test_other_trials_have_other_tunnels() -> None:
    other = plan_stack(parse_stack(TEXT), replace(HERE, trial_id="t2-here"))
    assert other.network is not None
    assert PLAN.network is not None
    ids = {_id(n.steps[-1].commands[0].argv) for n in (PLAN.network, other.network)}
    assert len(ids) == 2


def test_a_cluster_on_one_host_has_no_tunnel() -> None:
    near = plan_stack(parse_stack("cluster(2)/tmpfs"), HERE)
    assert not [step for step in near.steps if step.host or "tunnel" in step.name]
    assert "net.vxlan" in required_for(parse_stack(TEXT))
    assert "net.vxlan" not in required_for(parse_stack("cluster(2)/tmpfs"))
