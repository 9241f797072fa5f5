"""Differences of pairs with the scatter of all runs of the campaign."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgstrata.analyze.confirm import paired_location
from pgstrata.analyze.fit import fit_cells
from pgstrata.analyze.shared_scatter import EVIDENT, RUNS_TO_SHARE, pair_estimates

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
    common = fit_cells(stack, block, y.ravel(), 5, evident=EVIDENT).estimate(2, 0)
    assert (found.value, found.se, found.nu) == pytest.approx((common.value, common.se, common.nu))
    assert found.n == 4
    assert found.nu > 3  # of its own pairs alone


def test_a_stack_with_two_runs_shares_nothing() -> None:
    y = noisy(8, RUNS_TO_SHARE)
    y[7, 2] = NAN
    few, enough = pair_estimates(y, [(7, 0), (6, 0)])
    assert few == paired_location(y[7, :2] - y[0, :2])
    assert enough.nu > few.nu


def test_a_stack_that_evidently_scatters_more_keeps_its_own_variance() -> None:
    y = noisy(6, 4, sigma=0.02)
    y[5] += np.array([0.2, -0.2, 0.25, -0.15])
    apart, among = pair_estimates(y, [(5, 0), (4, 0)])
    assert apart.nu < 4 < among.nu
    assert apart.se > 2 * among.se
