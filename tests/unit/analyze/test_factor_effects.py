"""Effects of the factors of a screening."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from pgstrata.analyze.stats.factor_effects import factor_effects, smallest_effect
from pgstrata.analyze.stats.fit import fit_blocks
from pgstrata.spec.screening import screening_rows

BOUND = math.log1p(0.02)
Floats = npt.NDArray[np.float64]


def _runs(rows: tuple[tuple[bool, ...], ...], effects: dict[int, float], blocks: int, seed: int = 1) -> Floats:
    """Logarithms of runs with drift from block to block, CV 3 %."""
    rng = np.random.default_rng(seed)
    levels = np.where(np.array(rows), 0.5, -0.5)
    means = sum((effect * levels[:, j] for j, effect in effects.items()), np.zeros(len(rows)))
    drift = np.cumsum(rng.normal(0, 0.05, blocks))
    return np.asarray(7 + means[:, None] + drift + rng.normal(0, 0.03, (len(rows), blocks)))


def test_a_contrast_of_two_stacks_is_their_estimate() -> None:
    y = _runs(screening_rows(3), {0: 0.1}, 5)
    y[2, 3] = np.nan
    fit = fit_blocks(y)
    weights = np.zeros(8)
    weights[[1, 2]] = 1, -1
    pair, contrast = fit.estimate(1, 2), fit.contrast(weights)
    assert contrast.value == pytest.approx(pair.value, rel=1e-12)
    assert contrast.se == pytest.approx(pair.se, rel=1e-9)
    assert contrast.nu == pytest.approx(pair.nu, rel=1e-9)


def test_effects_are_the_differences_of_means_at_both_levels() -> None:
    rows = screening_rows(7)
    y = _runs(rows, {2: 0.2}, 4)
    mains, _ = factor_effects(rows, y, BOUND)
    high = np.array(rows)
    for effect in mains:
        (j,) = effect.factors
        plain = y[high[:, j]].mean() - y[~high[:, j]].mean()
        assert effect.estimate.value == pytest.approx(plain, abs=0.02)  # the fit gives outlying runs less weight
    assert mains[2].estimate.se == pytest.approx(0.03 * math.sqrt(4 / y.size), rel=0.35)


def test_two_of_fourteen_factors_matter_and_are_found() -> None:
    rows = screening_rows(14)
    mains, pairs = factor_effects(rows, _runs(rows, {3: 0.06, 9: -0.06}, 3), BOUND)
    assert [e.factors[0] for e in mains if e.verdict == "matters"] == [3, 9]
    assert mains[3].interval.low > 0
    assert mains[9].interval.high < 0
    assert [e.factors for e in pairs] == [(3, 9)]
    assert pairs[0].verdict != "matters"


def test_enough_runs_show_that_there_is_no_effect() -> None:
    rows = screening_rows(7)
    mains, _ = factor_effects(rows, _runs(rows, {0: 0.2}, 30), BOUND)
    assert mains[0].verdict == "matters"
    assert {e.verdict for e in mains[1:]} == {"no effect"}


def test_an_interaction_of_factors_that_matter_is_found() -> None:
    rows = screening_rows(7)
    y = _runs(rows, {0: 0.2, 1: 0.2}, 4)
    high = np.array(rows)
    y += 0.05 * np.where(high[:, 0] == high[:, 1], 1, -1)[:, None]
    _, pairs = factor_effects(rows, y, BOUND)
    assert [(e.factors, e.verdict) for e in pairs] == [((0, 1), "matters")]
    assert pairs[0].interval.low < 0.1 < pairs[0].interval.high


def test_a_stack_that_never_ran_leaves_the_others() -> None:
    rows = screening_rows(7)
    y = _runs(rows, {0: 0.2}, 4)
    y[[3, 11]] = np.nan
    mains, _ = factor_effects(rows, y, BOUND)
    assert mains[0].verdict == "matters"
    assert mains[0].interval.low < 0.2 < mains[0].interval.high


def test_factors_that_no_run_tells_apart_have_no_estimate() -> None:
    rows = screening_rows(3)
    y = _runs(rows, {0: 0.5}, 4)
    y[np.array(rows)[:, 1] != np.array(rows)[:, 2]] = np.nan
    mains, pairs = factor_effects(rows, y, BOUND)
    assert [e.verdict for e in mains] == ["matters", "undecided", "undecided"]
    assert [math.isnan(e.estimate.value) for e in mains] == [False, True, True]
    assert pairs == ()


def test_a_change_that_never_starts_leaves_the_effects_of_the_others() -> None:
    rows = screening_rows(14)
    y = _runs(rows, {3: 0.2, 5: 0.9}, 4)
    y[np.array(rows)[:, 5]] = np.nan
    mains, _ = factor_effects(rows, y, BOUND)
    assert [e.factors[0] for e in mains if e.verdict == "matters"] == [3]
    assert [e.factors[0] for e in mains if math.isnan(e.estimate.value)] == [5]


def test_one_block_has_no_verdicts() -> None:
    rows = screening_rows(7)
    mains, _ = factor_effects(rows, _runs(rows, {0: 0.5}, 1), BOUND)
    assert {e.verdict for e in mains} == {"undecided"}


def test_false_claims_over_all_factors_are_rare() -> None:
    rows = screening_rows(7)
    false = sum(
        any(e.verdict == "matters" for e in factor_effects(rows, _runs(rows, {}, 3, seed), BOUND)[0])
        for seed in range(100)
    )
    assert false <= 5


@pytest.mark.parametrize("blocks", [2, 3, 6])
def test_the_smallest_effect_is_the_half_width_of_the_intervals(blocks: int) -> None:
    rows = screening_rows(14)
    widths = [
        (effect.interval.high - effect.interval.low) / 2
        for seed in range(10)
        for effect in factor_effects(rows, _runs(rows, {}, blocks, seed), BOUND)[0]
    ]
    assert 0.03 * smallest_effect(len(rows), 14, blocks) == pytest.approx(np.median(widths), rel=0.15)
    assert math.isinf(smallest_effect(len(rows), 14, 1))
