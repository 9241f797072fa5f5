"""Paired location, Hodges-Lehmann, screening and forecasts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgstrata.analyze.stats.confirm import paired_location
from pgstrata.analyze.stats.equivalence import LEAST_RUNS
from pgstrata.analyze.stats.fit import fit_blocks
from pgstrata.analyze.stats.forecast import Outlook, pairs_needed, smallest_difference, smallest_margin
from pgstrata.analyze.stats.hodges_lehmann import hodges_lehmann, hodges_lehmann_shift
from pgstrata.analyze.stats.interval import EQUIVALENCE_ALPHA, EQUIVALENCE_G, t_multiplier
from pgstrata.analyze.stats.screen import probability_within_margin, rank, screen

DIFFERENCES = st.lists(st.floats(-1, 1), min_size=2, max_size=40).map(np.array)


@settings(max_examples=60, deadline=None)
@given(DIFFERENCES, st.floats(-2, 2))
def test_location_moves_with_the_data(d: np.ndarray, shift: float) -> None:
    plain, moved, mirrored = paired_location(d), paired_location(d + shift), paired_location(-d)
    assert d.min() - 1e-9 <= plain.value <= d.max() + 1e-9
    assert mirrored.value == pytest.approx(-plain.value, abs=1e-6)
    # A spread of rounding size is decided either way by the shift itself.
    if plain.se > 1e-6:
        assert moved.value == pytest.approx(plain.value + shift, abs=1e-6)
        assert moved.se == pytest.approx(plain.se, rel=1e-4)


def test_without_outliers_it_is_the_mean() -> None:
    d = np.array([-0.02, -0.01, 0.0, 0.01, 0.02])
    found = paired_location(d)
    assert found.value == pytest.approx(0)
    assert found.se == pytest.approx(d.std(ddof=1) / math.sqrt(5))
    assert (found.nu, found.n) == (4, 5)


def test_an_outlier_is_cut_and_the_error_corrected() -> None:
    d = np.array([-0.02, -0.01, 0.0, 0.01, 0.02, 0.0, 0.01, -0.01, 1.0])
    found = paired_location(d)
    r = np.abs(d - found.value)
    s = 1.4826 * np.median(r) * math.sqrt(9 / 8)
    q = 8 / 9
    kappa = 1 + (1 - q) / (9 * q)
    assert found.se == pytest.approx(kappa * math.sqrt((np.minimum(r, 2 * s) ** 2).sum() / (8 * 9)) / q)
    assert abs(found.value) < 0.01


def test_few_or_identical_pairs() -> None:
    assert math.isnan(paired_location(np.array([])).value)
    assert math.isnan(paired_location(np.array([0.1])).se)
    same = paired_location(np.full(6, 0.25))
    assert same.value == pytest.approx(0.25)
    assert same.se == pytest.approx(1e-6 / math.sqrt(6))


def test_hodges_lehmann_examples() -> None:
    assert hodges_lehmann(np.array([1.0, 2.0, 6.0])) == 2.75
    assert hodges_lehmann_shift(np.array([1.0, 4.0]), np.array([0.0, 1.0])) == 2.0
    assert math.isnan(hodges_lehmann(np.array([])))


def table(effects: list[float], blocks: int = 10, sigma: float = 0.01, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array(effects)[:, None] + rng.normal(0, sigma, (len(effects), blocks))


def test_screening_drops_the_worst_and_keeps_two() -> None:
    fit = fit_blocks(table([0.0, -0.2, -0.5, -0.9]))
    found = screen(fit, range(4), ["a", "b", "c", "d"], math.log(1.02))
    assert found is not None
    assert (found.leader, found.dropped) == (0, (3, 2))
    assert found.probability_within_margin > 0.999


def test_equal_stacks_are_not_settled_soon() -> None:
    fit = fit_blocks(table([0.0] * 12, blocks=3, sigma=0.03))
    found = screen(fit, range(12), [str(i) for i in range(12)], math.log(1.02))
    assert found is not None
    assert found.probability_within_margin < 0.95


def test_ties_break_by_name() -> None:
    fit = fit_blocks(np.zeros((3, 4)))
    assert rank(fit, range(3), ["c", "a", "b"]) == (1, 2, 0)


def test_probability_counts_dropped_stacks_too() -> None:
    y = table([0.0, -0.01, -0.02], sigma=0.02)
    y[2, 3:] = np.nan
    fit = fit_blocks(y)
    assert probability_within_margin(fit, 0, 0.02, (1, 2)) < probability_within_margin(fit, 0, 0.02, (1,))


def test_rule_of_thumb_for_equality() -> None:
    for sigma_run in (0.026, 0.03):
        needed = pairs_needed(0.0, math.sqrt(2) * sigma_run, math.log(1.02))
        assert needed == pytest.approx(22 * (sigma_run / 0.02) ** 2, rel=0.25)


@given(st.floats(0.001, 0.2), st.integers(LEAST_RUNS, 200))
def test_margins_are_half_widths(sigma: float, n: int) -> None:
    width = t_multiplier(n, n - 1, EQUIVALENCE_ALPHA, EQUIVALENCE_G) * sigma / math.sqrt(n)
    assert smallest_margin(sigma, n) == pytest.approx(width)
    assert smallest_difference(sigma, 2) == math.inf
    assert smallest_margin(sigma, LEAST_RUNS - 1) == math.inf


def test_equality_takes_as_many_runs_as_a_rare_bad_mode_needs_to_show() -> None:
    assert pairs_needed(0.0, 0.001, math.log(1.05)) == LEAST_RUNS


def test_a_large_difference_needs_few_pairs() -> None:
    assert pairs_needed(1.0, 0.05, 0.02) == 3
    # a difference of just the margin is hard to tell from either side
    at_margin = pairs_needed(math.log(1.02), 0.03, math.log(1.02))
    assert at_margin is not None
    assert at_margin > 20


def test_chances_are_probabilities() -> None:
    sure = Outlook(center=0.3, spread=0.01, sigma_pair=0.04, pairs=60)
    assert sure.chance_of_difference() == pytest.approx(1)
    assert sure.chance_of_equality(0.02) == pytest.approx(0)
    level = Outlook(center=0.0, spread=0.003, sigma_pair=0.02, pairs=60)
    assert level.chance_of_equality(0.02) > 0.95
    few = Outlook(0.0, 0.01, 0.04, 3)
    assert few.chance_of_difference() == few.chance_of_equality(0.02) == 0
