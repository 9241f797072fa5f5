"""Stage 1's fit absorbs the blocks: the same numbers as with a column for each block, in proportion to the runs."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from pgstrata.analyze.stats.fit import BlockFit, fit_cells
from pgstrata.analyze.stats.shared_scatter import EVIDENT_IN_TABLE, evident_in_table


@dataclass(frozen=True)
class Runs:
    """Runs of a random design that may lack cells, repeat them, or fall into parts."""

    stack: np.ndarray
    block: np.ndarray
    y: np.ndarray
    stacks: int


@st.composite
def designs(draw: st.DrawFn) -> Runs:
    stacks, blocks = draw(st.integers(1, 7)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = rng.choice([0, 1, 2], size=(stacks, blocks), p=draw(st.sampled_from([(0, 1, 0), (0.3, 0.6, 0.1)])))
    if draw(st.booleans()):
        counts[: stacks // 2, : blocks // 2] = 0
        counts[stacks // 2 :, blocks // 2 :] = 0
    stack, block = (np.repeat(at.ravel(), counts.ravel()) for at in np.indices(counts.shape))
    y = 7 + rng.normal(0, 0.1, stacks)[stack] + rng.normal(0, 0.05, blocks)[block] + rng.normal(0, 0.03, stack.size)
    y[rng.random(y.size) < 0.05] -= 0.3
    return Runs(stack, block, y, stacks)


class Dense:
    """The formulas of `fit.py` with a column for each stack and block that the fit kept."""

    def __init__(self, runs: Runs, found: BlockFit) -> None:
        blocks = np.array(sorted(found.block_effect))
        keep = (found.component[runs.stack] >= 0) & np.isin(runs.block, blocks)
        self.stack, self.y, self.found = runs.stack[keep], runs.y[keep], found
        column = runs.stacks + np.searchsorted(blocks, runs.block[keep])
        at = np.arange(self.y.size)
        self.x = np.zeros((self.y.size, runs.stacks + blocks.size))
        self.x[at, self.stack] = self.x[at, column] = 1
        self.df = self.y.size - int(np.linalg.matrix_rank(self.x))
        self.weight, self.converged = np.ones(self.y.size), False
        for _ in range(100):
            self._solve()
            s = 1.4826 * float(np.median(np.abs(self.residual))) * math.sqrt(self.y.size / self.df)
            if s <= 1e-11:  # half of the runs are fitted exactly
                self.weight, self.converged = np.ones(self.y.size), True
                self._solve()
                return
            before, self.weight = self.weight, np.minimum(1, 2 * s / np.maximum(np.abs(self.residual), 1e-300))
            if np.abs(self.weight - before).max() < 1e-10:
                self.converged = True
                return

    def _solve(self) -> None:
        root = np.sqrt(self.weight)
        self.theta = np.linalg.lstsq(self.x * root[:, None], self.y * root, rcond=None)[0]
        self.residual = self.y - self.x @ self.theta

    @property
    def pooled(self) -> float:
        n, m = self.y.size, float((self.weight >= 1).mean())
        kappa = 1 + (n - self.df) / n * (1 - m) / m
        return float(kappa**2 * ((self.weight * self.residual) ** 2).sum() / self.df / m**2)

    @property
    def scatter(self) -> tuple[np.ndarray, np.ndarray]:
        """Variance of a run of each stack, and its degrees of freedom."""
        free = 1 - np.diag(self.x @ np.linalg.pinv(self.x))
        variance, freedom = (np.full(self.found.runs.size, np.nan) for _ in range(2))
        for k in np.unique(self.stack):
            mine = self.stack == k
            n = int(mine.sum())
            fitted_exactly = free[mine].sum() < 1e-9  # the stack's runs say nothing about its variance
            own = self.pooled if fitted_exactly else (self.residual[mine] ** 2).sum() / free[mine].sum()
            ratio, shrunk = own / self.pooled, (6 * self.pooled + (n - 1) * own) / (n + 5)
            assume(abs(ratio - stats.f.isf(EVIDENT_IN_TABLE, n - 1, self.df)) > 1e-6)
            if stats.f.sf(ratio, n - 1, self.df) < EVIDENT_IN_TABLE:
                variance[k], freedom[k] = max(own, shrunk), n + 2
            else:
                variance[k], freedom[k] = shrunk, n + 5
        return variance, freedom

    def estimate(self, i: int, j: int) -> tuple[float, float, float]:
        """Difference, standard error, degrees of freedom."""
        contrast = np.zeros(self.x.shape[1])
        contrast[i], contrast[j] = 1, -1
        variance, freedom = self.scatter
        squares = (np.linalg.pinv(self.x).T @ contrast) ** 2 * variance[self.stack]
        u = np.bincount(self.stack, weights=squares, minlength=self.found.runs.size)
        known = u > 0
        nu = float(u.sum() ** 2 / (u[known] ** 2 / freedom[known]).sum())
        return float(contrast @ self.theta), math.sqrt(u.sum()), min(nu, self.df)


@settings(max_examples=100, derandomize=True)
@given(designs())
def test_the_figures_are_those_of_a_column_for_each_block(runs: Runs) -> None:
    found = fit_cells(runs.stack, runs.block, runs.y, runs.stacks, evident=evident_in_table())
    counted = np.flatnonzero(found.component >= 0)
    if not counted.size:
        return
    dense = Dense(runs, found)
    assume(dense.converged)  # a few tiny designs go round in circles, and rounding says where they are stopped
    assert found.df == dense.df
    assert found.pooled_variance == pytest.approx(dense.pooled, rel=1e-8)
    assert found.variance == pytest.approx(dense.scatter[0], rel=1e-8, nan_ok=True)
    for i in counted.tolist():
        for j in counted[counted > i].tolist():
            if found.component[i] == found.component[j]:
                estimate = found.estimate(i, j)
                shown = (estimate.value, estimate.se, estimate.nu)
                assert shown == pytest.approx(dense.estimate(i, j), rel=1e-8, abs=1e-9)


def test_the_memory_of_a_fit_grows_with_the_runs_not_with_their_square() -> None:
    rng = np.random.default_rng(1)
    blocks = 2000
    stack, block = np.repeat([0, 1], blocks), np.tile(np.arange(blocks), 2)
    y = rng.normal(0, 0.03, stack.size)
    tracemalloc.start()
    try:
        found = fit_cells(stack, block, y, 2)
        assert math.isfinite(found.estimate(0, 1).se)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1000 * stack.size, "a column for each block alone would be 16,000 bytes a run"
