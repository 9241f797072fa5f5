"""The network of a cluster: what is planned, and what `ip` and `tc` print of it."""

from __future__ import annotations

import pytest

from pgstrata.host.protocol import Command
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.stack import Network
from pgstrata.stack.network import Link, parse_addresses, parse_queue, plan_network, render_queue
from pgstrata.stack.preflight import required_for
from pgstrata.stack.undo import RemovePath, Unmount

ADDRESSES = """[{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},
{"ifname":"eth0","addr_info":[{"family":"inet","local":"198.18.0.2","prefixlen":24}]}]"""
TBF = """[{"kind":"tbf","handle":"8001:","root":true,"options":{"rate":12500000,"burst":131072,"lat":100000}}]"""
NETEM = """[{"kind":"netem","handle":"8001:","root":true,"refcnt":2,"options":{"limit":1000,
"delay":{"delay":0.001,"jitter":0,"correlation":0},"loss-random":{"loss":0.01,"correlation":0},
"rate":{"rate":12500000,"packetoverhead":0,"cellsize":0,"celloverhead":0},"ecn":false,"gap":0}}]"""


def test_reads_what_the_tools_print() -> None:
    assert parse_addresses(ADDRESSES) == ("127.0.0.1", "198.18.0.2")
    assert parse_queue(TBF) == render_queue(Network(bandwidth_mbit=100))
    assert parse_queue(NETEM) == render_queue(Network(bandwidth_mbit=100, delay_ms=1, loss=0.01))
    assert parse_queue('[{"kind":"noqueue","handle":"0:","root":true,"options":{}}]') == render_queue(Network())
    assert parse_queue("[]") == "none"


def test_every_namespace_is_taken_back_before_its_file_and_named_within_the_trial() -> None:
    network = plan_network(parse_stack("cluster(3)/tmpfs"), "/run/pgstrata-t1")
    assert network is not None
    assert [link.node for link in network.links] == ["driver", "primary", "standby1", "standby2"]
    assert len({link.address for link in network.links}) == 4
    files = {f"/run/pgstrata-t1/net.{name}" for name in ("hub", "driver", "primary", "standby1", "standby2")}
    undone = [undo for step in network.steps for undo in step.undo]
    assert {undo.target for undo in undone if isinstance(undo, Unmount)} == files
    assert {undo.path for undo in undone if isinstance(undo, RemovePath)} == files
    for step in network.steps[: len(files)]:
        assert [type(undo) for undo in reversed(step.undo)] == [Unmount, RemovePath]


def test_little_comes_to_a_node_and_all_again() -> None:
    network = plan_network(parse_stack("cluster(2)/tmpfs"), "/run/t1")
    assert network is not None
    slow, fast = (network.set_slow("standby1", slow=slow) for slow in (True, False))
    assert slow is not None
    assert fast is not None
    inside = "nsenter --net=/run/t1/net.hub tc qdisc"
    assert slow.shown == f"{inside} add dev standby1 root tbf rate 1mbit burst 4096 latency 100ms"
    assert fast.shown == f"{inside} del dev standby1 root"
    relayed = plan_network(parse_stack("cluster(2,delay_ms=1)/tmpfs"), "/run/t1", relayed=True)
    assert relayed is not None
    assert relayed.set_slow("standby1", slow=True) is None


def test_a_server_that_is_alone_has_no_network() -> None:
    assert plan_network(parse_stack("tmpfs"), "/run/pgstrata-t1") is None


def test_a_command_is_entered_by_root_and_becomes_its_user_there() -> None:
    link = Link("primary", "/run/pgstrata-t1/net.primary", "198.18.0.2")
    asked = Command(("pgbench", "-c", "1"), user="pgstrata", env=(("A", "b"),), cwd="/")
    entered = link.enter(asked)
    assert entered.argv == (
        "nsenter", "--net=/run/pgstrata-t1/net.primary", "chroot", "--userspec=pgstrata", "--skip-chdir", "/",
        "pgbench", "-c", "1",
    )  # fmt: skip
    assert (entered.user, entered.env, entered.cwd) == (None, asked.env, "/")


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("tmpfs", False),
        ("cluster(2)/tmpfs", False),
        ("cluster(2,bandwidth_mbit=1)/tmpfs", False),
        ("cluster(2,delay_ms=1)/tmpfs", True),
        ("cluster(2,loss=1%)/tmpfs", True),
    ],
)
def test_only_delay_and_loss_take_more_than_a_bridge(text: str, needed: bool) -> None:
    names = required_for(parse_stack(text))
    assert ("net.delay" in names) is needed
    assert ("cluster" in names) is text.startswith("cluster")


def test_only_a_cluster_with_a_pooler_needs_it() -> None:
    assert required_for(parse_stack("cluster(2,pooler=pgpool)/tmpfs"))[:3] == ("root", "cluster", "pgpool")
    assert "pgbouncer" in required_for(parse_stack("cluster(2,pooler=pgbouncer)/tmpfs"))
    assert not {"pgpool", "pgbouncer"} & set(required_for(parse_stack("cluster(2)/tmpfs")))
