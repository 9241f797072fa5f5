"""Fresh pairs with the scatter that screening saw, and the early end of screening that rests on many stacks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.campaign.policy import AdaptivePolicy
from pgstrata.analyze.campaign.simulate import CELL
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.fit import fit_blocks
from pgstrata.analyze.stats.interval import Estimate
from pgstrata.analyze.stats.screened_scatter import INFLATION, Scatter, scatter_in_screening, with_screening
from pgstrata.record.decision import Observation, Stage
from pgstrata.spec.campaign import Goal

SCREENED = Scatter(0.0018, 9.0)


def test_the_scatter_of_both_stages_by_hand() -> None:
    own = Estimate(0.1, 0.02, 3, 4)  # variance of a pair: 0.0016
    found = with_screening(own, SCREENED)
    variance = (3 * 0.0016 + 9 * 1.2 * 0.0018) / 12
    assert (found.value, found.nu, found.n) == (0.1, 12, 4)
    assert found.se == pytest.approx(math.sqrt(variance / 4))


def test_one_pair_or_no_screening_adds_nothing() -> None:
    alone = Estimate(0.2, math.nan, math.nan, 1)
    assert with_screening(alone, SCREENED) is alone
    own = Estimate(0.2, 0.02, 3, 4)
    assert with_screening(own, None) is own


def test_pairs_that_evidently_scatter_more_stand_alone() -> None:
    own = Estimate(0.2, 0.1, 1, 2)  # two pairs of which one lost a run
    assert with_screening(own, SCREENED) is own
    as_usual = Estimate(0.2, 0.03, 1, 2)
    assert with_screening(as_usual, SCREENED).nu == 10


def test_pairs_that_scatter_less_are_told_to_scatter_more() -> None:
    calm = Estimate(0.2, 0.001, 1, 2)
    found = with_screening(calm, SCREENED)
    assert found.se > math.sqrt(SCREENED.variance / 2)
    assert INFLATION > 1


def test_screening_tells_the_scatter_of_the_pair_and_not_of_stacks_it_cannot_compare() -> None:
    y = 7 + np.random.default_rng(4).normal(0, 0.03, (4, 3))
    y[3, 1:] = math.nan
    fit = fit_blocks(y)
    found = scatter_in_screening(fit, 0, 1)
    assert found is not None
    assert found.variance == pytest.approx(fit.variance[0] + fit.variance[1])
    assert found.freedom == pytest.approx(fit.estimate(0, 1).nu)
    assert scatter_in_screening(fit, 0, 3) is None


def runs(stacks: int, blocks: int, *, ahead: float, stage: Stage = "screen", first: int = 0) -> list[Observation]:
    """The first stack is ahead of equals, and the third a little behind them; in confirmation the two first run."""
    noise = np.random.default_rng(12).normal(0, 0.02, (blocks + first, stacks))
    return [
        Observation(
            name(k),
            first + block,
            CELL,
            1000 * math.exp(noise[first + block, k] + ahead * (k == 0) - 0.05 * (k == 2)),
            stage,
        )
        for block in range(blocks)
        for k in range(stacks if stage == "screen" else 2)
    ]


def name(k: int) -> str:
    return f"s{k:02d}"


def design(stacks: int) -> Design:
    return Design(tuple(name(k) for k in range(stacks)), (CELL,), Goal())


def test_policy_and_judge_take_it_alike_and_two_pairs_can_prove() -> None:
    seen = [*runs(3, 5, ahead=0.2), *runs(3, 2, ahead=0.2, stage="confirm", first=5)]
    (pair,) = conclude(design(3), seen, CELL).confirmed
    assert pair.verdict.estimate.n == 2
    assert pair.verdict.estimate.nu > 2
    assert pair.verdict.verdict == ("better" if pair.a == name(0) else "worse")
    figures = AdaptivePolicy(design(3)).decide(seen, 7, 0.0).figures[f"{CELL}: {pair.a} / {pair.b}"]
    assert figures["se"] == pytest.approx(pair.verdict.estimate.se, rel=1e-12)
    assert figures["verdict"] == pair.verdict.verdict


@pytest.mark.parametrize(("stacks", "stage"), [(12, "confirm"), (11, "confirm"), (6, "screen")])
def test_many_stacks_can_end_screening_after_two_blocks(stacks: int, stage: Stage) -> None:
    assert AdaptivePolicy(design(stacks)).decide(runs(stacks, 2, ahead=0.3), 2, 0.0).stage == stage


def test_a_budget_with_room_for_two_pairs_starts_them_where_they_can_prove() -> None:
    """The scatter that screening saw counts in the forecast too; two pairs by themselves have no bounds."""
    seen = [replace(o, duration_s=10.0) for o in runs(6, 3, ahead=0.5)]
    policy = AdaptivePolicy(design(6), budget_s=180.0 + 45.0)
    assert policy.decide(seen, 3, 180.0).stage == "confirm"


def test_two_blocks_drop_no_stack() -> None:
    behind = [o for o in runs(12, 2, ahead=0.0) if o.stack != name(5)]
    lame = [Observation(name(5), block, CELL, 300.0, "screen") for block in range(2)]
    assert len(AdaptivePolicy(design(12)).decide([*behind, *lame], 2, 0.0).run) == 12


@pytest.mark.parametrize(("blocks", "bounded"), [(2, False), (3, True)])
def test_the_table_says_nothing_of_stacks_with_two_runs(blocks: int, bounded: bool) -> None:
    """Two runs of a stack that scatters ten times as much can lie close together, and nothing tells it then."""
    found = conclude(design(12), runs(12, blocks, ahead=0.3), CELL)
    assert len(found.screened) == 66
    assert any(math.isfinite(p.verdict.interval.low) for p in found.screened) == bounded
    assert any(p.verdict.decided for p in found.screened) == bounded
