"""Slices or whole runs: what a campaign allows, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from pgstrata.spec.campaign import Campaign, Slices, Trial
from pgstrata.spec.expand import block_trials, has_whole_run, planned_slices, why_whole

NAMES = ("ext4", "xfs")


def campaign(stacks: list[dict[str, Any]] | None = None, **asked: Any) -> Campaign:
    own = stacks or [{"name": name, "data": {"fs": {"kind": name}}} for name in NAMES]
    runs = {"budget": 600.0, **asked.pop("runs", {})}
    workload = {"scale": 1, "duration": 8.0, **asked.pop("workload", {})}
    return Campaign.model_validate({"name": "c", "stacks": own, "runs": runs, "workload": workload, **asked})


def on_disk(name: str, disk: str) -> dict[str, Any]:
    return {"name": name, "data": {"fs": {"kind": "ext4"}, "device": {"kind": "disk", "ids": [disk]}}}


def swapping(name: str) -> dict[str, Any]:
    return {"name": name, "data": {"fs": {"kind": "ext4"}}, "kernel": {"sysctl": {"vm.swappiness": 1}}}


def with_arc(name: str) -> dict[str, Any]:
    return {"name": name, "data": {"fs": {"kind": "zfs", "module": {"zfs_arc_max": 1 << 30}}}}


def over_nfs(name: str) -> dict[str, Any]:
    return {"name": name, "data": {"fs": {"kind": "nfs", "export": {"kind": "xfs"}}}}


def test_short_runs_with_a_budget_are_slices() -> None:
    assert why_whole(campaign()) == ""
    assert planned_slices(campaign()) == Slices(count=4, length=2.0)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"runs": {"design": "whole"}}, "runs.design is whole"),
        ({"runs": {"budget": None}}, "no budget"),
        ({"runs": {"blocks": 3}}, "runs.blocks is fixed"),
        ({"workload": {"duration": 60.0}}, "checkpoint cycles"),
    ],
)
def test_auto_keeps_whole_runs(asked: dict[str, Any], reason: str) -> None:
    assert reason in why_whole(campaign(**asked))
    assert planned_slices(campaign(**asked)) is None
    if "design" not in asked.get("runs", {}):
        runs = {**asked.get("runs", {}), "design": "slices"}
        assert why_whole(campaign(**{**asked, "runs": runs})) == "", "which slices can be asked for"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"stacks": [{"name": "ext4", "data": {"fs": {"kind": "ext4"}}}]}, "one stack"),
        ({"hosts": ["ssh://a", "ssh://b"]}, "several hosts"),
        ({"goal": {"primary": "latency_p99_ms"}}, "goal.primary is latency_p99_ms"),
        ({"workload": {"duration": None, "transactions": 10}}, "workload.transactions"),
        ({"runs": {"load": "keep"}}, "runs.load is keep"),
        ({"runs": {"precondition": "steady"}}, "runs.precondition is steady"),
        ({"stacks": [on_disk("a", "wwn-1"), on_disk("b", "wwn-1")]}, "a and b are on the same device wwn-1"),
        ({"stacks": [swapping("a"), swapping("b")]}, "a sets kernel settings of the whole host"),
        ({"stacks": [with_arc("a"), with_arc("b")]}, "a sets kernel settings of the whole host"),
        ({"stacks": [over_nfs("a"), over_nfs("b")]}, "one server of the host serves a and b"),
    ],
)
def test_stacks_that_cannot_stand_side_by_side(asked: dict[str, Any], reason: str) -> None:
    for design in ("auto", "slices"):
        runs = {**asked.get("runs", {}), "design": design}
        assert reason in why_whole(campaign(**{**asked, "runs": runs}))


def test_stacks_on_disks_of_their_own_stand_side_by_side() -> None:
    assert why_whole(campaign([on_disk("a", "wwn-1"), on_disk("b", "wwn-2")])) == ""


def trials(block: int, slices: Slices | None) -> tuple[Trial, ...]:
    return block_trials(campaign(), block, NAMES, slices=slices)


def test_a_whole_run_follows_in_every_eighth_block() -> None:
    shown = [block for block in range(9) if all(map(has_whole_run, trials(block, Slices())))]
    assert shown == [0, 8]
    assert not any(map(has_whole_run, trials(0, None)))


@pytest.mark.parametrize("count", [1, 3, 66])
def test_a_number_of_turns_that_is_not_balanced_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="count"):
        campaign(runs={"slices": {"count": count}})
