"""Stage 1: y = stack + block by Huber-weighted least squares, with variances per stack.

Huber, Robust Statistics (1981), chapter 7 (the correction kappa: section 7.10). Weights w = min(1, 2s/|r|) with
s = 1.4826 median|r| sqrt(N/df); exact weighted least squares, iterated until the weights change by less than 1e-10,
at most 100 times. With m = share of cells with w = 1, p = parameters, df = N - p, kappa = 1 + (p/N)(1-m)/m:

    v = kappa^2 sum((w r)^2) / df / m^2                      pooled variance of a run
    s_k^2 = sum r^2 / sum(1 - h)                             of stack k; h = leverage in the unweighted design
    v_k = (6 v + (n_k - 1) s_k^2) / (n_k + 5)                shrunk: pooling alone makes false claims if sigmas differ
    f_k = n_k + 5                                            its degrees of freedom
    se^2 = sum over cells of c^2 v_k                         c = the contrast's row of (X'X)^-1 X'
    nu = (sum u_k)^2 / sum(u_k^2 / f_k), at most df          Satterthwaite; u_k = part of se^2 that stack k adds

A stack that scatters `evident`ly more than the others, by a test of s_k^2 / v that the caller chooses, keeps the
larger of its own and its shrunk variance: then v_k = max(s_k^2, v_k) and f_k = n_k - 1 + 3. The maximum pays for the 3:
with s_k^2 alone only n_k - 1 degrees of freedom are honest, and three runs could not bound any difference.

The blocks are absorbed (Frisch & Waugh, Econometrica 1, 1933; Lovell, JASA 58, 1963). With W the sums of weights by
stack and block, D those of each block, and z and t the sums of w y by stack and by block, stack by stack

    (diag(W 1) - W D^-1 W') a = z - W D^-1 t;  b = D^-1 (t - W' a)

which is exact for any unbalanced design and takes time and memory in proportion to the runs. Unweighted, with
M = W D^-1 and A the inverse of that system, a run of stack k in block j has the row A (e_k - M_j) and the leverage
(e_k - M_j)' A (e_k - M_j) + 1/D_j.

Stacks and blocks with fewer than 2 valid cells do not count; stacks that no chain of blocks connects are not compared.
Runs without blocks (imports) are one block that holds every run: y = stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.stats.interval import Estimate, Floats

Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
ITERATIONS = 100
TOLERANCE = 1e-10
PRIOR_RUNS = 6
EVIDENT_RUNS = 3
"""Degrees of freedom of an evident stack beyond its own, by simulation (docs/statistics.md)."""
_NO_SPREAD = 1e-11
"""A robust spread of logarithms below this is rounding, not noise."""
_SMALLEST_VARIANCE = 1e-12


def _none(ratio: Floats, own_df: Ints, df: int) -> Bools:
    return np.zeros(ratio.shape, dtype=bool)


@dataclass(frozen=True)
class Evident:
    """Test for stacks that evidently scatter more than the others, and the degrees of freedom of such a stack."""

    test: Callable[[Floats, Ints, int], Bools] = _none
    """Takes s_k^2 / v and n_k - 1 of each stack, and df."""
    runs: int = 0
    """Degrees of freedom beyond n_k - 1; with 0 the variance is s_k^2 as it is."""

    def shrunk(self, own: Floats, own_df: Ints, pooled: float, df: int) -> tuple[Floats, Floats]:
        """Return the variance of a run and its degrees of freedom: shrunk towards the pooled one, unless evidently
        larger."""
        shrunk = (PRIOR_RUNS * pooled + own_df * own) / (PRIOR_RUNS + own_df)
        apart = self.test(own / pooled, own_df, max(df, 1))
        kept = np.maximum(own, shrunk) if self.runs else own
        freedom = np.asarray(own_df + np.where(apart, self.runs, PRIOR_RUNS), dtype=np.float64)
        return np.where(apart, kept, shrunk), freedom


NONE_EVIDENT = Evident()


@dataclass(frozen=True)
class BlockFit:
    """The fitted model; arrays are indexed by stack, nan where a stack has too few runs."""

    effect: Floats
    """a_k, summing to 0 within each connected part."""
    level: Floats
    """a_k + mean block effect: the level of the stack itself."""
    runs: Ints
    """Number of counted runs of each stack."""
    variance: Floats
    """v_k, of one run."""
    freedom: Floats
    """Degrees of freedom of v_k."""
    pooled_variance: float
    df: int
    component: Ints
    """Connected part of each stack; -1 for those that do not count."""
    block_effect: dict[int, float]
    _kept: Ints
    _rows: _Rows

    def estimate(self, i: int, j: int) -> Estimate:
        """Estimate stack i against stack j; every value is nan if they cannot be compared."""
        pairs = self.pairs
        return Estimate(
            float(pairs.difference[i, j]), float(pairs.se[i, j]), float(pairs.nu[i, j]), float(pairs.n[i, j])
        )

    def contrast(self, weights: Floats) -> Estimate:
        """Estimate a sum of effects with weights that add up to 0, one per stack; every value is nan if a stack with a
        weight does not count, or no chain of blocks connects them. n counts pairs, as for two stacks."""
        kept = self._kept
        parts = np.unique(self.component[weights != 0])
        if self.df < 1 or parts.size != 1 or parts[0] < 0:
            return Estimate(math.nan, math.nan, math.nan, math.nan)
        own = weights[kept]
        share = np.einsum("i,kij,j->k", own, self._rows.gram(), own) * self.variance[kept]
        total = float(share.sum())
        nu = total**2 / float((share**2 / self.freedom[kept]).sum())
        return Estimate(float(own @ self.effect[kept]), math.sqrt(total), min(nu, self.df), float(self.runs.sum()) / 2)

    def own(self, k: int) -> Estimate:
        """Return the level of stack k itself, with se = sqrt(v_k / n_k)."""
        n = int(self.runs[k])
        if n < 2 or self.df < 1:
            return Estimate(float(self.level[k]), math.nan, math.nan, n)
        return Estimate(float(self.level[k]), math.sqrt(self.variance[k] / n), min(float(self.freedom[k]), self.df), n)

    @property
    def evident(self) -> Bools:
        """True for stacks that evidently scatter more, by the test passed to the fit."""
        return np.asarray(self.freedom < self.runs - 1 + PRIOR_RUNS)

    @property
    def sigma(self) -> float:
        """Standard deviation of a run, pooled."""
        return math.sqrt(self.pooled_variance)

    @cached_property
    def pairs(self) -> Pairs:
        count = self.effect.size
        difference = self.effect[:, None] - self.effect[None, :]
        n_runs = np.where(self.runs > 0, self.runs, np.nan)
        n = 2 / (1 / n_runs[:, None] + 1 / n_runs[None, :])
        se, nu = np.full((count, count), np.nan), np.full((count, count), np.nan)
        kept = self._kept
        if kept.size and self.df >= 1:
            se[np.ix_(kept, kept)], nu[np.ix_(kept, kept)] = self._errors()
        apart = (self.component[:, None] != self.component[None, :]) | (self.component[:, None] < 0)
        for array in (difference, se, nu, n):
            array[apart] = np.nan
        return Pairs(difference, se, nu, n)

    def _errors(self) -> tuple[Floats, Floats]:
        kept = self._kept
        gram = self._rows.gram()
        own = np.einsum("kii->ki", gram)
        share = (own[:, :, None] + own[:, None, :] - 2 * gram) * self.variance[kept][:, None, None]
        total = share.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            nu = total**2 / (share**2 / self.freedom[kept][:, None, None]).sum(axis=0)
        return np.sqrt(np.maximum(total, 0)), np.minimum(nu, self.df)


@dataclass(frozen=True)
class Pairs:
    """Row stack minus column stack; nan if not compared."""

    difference: Floats
    se: Floats
    nu: Floats
    n: Floats


def fit_blocks(y: Floats, *, evident: Evident = NONE_EVIDENT) -> BlockFit:
    """Fit a stack x block table; nan marks cells without a valid run."""
    stack, block = np.nonzero(np.isfinite(y))
    return fit_cells(stack, block, y[stack, block], y.shape[0], evident=evident)


def fit_cells(stack: Ints, block: Ints, y: Floats, stacks: int, *, evident: Evident = NONE_EVIDENT) -> BlockFit:
    """Fit runs given as three arrays; several runs of a stack in one block are allowed."""
    keep = _counted(stack, block, stacks)
    stack, block, y = stack[keep], block[keep], y[keep]
    runs = np.bincount(stack, minlength=stacks)
    kept = np.flatnonzero(runs)
    if not kept.size:
        return _empty(stacks)
    blocks, column = np.unique(block, return_inverse=True)
    row = np.searchsorted(kept, stack)
    cells = _Cells(row, column, y, kept.size, blocks.size)
    parts = _components(cells.sums(np.ones(y.size)) > 0)
    # Adding c c' makes the system regular and sets the sum of effects of each part to 0.
    constraint = (parts[:, None] == parts[None, :]).astype(np.float64)
    count = int(parts.max()) + 1
    df = y.size - (kept.size + blocks.size - count)
    a, b, residual, weight = _huber(cells, constraint, df)
    pooled = _pooled_variance(residual, weight, df)
    rows = _Rows.of(cells, constraint)
    variance, freedom = np.full(stacks, np.nan), np.full(stacks, np.nan)
    own = _own_variance(residual, row, 1 - rows.leverage()[row, column], pooled)
    variance[kept], freedom[kept] = evident.shrunk(own, runs[kept] - 1, pooled, df)
    effect, level = np.full(stacks, np.nan), np.full(stacks, np.nan)
    component = np.full(stacks, -1, dtype=np.intp)
    effect[kept], component[kept] = a, parts
    block_part = np.zeros(blocks.size, dtype=np.intp)
    block_part[column] = parts[row]
    level[kept] = a + np.array([b[block_part == part].mean() for part in range(count)])[parts]
    return BlockFit(
        effect=effect,
        level=level,
        runs=runs,
        variance=variance,
        freedom=freedom,
        pooled_variance=pooled,
        df=df,
        component=component,
        block_effect=dict(zip(blocks.tolist(), b.tolist(), strict=True)),
        _kept=kept,
        _rows=rows,
    )


@dataclass(frozen=True)
class _Cells:
    """The runs that count, by index of stack and block."""

    row: Ints
    column: Ints
    y: Floats
    stacks: int
    blocks: int

    @cached_property
    def _place(self) -> Ints:
        return self.row * self.blocks + self.column

    def sums(self, values: Floats) -> Floats:
        """Return the sums of one value per run, stack x block."""
        summed = np.bincount(self._place, weights=values, minlength=self.stacks * self.blocks)
        return np.asarray(summed.reshape(self.stacks, self.blocks), dtype=np.float64)

    def solve(self, weight: Floats, constraint: Floats) -> tuple[Floats, Floats]:
        """Return effects of stacks and of blocks by weighted least squares."""
        weights, values = self.sums(weight), self.sums(weight * self.y)
        per_block, of_block = weights.sum(axis=0), values.sum(axis=0)
        share = weights / per_block
        system = np.diag(weights.sum(axis=1)) - share @ weights.T + constraint
        a = _solve(system, values.sum(axis=1) - share @ of_block)
        return a, (of_block - a @ weights) / per_block

    def residuals(self, a: Floats, b: Floats) -> Floats:
        left: Floats = self.y - a[self.row] - b[self.column]
        return left


@dataclass(frozen=True)
class _Rows:
    """Rows of (X'X)^-1 X' that give the effects, unweighted: the same for all runs of a stack in a block."""

    inverse: Floats
    """A: stack x stack."""
    absorbed: Floats
    """A M_j: block x stack."""
    runs: Floats
    """Number of runs of a stack in a block."""

    @classmethod
    def of(cls, cells: _Cells, constraint: Floats) -> _Rows:
        runs = cells.sums(np.ones(cells.y.size))
        share = runs / runs.sum(axis=0)
        inverse = np.linalg.inv(np.diag(runs.sum(axis=1)) - share @ runs.T + constraint)
        return cls(inverse, share.T @ inverse, runs)

    def leverage(self) -> Floats:
        """Return the leverage of a run of a stack in a block."""
        per_block = self.runs.sum(axis=0)
        within = np.einsum("kj,jk->j", self.runs / per_block, self.absorbed)
        found: Floats = self.inverse.diagonal()[:, None] - 2 * self.absorbed.T + within + 1 / per_block
        return found

    def gram(self) -> Floats:
        """Return, for each stack, the products of its runs' rows: its contribution to covariances of effects."""
        of_stack = (own - self.absorbed for own in self.inverse)
        return np.stack([(rows.T * runs) @ rows for rows, runs in zip(of_stack, self.runs, strict=True)])


def _counted(stack: Ints, block: Ints, stacks: int) -> Bools:
    """Mark cells of stacks and blocks with at least 2 valid cells; leaving one out can make another too small."""
    keep: Bools = np.ones(stack.size, dtype=bool)
    while keep.any():
        per_stack = np.bincount(stack[keep], minlength=stacks)
        per_block = np.bincount(block[keep], minlength=int(block.max()) + 1)
        left: Bools = np.logical_and.reduce((keep, per_stack[stack] >= 2, per_block[block] >= 2))
        if (left == keep).all():
            break
        keep = left
    return keep


def _components(meets: Bools) -> Ints:
    """Return the number of the connected part of each stack; `meets` tells which stack ran in which block."""
    stacks = meets.shape[0]
    part = np.full(stacks, -1, dtype=np.intp)
    count = 0
    for first in range(stacks):
        if part[first] >= 0:
            continue
        reached = np.zeros(stacks, dtype=bool)
        reached[first] = True
        while True:
            shared = np.asarray(meets[reached].any(axis=0))
            wider = np.asarray(meets[:, shared].any(axis=1))
            if (wider == reached).all():
                break
            reached = wider
        part[reached] = count
        count += 1
    return part


def _huber(cells: _Cells, constraint: Floats, df: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return effects of stacks and blocks, residuals and weights."""
    n = cells.y.size
    weight: Floats = np.ones(n)
    inflation = 1.4826 * math.sqrt(n / df)
    order = (n // 2,) if n % 2 else (n // 2 - 1, n // 2)
    for _ in range(ITERATIONS):
        a, b = cells.solve(weight, constraint)
        residual = cells.residuals(a, b)
        size = np.abs(residual)
        ordered = np.partition(size, order)
        s = inflation * (ordered[order[0]] + ordered[order[-1]]) / 2
        if s <= _NO_SPREAD:
            weight = np.ones(n)
            a, b = cells.solve(weight, constraint)
            return a, b, cells.residuals(a, b), weight
        new = np.minimum(1.0, 2 * s / np.maximum(size, 1e-300))
        change = np.abs(new - weight).max()
        weight = new
        if change < TOLERANCE:
            break
    return a, b, residual, weight


def _solve(a: Floats, b: Floats) -> Floats:
    """Solve the normal equations, which are symmetric and positive definite."""
    try:
        np.linalg.cholesky(a)
        return np.asarray(np.linalg.solve(a, b), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise ValueError("normal equations are singular") from None


def _pooled_variance(residual: Floats, weight: Floats, df: int) -> float:
    n = residual.size
    m = float((weight >= 1).mean())
    kappa = 1 + (n - df) / n * (1 - m) / m
    v = kappa**2 * float(((weight * residual) ** 2).sum()) / df / m**2
    return v if v > _NO_SPREAD**2 else _SMALLEST_VARIANCE


def _own_variance(residual: Floats, row: Ints, free: Floats, pooled: float) -> Floats:
    squares, freedom = np.bincount(row, weights=residual**2), np.bincount(row, weights=free)
    own: Floats = np.divide(squares, freedom, out=np.full(squares.size, pooled), where=freedom > 1e-9)
    return own


def _empty(stacks: int) -> BlockFit:
    nan = np.full(stacks, np.nan)
    none = np.full(stacks, -1, dtype=np.intp)
    zero = np.zeros(stacks, dtype=np.intp)
    nothing = np.zeros((0, 0))
    return BlockFit(
        nan, nan, zero, nan, nan, math.nan, 0, none, {}, np.zeros(0, dtype=np.intp), _Rows(nothing, nothing, nothing)
    )
