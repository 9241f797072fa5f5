"""Nodes of a cluster on other hosts: how they are written, which part of a stack each host has, what does not go with
them.
"""

from __future__ import annotations

from typing import Any

import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign, far_hosts, part_of
from pgstrata.spec.crash import cluster_crash_campaign, cluster_power_campaign, named_stacks, untested
from pgstrata.spec.crash_request import CrashRequest
from pgstrata.spec.hosts.targets import underlay_problem
from pgstrata.spec.notation.stack import parse_stack, render_stack
from pgstrata.spec.stack import Topology

FAR = (
    "cluster(4,ANY 1,stale_reads=2s,delay_ms=1,address=10.0.0.1)/ext4@wal=xfs@archive=tmpfs@standby1=tmpfs"
    '@standby2.host=ssh://db2@standby3.host="ssh://root@db3:2222"@standby3.address=10.0.0.3@standby3.upstream=standby2'
)


def test_notation_and_model_say_the_same() -> None:
    stack = parse_stack(FAR)
    assert parse_stack(render_stack(stack)).topology == stack.topology
    assert stack.far_hosts == ("ssh://db2", "ssh://root@db3:2222")
    assert [node.host for node in stack.nodes] == ["", "", "ssh://db2", "ssh://root@db3:2222"]
    assert stack.host_of_role("standby2.wal") == "ssh://db2"
    assert stack.host_of_role("archive") == stack.host_of_role("data") == ""
    assert stack.topology is not None
    assert stack.topology.addresses == {"": "10.0.0.1", "ssh://root@db3:2222": "10.0.0.3"}


def test_each_host_has_its_part_of_the_volumes() -> None:
    stack = parse_stack(FAR)
    kinds = {h: {r: v.fs.kind for r, v in part_of(stack, h).volumes.items()} for h in ("", *stack.far_hosts)}
    assert kinds == {
        "": {"data": "ext4", "wal": "xfs", "standby1.data": "tmpfs", "archive": "tmpfs"},
        "ssh://db2": {"data": "ext4", "wal": "xfs"},
        "ssh://root@db3:2222": {"data": "ext4", "wal": "xfs"},
    }
    alone = parse_stack("cluster(2)/ext4")
    assert part_of(alone, "") == alone


def test_a_directory_may_have_one_name_on_two_hosts() -> None:
    assert parse_stack("cluster(2)/dir:/mnt/x@standby1.host=ssh://db2").far_hosts == ("ssh://db2",)
    with pytest.raises(UsageError, match=r"/mnt/x on ssh://db2 is used by standby1\.data and standby2\.data"):
        parse_stack("cluster(3)/dir:/mnt/x@standby.host=ssh://db2")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hosts": ("ssh://a", "ssh://b")}, "not with hosts"),
        ({"host": "lab"}, "has nodes on lab, ssh://db2, .*: lab machines that were started together reach one another"),
        ({"host": "lab/a"}, "nobody else does"),
        ({"runs": {"precondition": "trim"}}, "runs.precondition"),
        ({"runs": {"aged": True}}, "runs.aged"),
    ],
)
def test_what_does_not_go_with_other_hosts_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Campaign(name="x", stacks=(parse_stack(FAR),), **changes)
    near = Campaign(name="x", stacks=(parse_stack("cluster(2)/ext4"),), **changes)
    assert far_hosts(near) == ()


def test_lab_machines_that_are_up_are_hosts_of_nodes() -> None:
    stack = parse_stack("cluster(2)/md(raid1,2)/xfs@standby1=zfs@standby1.host=lab/lab-2")
    assert parse_stack(render_stack(stack)).topology == stack.topology
    assert stack.far_hosts == ("lab/lab-2",)
    assert far_hosts(Campaign(name="x", host="lab/lab-1", stacks=(stack,))) == ("lab/lab-2",)
    for host in ("local", "lab", "ssh://db1"):
        with pytest.raises(ValueError, match="nobody else does"):
            Campaign(name="x", host=host, stacks=(stack,))
    for name in ("lab", "lab/", "lab/../x", "lab/a b"):
        with pytest.raises(ValueError, match="a node is on the campaign's host, behind ssh or on a lab machine"):
            Topology.model_validate({"standbys": [{"host": name}]})


def test_the_primary_and_pgbench_have_the_host_of_the_campaign() -> None:
    for key in ("host", "driver", "load_host"):
        with pytest.raises(ValueError, match="a topology has no host"):
            Topology.model_validate({"standbys": 1, key: "ssh://db2"})


def test_crash_trials_are_of_one_kernel() -> None:
    assert "several hosts" in untested(parse_stack(FAR), CrashRequest())
    for crash_campaign in (cluster_crash_campaign, cluster_power_campaign):
        with pytest.raises(UsageError, match="one order of events is of one kernel"):
            crash_campaign(named_stacks(["cluster(2)/ext4@standby1.host=ssh://db2"]))


@pytest.mark.parametrize(
    "text", ["10.1.2.3", "172.31.0.1", "192.168.0.1", "100.64.0.9", "127.0.0.1", "169.254.3.4", "fd00::1", "::1"]
)
def test_private_addresses_join_hosts(text: str) -> None:
    assert underlay_problem(text) == ""


@pytest.mark.parametrize("text", ["fe80::1", "fe80::1%eth0", "fd00::1%eth0"])
def test_addresses_of_one_interface_do_not(text: str) -> None:
    assert "is of one interface" in underlay_problem(text)


@pytest.mark.parametrize("text", ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:db8::1", "203.0.113.1", "db2"])
def test_others_do_not(text: str) -> None:
    assert underlay_problem(text) != ""
