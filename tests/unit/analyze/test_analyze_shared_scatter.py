"""Differences of pairs with the scatter of all runs of the campaign."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from pgstrata.analyze.stats.confirm import paired_location
from pgstrata.analyze.stats.fit import fit_blocks, fit_cells
from pgstrata.analyze.stats.shared_scatter import (
    EVIDENT,
    RUNS_TO_SHARE,
    evident_by_share,
    evident_in_pairs,
    evident_in_table,
    pair_estimates,
)

NAN = math.nan


def noisy(stacks: int, blocks: int, seed: int = 3, sigma: float = 0.03) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 7 + rng.normal(0, sigma, (stacks, blocks)) + rng.normal(0, 0.05, blocks)


def test_two_stacks_share_nothing() -> None:
    y = noisy(2, 8)
    assert pair_estimates(y, [(0, 1)]) == (paired_location(y[0] - y[1]),)


def test_declared_pairs_have_the_estimate_and_scatter_of_the_common_fit() -> None:
    y = noisy(5, 4)
    (found,) = pair_estimates(y, [(2, 0)])
    stack, block = np.indices(y.shape).reshape(2, -1)
    common = fit_cells(stack, block, y.ravel(), 5, evident=evident_in_pairs()).estimate(2, 0)
    assert (found.value, found.se, found.nu) == pytest.approx((common.value, common.se, common.nu))
    assert found.n == 4
    assert found.nu > 3  # of its own pairs alone


def test_a_stack_with_two_runs_shares_nothing() -> None:
    y = noisy(8, RUNS_TO_SHARE)
    y[7, 2] = NAN
    few, enough = pair_estimates(y, [(7, 0), (6, 0)])
    assert few == paired_location(y[7, :2] - y[0, :2])
    assert enough.nu > few.nu


def test_what_is_evident_is_an_f_test_against_the_others() -> None:
    """Squares of two stacks with 3 and 9 degrees of freedom; the pooled variance has both."""
    for own, others in ((4.0, 1.0), (2.0, 1.0), (1.0, 1.0), (0.3, 1.0)):
        pooled = (3 * own + 9 * others) / 12
        p = stats.f.sf(own / others, 3, 9)
        for level, evident in ((p * 1.001, True), (p * 0.999, False)):
            found = evident_by_share(np.array([own / pooled]), np.array([3]), 12, [level])
            assert found.tolist() == [evident]


def test_the_level_falls_with_the_runs_of_a_stack() -> None:
    ratio = np.full(5, 2.2)
    found = evident_by_share(ratio, np.array([1, 2, 3, 4, 9]), 60, EVIDENT)
    p = [stats.f.sf(2.2 * (60 - own) / (60 - own * 2.2), own, 60 - own) for own in (1, 2, 3, 4, 9)]
    levels = [EVIDENT[0], *EVIDENT, EVIDENT[-1]]
    assert found.tolist() == [one < level for one, level in zip(p, levels, strict=True)]
    assert list(EVIDENT) == sorted(EVIDENT, reverse=True)


def test_with_one_look_less_is_evident_enough() -> None:
    y = noisy(4, 5, sigma=0.02)
    y[3] *= 1.0 + 0.012 * np.array([1, -1, 1, -1, 0])
    declared, any_look = (pair_estimates(y, [(3, 0)], one_look=one)[0] for one in (True, False))
    assert declared.nu < 8 < any_look.nu
    assert declared.se > any_look.se


def test_a_stack_that_evidently_scatters_more_keeps_its_own_variance() -> None:
    y = noisy(6, 4, sigma=0.02)
    y[5] += np.array([0.2, -0.2, 0.25, -0.15])
    apart, among = pair_estimates(y, [(5, 0), (4, 0)])
    assert apart.nu < 7 < among.nu
    assert apart.se > 2 * among.se


def test_an_evident_stack_has_three_degrees_of_freedom_more_but_at_one_look() -> None:
    y = noisy(4, 3, sigma=0.02)
    y[3] += np.array([0.2, -0.2, 0.25])
    any_look, one_look = (fit_blocks(y, evident=evident_in_table(one_look=one)) for one in (False, True))
    assert any_look.evident.tolist() == one_look.evident.tolist() == [False, False, False, True]
    assert (any_look.freedom[3], one_look.freedom[3]) == (5, 2)
    assert any_look.variance[3] == one_look.variance[3] > any_look.pooled_variance
