"""Effects of the factors of a screening, from the effects of its stacks.

With a_k the effect of stack k (`fit`, blocks absorbed, Huber weights) and x_kj = -1/2 or 1/2 the level of factor j
there, the main effects are the least squares solution of a = mu + X b, so that each is a contrast of stacks: b_j =
w_j' a with w_j a row of the pseudo-inverse of (1, X). With every row of the design present, w_kj = 4 x_kj / rows.
A stack without runs leaves the others, and a factor whose change never ran the other factors, at its start; factors
that can no longer be told apart have no estimate.

Standard error and degrees of freedom are those of the contrast (`BlockFit.contrast`): scatter between runs of a stack
in different blocks, not lack of fit. A factor *matters* if Holm's procedure over all factors rejects at 5 % the
anytime-valid p value of no effect (`interval.anytime_p`, pairs = runs / 2); its interval has level 1 - 0.05 / factors
and, as for a rejection made possible by other factors, ends at zero at the latest. It has *no effect* beyond the margin
if the 90 % anytime-valid interval of `equivalence` lies within it, which wins over a proven smaller effect.

Interactions are estimated between factors that matter (strong heredity: Hamada & Wu, J. Quality Technology 24, 1992),
in one model with the main effects, as the column 2 x_i x_j, with Holm's procedure over them; the caller names their
aliases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pgstrata.analyze.finding import EffectVerdict
from pgstrata.analyze.stats.fit import PRIOR_RUNS, BlockFit, fit_blocks
from pgstrata.analyze.stats.holm import holm_rejects
from pgstrata.analyze.stats.interval import (
    ALPHA,
    CONFIRM_G,
    EQUIVALENCE_ALPHA,
    EQUIVALENCE_G,
    Estimate,
    Floats,
    Interval,
    anytime_p,
    interval,
    t_multiplier,
)
from pgstrata.spec.screening import Row, signs

_TOLD = 1e-9


@dataclass(frozen=True)
class Effect:
    """One effect on the scale of the model: the change level against the start, averaged over the other factors."""

    factors: tuple[int, ...]
    estimate: Estimate
    interval: Interval
    verdict: EffectVerdict


def factor_effects(rows: Sequence[Row], y: Floats, bound: float) -> tuple[tuple[Effect, ...], tuple[Effect, ...]]:
    """Return main effects, and the interactions of factors that matter; `y` is stack x block, nan without a run."""
    fit = fit_blocks(y)
    levels = signs(tuple(rows))
    names: list[tuple[int, ...]] = [(j,) for j in range(levels.shape[1])]
    mains = _judged(names, _estimates(fit, levels / 2), bound)
    acting = [effect.factors[0] for effect in mains if effect.verdict == "matters"]
    pairs, columns = _told_apart(fit, levels, acting)
    if not pairs:
        return mains, ()
    return mains, _judged(pairs, _estimates(fit, columns)[len(names) :], bound)


def smallest_effect(rows: int, factors: int, blocks: int) -> float:
    """Return the half width of the interval of an effect after so many complete blocks, in standard deviations of a
    run; infinite while it is unbounded."""
    runs = rows * blocks
    nu = min(rows * (blocks - 1 + PRIOR_RUNS), (rows - 1) * (blocks - 1))
    return t_multiplier(runs / 2, nu, ALPHA / factors, CONFIRM_G) * 2 / math.sqrt(runs) if nu > 0 else math.inf


def _told_apart(fit: BlockFit, levels: Floats, acting: Sequence[int]) -> tuple[list[tuple[int, ...]], Floats]:
    """Return pairs of these factors whose interactions the rows that ran tell apart, and the columns of main effects
    and of them; of aliases among them the first stands for all."""
    counted = fit.runs > 0
    pairs: list[tuple[int, ...]] = []
    columns = levels / 2
    rank = np.linalg.matrix_rank(_with_mean(columns[counted]))
    for i, j in combinations(acting, 2):
        wider = np.column_stack([columns, levels[:, i] * levels[:, j] / 2])
        if np.linalg.matrix_rank(_with_mean(wider[counted])) == rank + len(pairs) + 1:
            pairs, columns = [*pairs, (i, j)], wider
    return pairs, columns


def _with_mean(columns: Floats) -> Floats:
    return np.column_stack([np.ones(len(columns)), columns])


def _estimates(fit: BlockFit, columns: Floats) -> list[Estimate]:
    """Return the estimate of each column; nan for one that the rows that ran do not tell from the others."""
    counted = np.flatnonzero(fit.runs > 0)
    model = _with_mean(columns[counted])
    inverse = np.linalg.pinv(model)
    weights = np.zeros((columns.shape[1], fit.runs.size))
    weights[:, counted] = inverse[1:]
    told = np.abs(inverse @ model - np.eye(model.shape[1])).max(axis=1)[1:] < _TOLD
    unknown = Estimate(math.nan, math.nan, math.nan, math.nan)
    return [fit.contrast(row) if known else unknown for row, known in zip(weights, told, strict=True)]


def _judged(factors: Sequence[tuple[int, ...]], estimates: Sequence[Estimate], bound: float) -> tuple[Effect, ...]:
    rejected = holm_rejects([anytime_p(estimate, CONFIRM_G) for estimate in estimates], ALPHA)
    return tuple(
        _effect(which, estimate, proven, bound, ALPHA / len(estimates))
        for which, estimate, proven in zip(factors, estimates, rejected, strict=True)
    )


def _effect(which: tuple[int, ...], estimate: Estimate, proven: bool, bound: float, alpha: float) -> Effect:
    found = interval(estimate, alpha, CONFIRM_G)
    verdict: EffectVerdict = "undecided"
    if interval(estimate, EQUIVALENCE_ALPHA, EQUIVALENCE_G).inside(bound):
        verdict = "no effect"
    elif proven:
        verdict, found = "matters", found.beyond_zero(estimate.value)
    return Effect(which, estimate, found, verdict)
