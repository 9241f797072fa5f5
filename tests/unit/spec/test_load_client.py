"""A load's client on a host of its own: how it is written, its part of a campaign, what does not go with it."""

from __future__ import annotations

from typing import Any

import pytest

from pgstrata.spec.campaign import Campaign, far_hosts, part_of_campaign
from pgstrata.spec.crash import crash_campaign
from pgstrata.spec.expand import why_whole
from pgstrata.spec.notation.stack import parse_stack

CLIENT = {"client": "ssh://root@loadgen"}


def campaign(*stacks: str, workload: dict[str, Any] = CLIENT, **further: Any) -> Campaign:
    texts = stacks or ("ext4@wal=xfs", "xfs")
    return Campaign.model_validate(
        {"name": "x", "stacks": [parse_stack(text) for text in texts], "workload": workload, **further}
    )


def test_a_name_and_a_mapping_say_the_same() -> None:
    short, long = campaign(), campaign(workload={"client": {"host": "ssh://root@loadgen", "address": None}})
    assert short == long
    assert short.client == "ssh://root@loadgen"
    assert campaign(workload={}).client == ""
    assert short.workload.over_tcp
    assert not campaign(workload={}).workload.over_tcp


def test_its_host_has_the_programs_of_each_stack_and_no_volume_of_theirs() -> None:
    found = campaign()
    assert far_hosts(found) == ("ssh://root@loadgen",)
    assert part_of_campaign(found, "") == found
    part = part_of_campaign(found, "ssh://root@loadgen")
    assert [stack.name for stack in part.stacks] == ["ext4@wal=xfs", "xfs"]
    assert {role: v.fs.kind for role, v in part.stacks[0].volumes.items()} == {"data": "dir"}


def test_every_driver_takes_one() -> None:
    for driver in ("pgbench", "tpcc", "go-tpc", "sysbench"):
        assert campaign(workload={**CLIENT, "driver": driver}).client


@pytest.mark.parametrize(
    ("stacks", "changes", "why"),
    [
        (("cluster(2)/ext4",), {}, "has a node for its client"),
        ((), {"hosts": ("ssh://a", "ssh://b")}, "not with hosts"),
        ((), {"host": "ssh://root@loadgen"}, "the host of the server"),
        ((), {"workload": {"client": "local"}}, "the host of the server"),
        ((), {"host": "lab"}, "lab machines that were started together reach one another"),
        ((), {"host": "lab/lab-1"}, "lab machines that were started together reach one another"),
        ((), {"runs": {"load": "keep"}}, "not with runs.load: keep"),
        ((), {"workload": {"client": "exec:podman exec -i x"}}, "a client is behind ssh or on a lab machine"),
        ((), {"workload": {"client": {"host": "ssh://x", "address": "8.8.8.8"}}}, "address 8.8.8.8 is public"),
        ((), {"workload": {"client": {"host": "ssh://x", "address": "db1"}}}, "'db1' is no IP address"),
    ],
)
def test_what_does_not_go_with_it_is_refused(stacks: tuple[str, ...], changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        campaign(*stacks, **changes)


def test_remote_servers_and_lab_machines_go_with_it() -> None:
    assert campaign(host="ssh://db1", workload={"client": "local"}).client == "local"
    assert campaign(host="lab/lab-1", workload={"client": "lab/lab-2"}).client == "lab/lab-2"


def test_its_runs_are_whole_and_crash_trials_leave_it_out() -> None:
    budget = {"budget": 600, "design": "slices"}
    assert why_whole(campaign(runs=budget)) == "the client is on another host"
    assert crash_campaign(campaign("ext4"), loaded=True).client == ""


@pytest.mark.parametrize(
    ("workload", "scale"),
    [
        ({}, 50),
        ({"script": "tpcc"}, 1),
        ({"driver": "sysbench"}, 10),
        ({"driver": {"run": "x", "result": {"metric": "m", "last_line": True}}}, 1),
        ({"driver": {"run": "x", "result": {"metric": "m", "last_line": True}}, "scale": 7}, 7),
    ],
)
def test_the_default_scale_is_the_usual_one_of_the_driver(workload: dict[str, Any], scale: int) -> None:
    assert campaign(workload=workload).workload.scale == (scale,)
