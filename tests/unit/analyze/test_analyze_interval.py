"""The anytime-valid interval, its p value, Holm and equality."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgstrata.analyze.stats.equivalence import LEAST_RUNS, difference_of_means, judge_pair
from pgstrata.analyze.stats.holm import holm_rejects
from pgstrata.analyze.stats.interval import (
    ALPHA,
    CONFIRM_G,
    EQUIVALENCE_ALPHA,
    EQUIVALENCE_G,
    Estimate,
    Mixture,
    anytime_p,
    interval,
    t_multiplier,
    t_multipliers,
)

COUNTS = st.integers(2, 400)
ALPHAS = st.sampled_from([0.001, 0.01, 0.05, 0.1])
G = st.sampled_from([(0.1,), (1.0,), (5.0,), CONFIRM_G])


@pytest.mark.parametrize(("alpha", "g", "first"), [(ALPHA, CONFIRM_G, 3), (EQUIVALENCE_ALPHA, EQUIVALENCE_G, 9)])
def test_first_finite_pairs_are_those_of_the_method(alpha: float, g: Mixture, first: int) -> None:
    assert [math.isinf(t_multiplier(n, n - 1, alpha, g)) for n in (first - 1, first)] == [True, False]


def test_multiplier_by_hand() -> None:
    # n = 10, g = 1: G = 11, Q = (sqrt(11) / 0.05) ** (2 / 10)
    q = (math.sqrt(11) / 0.05) ** 0.2
    assert t_multiplier(10, 9, 0.05, (1.0,)) == pytest.approx(math.sqrt(9 * (q - 1) / (1 - q / 11)))
    assert t_multiplier(4, 3, 0.05, (1.0,)) == math.inf
    assert t_multiplier(math.nan, 3, 0.05, (1.0,)) == math.inf


@given(COUNTS, ALPHAS, G)
def test_arrays_and_numbers_agree(n: int, alpha: float, g: Mixture) -> None:
    with np.errstate(over="ignore"):
        many = t_multipliers(np.array([float(n)]), np.array([n - 1.0]), alpha, g)
    assert many[0] == pytest.approx(t_multiplier(n, n - 1, alpha, g), rel=1e-9)


@given(COUNTS, G)
def test_more_confidence_is_wider(n: int, g: Mixture) -> None:
    widths = [t_multiplier(n, n - 1, alpha, g) for alpha in (0.1, 0.05, 0.01, 0.001)]
    assert widths == sorted(widths)


@given(COUNTS, ALPHAS, G)
def test_it_is_wider_than_a_t_interval_of_one_look(n: int, alpha: float, g: Mixture) -> None:
    from scipy.stats import t

    assert t_multiplier(n, n - 1, alpha, g) > t.isf(alpha / 2, n - 1)


@given(COUNTS, ALPHAS, G, st.floats(-20, 20))
def test_p_is_the_dual_of_the_interval(n: int, alpha: float, g: Mixture, t_value: float) -> None:
    estimate = Estimate(t_value * 0.01, 0.01, n - 1, n)
    if abs(abs(t_value) - t_multiplier(n, n - 1, alpha, g)) < 1e-6:
        return
    assert (anytime_p(estimate, g) < alpha) == interval(estimate, alpha, g).excludes_zero()


def test_p_without_evidence_is_one() -> None:
    assert anytime_p(Estimate(0.0, 0.01, 9, 10), (1.0,)) == 1.0
    assert anytime_p(Estimate(0.1, math.nan, math.nan, 1), (1.0,)) == 1.0


@given(COUNTS, ALPHAS, st.sampled_from([CONFIRM_G, (0.1, 1.0, 5.0)]))
def test_the_evidence_at_the_bound_is_averaged_over_the_values_of_g(n: int, alpha: float, g: Mixture) -> None:
    """Not summed, and not the largest of them: then the interval would be narrower."""
    nu, t2 = n - 1, t_multiplier(n, n - 1, alpha, g) ** 2
    if math.isinf(t2):
        return
    evidence = [((nu + t2) / (nu + t2 / (1 + n * one))) ** ((nu + 1) / 2) / math.sqrt(1 + n * one) for one in g]
    assert sum(evidence) / len(g) == pytest.approx(1 / alpha, rel=1e-6)


def test_looking_after_every_pair_rarely_errs() -> None:
    rng = np.random.default_rng(2)
    errors = 0
    for _ in range(300):
        d = rng.normal(0, 1, 80)
        for n in range(3, 81):
            part = d[:n]
            errors_now = interval(
                Estimate(float(part.mean()), float(part.std(ddof=1)) / math.sqrt(n), n - 1, n), 0.05, CONFIRM_G
            )
            if errors_now.excludes_zero():
                errors += 1
                break
    assert errors / 300 <= 0.08


def test_holm_steps_down() -> None:
    assert holm_rejects([0.01, 0.04, 0.03], 0.05) == (True, False, False)
    assert holm_rejects([0.01, 0.02, 0.03], 0.05) == (True, True, True)
    assert holm_rejects([], 0.05) == ()


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_between_bonferroni_and_no_correction(p_values: list[float]) -> None:
    for p, rejected in zip(p_values, holm_rejects(p_values, 0.05), strict=True):
        assert not rejected or p <= 0.05
        assert rejected or p > 0.05 / len(p_values)


def test_equal_wins_over_a_proven_difference() -> None:
    tight = Estimate(0.004, 0.0005, 59, 60)
    found = judge_pair(tight, math.log(1.02), tight)
    assert found.interval.excludes_zero()
    assert found.verdict == "equal"
    assert judge_pair(tight, math.log(1.001), tight).verdict == "better"
    assert judge_pair(Estimate(-0.2, 0.01, 9, 10), math.log(1.02), Estimate(-0.2, 0.01, 9, 10)).verdict == "worse"


def test_undecided_says_which_margin_would_do() -> None:
    estimate = Estimate(0.01, 0.005, 39, 40)
    found = judge_pair(estimate, math.log(1.02), estimate)
    assert found.verdict == "undecided"
    assert not found.decided
    assert judge_pair(estimate, found.acceptable_bound * 1.0001, estimate).verdict == "equal"


def test_a_margin_of_zero_is_never_equal() -> None:
    assert judge_pair(Estimate(0.0, 1e-6, 59, 60), 0.0, Estimate(0.0, 1e-6, 59, 60)).verdict == "undecided"


def test_equality_must_hold_of_the_plain_mean_too() -> None:
    robust, felt = Estimate(0.0, 0.001, 39, 40), Estimate(-0.07, 0.02, 39, 40)
    assert judge_pair(robust, math.log(1.05), robust).verdict == "equal"
    found = judge_pair(robust, math.log(1.05), felt)
    assert found.verdict == "undecided"
    assert found.acceptable_bound > 0.07


def test_equality_needs_as_many_runs_as_show_a_rare_bad_mode() -> None:
    few, enough = (Estimate(0.0, 0.0001, n - 1, n) for n in (LEAST_RUNS - 1, LEAST_RUNS))
    assert judge_pair(few, math.log(1.05), few).verdict == "undecided"
    assert judge_pair(few, math.log(1.05), few).acceptable_bound == math.inf
    assert judge_pair(few, math.log(1.05), few, least_runs=0).verdict == "equal"
    assert judge_pair(enough, math.log(1.05), enough).verdict == "equal"


def test_means_of_unpaired_runs_are_compared_by_welch() -> None:
    x, y = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.5, 3.0])
    found, reference = difference_of_means(x, y), stats.ttest_ind(x, y, equal_var=False)
    assert found.value / found.se == pytest.approx(reference.statistic)
    assert found.nu == pytest.approx(reference.df)
    assert math.isnan(difference_of_means(x, y[:1]).se)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_only_holm_proves_has_an_interval_that_ends_at_no_difference(sign: int) -> None:
    loose = Estimate(sign * 0.2, 0.06, 5, 6)
    alone = judge_pair(loose, math.log(1.02), loose)
    assert (alone.verdict, alone.interval.excludes_zero()) == ("undecided", False)
    found = judge_pair(loose, math.log(1.02), loose, different=True)
    assert found.verdict == ("better" if sign > 0 else "worse")
    near, far = (found.interval.low, found.interval.high)[::sign]
    assert near == 0
    assert far == (alone.interval.low, alone.interval.high)[::sign][1]
