"""Runs of four stacks, of which one scatters more and is far behind: it has bounds, and is dropped with a claim."""

from __future__ import annotations

import math

import pytest

from pgstrata.analyze.campaign.conclude import CellConclusion, conclude
from pgstrata.analyze.campaign.policy import AdaptivePolicy
from pgstrata.analyze.campaign.simulate import CELL
from pgstrata.analyze.stats.comparison import Design
from pgstrata.record.decision import Observation
from pgstrata.spec.campaign import Goal

RUNS = {
    "ext4": (3138, 2936, 2912, 2660, 2901, 2514, 2734, 2521, 2266, 2658, 2299, 2684),
    "xfs": (2920, 2943, 2655, 2595, 2527, 2680, 2876, 2650, 2308, 2840, 3058, 2905),
    "btrfs": (1067, 1521, 1398),
    "tmpfs": (5960, 5035, 5540),
}
DESIGN = Design(tuple(RUNS), (CELL,), Goal(), candidates=frozenset({"ext4", "xfs", "btrfs"}))


def observations(blocks: int) -> list[Observation]:
    return [
        Observation(name, block, CELL, float(tps))
        for block in range(blocks)
        for name, runs in RUNS.items()
        for tps in runs[block : block + 1]
    ]


@pytest.fixture(scope="module")
def found() -> CellConclusion:
    return conclude(DESIGN, observations(12), CELL)


def test_a_stack_that_scatters_more_has_bounds_after_three_runs(found: CellConclusion) -> None:
    own = [p for p in found.screened if "btrfs" in (p.a, p.b)]
    assert len(own) == 3
    assert all(math.isfinite(p.verdict.interval.low) for p in own)
    assert [p.verdict.verdict for p in own if "tmpfs" in (p.a, p.b)] == ["worse"]


def test_it_stays_until_its_difference_is_proven() -> None:
    after_three = AdaptivePolicy(DESIGN).decide(observations(3), 3, 120.0)
    assert (after_three.stage, after_three.run, after_three.dropped) == ("screen", ("ext4", "xfs", "btrfs"), ("tmpfs",))
    fourth = [Observation("btrfs", 3, CELL, 1350.0), *(o for o in observations(4) if o.block == 3)]
    after_four = AdaptivePolicy(DESIGN).decide([*observations(3), *fourth], 4, 150.0)
    assert "btrfs" in after_four.dropped
    told = conclude(DESIGN, [*observations(3), *fourth], CELL).screened
    assert next(p.verdict.verdict for p in told if (p.a, p.b) == ("ext4", "btrfs")) == "better"
