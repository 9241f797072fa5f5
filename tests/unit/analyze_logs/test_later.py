"""Stages after the comparison: what is asked, at which rates, and that they end."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pgstrata.analyze.later import CONFIRMING_RUNS, StagedPolicy, capacities_tps, finalists
from pgstrata.record.decision import Decision, Observation, OpenLoop
from pgstrata.spec.campaign import Campaign, Latency, Soak
from pgstrata.spec.notation import parse_stack
from pgstrata.spec.workload import Workload

CAPACITY = {"ext4": 900.0, "xfs": 700.0, "btrfs": 400.0}
CELL = "tpcb-like-s10-c4"


def campaign(latency: Latency | None = None, soak: Soak | None = None) -> Campaign:
    stacks = tuple(parse_stack(name) for name in CAPACITY)
    return Campaign(name="n", stacks=stacks, workload=Workload(scale=(10,), clients=(4,)), latency=latency, soak=soak)


@dataclass(frozen=True)
class TwoBlocks:
    """Two blocks of comparison; btrfs is dropped after the first."""

    def decide(self, observations: list[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        if blocks_done >= 2:
            return Decision("done", (), reason="compared")
        return Decision("screen", tuple(CAPACITY) if blocks_done == 0 else ("ext4", "xfs"))


def play(asked: Campaign, *, failing: str = "", lucky: float | None = None) -> tuple[list[Decision], list[Observation]]:
    """Runs the policy against stacks that carry exactly their capacity; trials of stage `failing` give nothing.

    Stacks that carry more than `lucky` keep their promise at a rate above it in the first run alone.
    """
    policy = StagedPolicy(TwoBlocks(), asked)
    seen: list[Observation] = []
    decisions: list[Decision] = []
    while (decision := policy.decide(seen, len(decisions), 0.0)).stage != "done":
        block = len(decisions)
        decisions.append(decision)
        assert block < 60
        for stack in decision.run:
            cells = asked.workload.cells if decision.cells is None else decision.cells[stack]
            for cell in cells if decision.stage != failing else ():
                loop = None
                if cell.rate_tps is not None:
                    over = cell.rate_tps > CAPACITY[stack]
                    tried = [o for o in seen if o.stack == stack and o.cell == cell.id]
                    over |= lucky is not None and cell.rate_tps > lucky and bool(tried)
                    loop = OpenLoop(cell.rate_tps, 99.0 if over else 3.0, 0.0, over)
                seen.append(Observation(stack, block, cell.id, CAPACITY[stack], decision.stage, 1.0, loop))
    return [*decisions, decision], seen


def test_nothing_more_is_run_when_nothing_is_asked() -> None:
    decisions, _ = play(campaign())
    assert [d.stage for d in decisions] == ["screen", "screen", "done"]


def test_latency_is_measured_at_shares_of_the_slowest_finalist() -> None:
    decisions, seen = play(campaign(Latency(rates=(0.5, 0.9), blocks=2)))
    assert [d.stage for d in decisions] == ["screen", "screen", "latency", "latency", "done"]
    assert finalists([o for o in seen if o.stage == "screen"]) == ("ext4", "xfs")
    assert decisions[2].run == ("ext4", "xfs")
    assert decisions[2].cells is not None
    assert [c.rate_tps for c in decisions[2].cells["ext4"]] == [350.0, 630.0]
    assert decisions[2].cells["ext4"] == decisions[2].cells["xfs"]
    assert [c.id for c in decisions[2].cells["xfs"]] == [f"{CELL}-r350", f"{CELL}-r630"]


def test_capacity_is_found_for_each_stack() -> None:
    asked = campaign(Latency(blocks=1, objective_ms=20.0))
    decisions, seen = play(asked)
    assert decisions[-1].reason == "compared"
    found = capacities_tps(asked, seen)
    for stack in ("ext4", "xfs"):
        assert found[stack, CELL] == pytest.approx(CAPACITY[stack], rel=0.03)
        assert found[stack, CELL] <= CAPACITY[stack]
        at_it = [o for o in seen if o.stack == stack and o.open_loop and o.open_loop.rate_tps == found[stack, CELL]]
        assert len(at_it) == 1 + CONFIRMING_RUNS


def test_a_rate_that_was_kept_by_luck_is_given_up() -> None:
    asked = campaign(Latency(blocks=1, objective_ms=20.0))
    _, seen = play(asked, lucky=880.0)
    assert capacities_tps(asked, seen)["ext4", CELL] < 880.0


def test_soak_takes_finalists_and_copy_on_write() -> None:
    decisions, _ = play(campaign(soak=Soak(duration=7200, runs=2)))
    assert [d.stage for d in decisions] == ["screen", "screen", "soak", "soak", "done"]
    assert decisions[2].run == ("ext4", "xfs", "btrfs")
    assert decisions[2].duration_s == 7200


def test_named_stacks_are_soaked() -> None:
    decisions, _ = play(campaign(soak=Soak(stacks=("xfs",), runs=1)))
    assert decisions[2].run == ("xfs",)


def test_a_stack_that_cannot_be_built_is_not_soaked() -> None:
    asked = campaign(soak=Soak(stacks=("xfs",), runs=1))
    soak = Soak(stacks=("zfs", "xfs"), runs=1)
    stacks = (*asked.stacks, parse_stack("zfs"))
    decisions, _ = play(asked.model_copy(update={"stacks": stacks, "soak": soak}))
    assert decisions[2].run == ("xfs",)


def test_stages_whose_trials_fail_are_given_up() -> None:
    decisions, _ = play(campaign(Latency(blocks=2)), failing="latency")
    assert [d.stage for d in decisions].count("latency") == 3
    assert "given up" in decisions[-1].reason
