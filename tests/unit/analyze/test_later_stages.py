"""Stages after the comparison: what is asked, at which rates, and that they end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from pgstrata.analyze.campaign.later_stages import (
    CONFIRMING_RUNS,
    LONGEST_STEP_S,
    StagedPolicy,
    capacity_statement,
    finalists,
)
from pgstrata.analyze.campaign.statements import Capacity, CapacityBracket
from pgstrata.analyze.stats.capacity import least_transactions
from pgstrata.record.decision import Decision, Observation, OpenLoop
from pgstrata.spec.campaign import Campaign, Latency, Runs, Soak
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.workload import Workload

CAPACITY = {"ext4": 900.0, "xfs": 700.0, "btrfs": 400.0}
CELL = "tpcb-like-s10-c4"
OVERHEAD_S = 40.0


def campaign(latency: Latency | None = None, soak: Soak | None = None, budget: float | None = None) -> Campaign:
    stacks, workload = tuple(parse_stack(name) for name in CAPACITY), Workload(scale=(10,), clients=(4,), warmup=30)
    runs = Runs(budget=budget)
    return Campaign(name="n", stacks=stacks, workload=workload, runs=runs, latency=latency, soak=soak)


@dataclass(frozen=True)
class TwoBlocks:
    """Two blocks of comparison; btrfs is dropped after the first."""

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        if blocks_done >= 2:
            return Decision("done", (), reason="compared")
        return Decision("screen", tuple(CAPACITY) if blocks_done == 0 else ("ext4", "xfs"))


def play(asked: Campaign, *, failing: str = "", lucky: float | None = None) -> tuple[list[Decision], list[Observation]]:
    """Runs the policy against stacks that carry exactly their capacity; trials of stage `failing` give nothing.

    Every trial takes OVERHEAD_S, and each of its runs 30 s of warm-up and its own length.

    Stacks that carry more than `lucky` keep their promise at a rate above it in the first run alone.
    """
    policy = StagedPolicy(TwoBlocks(), asked)
    seen: list[Observation] = []
    decisions: list[Decision] = []
    while (decision := policy.decide(seen, len(decisions), sum(o.duration_s for o in seen))).stage != "done":
        block = len(decisions)
        decisions.append(decision)
        assert block < 60
        for stack in decision.run:
            cells = asked.workload.cells if decision.cells is None else decision.cells[stack]
            for cell in cells if decision.stage != failing else ():
                loop, cost_s = None, OVERHEAD_S / len(cells) + 30 + (decision.duration_s or 60.0)
                if cell.rate_tps is not None:
                    over = cell.rate_tps > CAPACITY[stack]
                    tried = [o for o in seen if o.stack == stack and o.cell == cell.id]
                    over |= lucky is not None and cell.rate_tps > lucky and bool(tried)
                    loop = OpenLoop(cell.rate_tps, 99.0 if over else 3.0, 0.0, over)
                seen.append(Observation(stack, block, cell.id, CAPACITY[stack], decision.stage, cost_s, loop))
    return [*decisions, decision], seen


def compared(seen: Sequence[Observation]) -> list[Observation]:
    return [o for o in seen if o.stage == "screen"]


def capacity(asked: Campaign, seen: Sequence[Observation]) -> Capacity:
    found = capacity_statement(asked, seen, compared(seen), asked.workload.cells[0])
    assert found is not None
    return found


def brackets(asked: Campaign, seen: Sequence[Observation]) -> dict[str, CapacityBracket]:
    return {one.name: one for one in capacity(asked, seen).brackets}


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
    found = brackets(asked, seen)
    for stack in ("ext4", "xfs"):
        low_tps, high_tps = found[stack].low_tps or 0.0, found[stack].high_tps or 0.0
        assert low_tps <= CAPACITY[stack] < high_tps <= 1.03 * low_tps
        assert (found[stack].runs, found[stack].unfinished) == (1 + CONFIRMING_RUNS, False)
    assert capacity(asked, seen).untried == ("btrfs",)


def test_a_search_that_was_cut_short_has_its_bracket_and_is_unfinished() -> None:
    asked = campaign(Latency(blocks=1, objective_ms=20.0))
    _, seen = play(asked)
    first = min(o.block for o in seen if o.stage == "capacity")
    found = brackets(asked, [o for o in seen if o.block <= first + 1])
    assert [(one.name, one.unfinished) for one in found.values()] == [("ext4", True), ("xfs", True)]
    for stack, one in found.items():
        assert (one.low_tps or 0.0) <= CAPACITY[stack] < (one.high_tps or math.inf)
    assert capacity_statement(asked, [], compared(seen), asked.workload.cells[0]) is None


def test_a_stack_that_kept_the_objective_at_no_rate_has_its_lowest_rate_as_bound() -> None:
    asked = campaign(Latency(blocks=1, objective_ms=20.0))
    seen = [Observation("ext4", 0, CELL, 900.0)]
    seen += [
        Observation("ext4", n, f"{CELL}-r{rate:g}", 1.0, "capacity", 60.0, OpenLoop(rate, 99.0, 0.5, True, 9000))
        for n, rate in enumerate((630.0, 399.0), 1)
    ]
    (one,) = capacity(asked, seen).brackets
    assert (one.low_tps, one.high_tps, one.runs, one.unfinished) == (None, 399.0, 1, True)


def test_a_rate_that_was_kept_by_luck_is_given_up() -> None:
    asked = campaign(Latency(blocks=1, objective_ms=20.0))
    _, seen = play(asked, lucky=880.0)
    found = brackets(asked, seen)["ext4"]
    assert (found.low_tps or 0.0) < 880.0 < (found.high_tps or 0.0)


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


COMPARED_S = 5 * 130.0
"""Two blocks, of three and of two stacks."""
RATES_S = 2 * (40.0 + 2 * 90.0)
"""One block at two rates."""
SOAK_S = 3 * 7270.0


@pytest.mark.parametrize(
    ("budget", "stages", "notice"),
    [
        (COMPARED_S + 2 * RATES_S + SOAK_S, ["latency", "latency", "soak"], ""),
        (
            COMPARED_S + 2 * RATES_S + SOAK_S - 1,
            ["latency", "latency"],
            "25 min 30 s of 6 h 29 min; stage soak was left",
        ),
        (COMPARED_S + 2 * RATES_S - 1, ["latency"], "18 min 10 s of 25 min 29 s; stage latency was ended early"),
        (COMPARED_S + RATES_S - 1, [], "10 min 50 s of 18 min 9 s; stage latency was left out"),
    ],
)
def test_later_stages_keep_to_the_budget(budget: float, stages: list[str], notice: str) -> None:
    asked = campaign(Latency(rates=(0.5, 0.9), blocks=2), Soak(duration=7200, runs=1), budget)
    decisions, seen = play(asked)
    assert [d.stage for d in decisions] == ["screen", "screen", *stages, "done"]
    assert sum(o.duration_s for o in seen) <= budget
    assert decisions[-1].reason.startswith("compared")
    assert bool(decisions[-1].budget_notice) == bool(notice)
    assert notice in decisions[-1].budget_notice


def test_stages_whose_trials_fail_are_given_up() -> None:
    decisions, _ = play(campaign(Latency(blocks=2)), failing="latency")
    assert [d.stage for d in decisions].count("latency") == 3
    assert "given up" in decisions[-1].reason


def test_runs_are_long_enough_for_the_percentile() -> None:
    short = Workload(scale=(10,), clients=(4,), warmup=30, duration=1)
    asked = campaign(Latency(rates=(0.5, 0.9), blocks=1, objective_ms=10)).model_copy(update={"workload": short})
    decisions, seen = play(asked)
    lengths = {d.stage: d.duration_s for d in decisions}
    slowest_tps = 0.5 * min(CAPACITY["ext4"], CAPACITY["xfs"])
    assert lengths["latency"] == math.ceil(1000 / slowest_tps)
    for decision in (d for d in decisions if d.stage == "capacity"):
        assert decision.cells is not None
        rates = [c.rate_tps or 0.0 for own in decision.cells.values() for c in own]
        assert min(rates) * (decision.duration_s or 1.0) >= 1000
    assert capacity(asked, seen).unknown == ()
    enough = campaign(Latency(blocks=1, objective_ms=10))
    assert {d.duration_s for d in play(enough)[0]} == {None}, "60 s are enough at these rates"


def test_a_percentile_of_too_few_transactions_is_no_capacity() -> None:
    asked = campaign(Latency(objective_ms=10))
    few, fine = OpenLoop(7.0, 3.0, 0.0, False, 35), OpenLoop(7.0, 3.0, 0.0, False, 1000)

    def found(*loops: OpenLoop) -> float | None:
        runs = [Observation("xfs", n, f"{CELL}-r{r.rate_tps:g}", 7.0, "capacity", 60.0, r) for n, r in enumerate(loops)]
        said = capacity(asked, [Observation("xfs", 0, CELL, 10.0), *runs])
        return math.nan if said.unknown else said.brackets[0].low_tps

    assert math.isnan(found(few) or 0.0)
    assert found(fine) == 7.0
    assert found(few, OpenLoop(5.0, 3.0, 0.0, False, 1200)) == 5.0
    assert math.isnan(found(OpenLoop(3.0, 50.0, 0.2, True, 900)) or 0.0), "lower rates have too few within ten minutes"
    assert found(OpenLoop(300.0, 50.0, 0.2, True, 9000)) is None


@pytest.mark.parametrize(("name", "least"), [("p50", 20), ("p90", 100), ("p95", 200), ("p99", 1000), ("p999", 10_000)])
def test_ten_transactions_lie_beyond_a_percentile(name: str, least: int) -> None:
    assert least_transactions(name) == least


def test_a_search_ends_where_rates_become_too_low_for_the_percentile() -> None:
    asked = campaign(Latency(rates=(0.5,), blocks=1, objective_ms=10, percentile="p999"))
    policy, seen = StagedPolicy(TwoBlocks(), asked), list(play(campaign())[1])
    seen += [Observation(n, 2, "x", 1.0, "latency", 60.0) for n in ("ext4", "xfs")]
    for block in range(3, 30):
        decision = policy.decide(seen, block, 0.0)
        if decision.stage == "done":
            break
        assert decision.cells is not None
        for stack, cells in decision.cells.items():
            (rate,) = (c.rate_tps or 0.0 for c in cells)
            assert rate * LONGEST_STEP_S >= 10_000
            loop = OpenLoop(rate, 99.0, 0.5, True, 10_000)
            seen.append(Observation(stack, block, cells[0].id, 1.0, "capacity", 60.0, loop))
    assert decision.stage == "done"
    assert capacity(asked, seen).unknown == ("ext4", "xfs")
