"""Differences of pairs, with the scatter of all runs of the campaign.

y = stack + block is fitted to every run that counts (`fit.py`), so that a pair has degrees of freedom from the scatter
of the other stacks too. Where two stacks are all there is, nothing can be shared: the difference is the location of
their own pairs (`confirm.py`).

A stack with fewer than three runs shares nothing: by simulation two runs of a stack that scatters ten times as much as
the others lie so close together, in one campaign of twenty, that nothing tells it from the others.

Nor does one that evidently scatters more than the others. Its own variance is part of the pooled one: if all scatter
alike, its share of all squares, b = (n_k - 1) s_k^2 / (df v), has the Beta distribution of (n_k - 1) / 2 and
(df - n_k + 1) / 2, which is the F test against the scatter of the others (Rao, Linear Statistical Inference and Its
Applications, 1973, 3a.1). With each run a stack that scatters ten times as much hides more rarely, so that lower levels
do: among eight stacks it passes with 0.028 at the level of a third run, 0.012 at that of a fourth, then with 0.005.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.special import betaincc, fdtrc

from pgstrata.analyze.confirm import paired_location
from pgstrata.analyze.fit import BlockFit, Bools, Floats, Ints, fit_blocks
from pgstrata.analyze.interval import Estimate

RUNS_TO_SHARE = 3
"""Of a stack, for its scatter to be told from that of others."""
EVIDENT = (0.10, 0.02, 0.005)
"""Levels of a third, a fourth and any later run (docs/statistics.md has what others cost)."""
EVIDENT_AT_ONE_LOOK = (0.20,)
"""Of a declared number of blocks, where the least evidence decides."""
EVIDENT_IN_TABLE = 0.20
"""Of the table of all pairs, by F(n_k - 1, df) of s_k^2 / v as it is, which is reluctant where stacks are few."""


def evident_by_share(ratio: Floats, own_df: Ints, df: int, levels: Sequence[float]) -> Bools:
    """Of each stack its own variance over the pooled one, and both degrees of freedom: whether it evidently scatters
    more, at the levels of a third and further runs."""
    share = np.minimum(own_df * ratio / df, 1.0)
    level = np.take(levels, own_df + 1 - RUNS_TO_SHARE, mode="clip")
    return np.asarray(betaincc(own_df / 2, np.maximum(df - own_df, 1) / 2, share) < level)


def evident_in_table(ratio: Floats, own_df: Ints, df: int) -> Bools:
    """The same for the table of all pairs."""
    return np.asarray(fdtrc(own_df, df, ratio) < EVIDENT_IN_TABLE)


def pair_estimates(y: Floats, pairs: Sequence[tuple[int, int]], *, one_look: bool = False) -> tuple[Estimate, ...]:
    """Of each pair of stacks in a table (stack x block, nan without a valid run); n counts complete pairs."""
    differences = [d[np.isfinite(d)] for d in (y[i] - y[j] for i, j in pairs)]
    alone = tuple(paired_location(d) for d in differences)
    if np.isfinite(y).any(axis=1).sum() < 3:
        return alone
    levels = EVIDENT_AT_ONE_LOOK if one_look else EVIDENT
    fit = fit_blocks(y, evident=partial(evident_by_share, levels=levels))
    return tuple(_shared(fit, i, j, own) for (i, j), own in zip(pairs, alone, strict=True))


def _shared(fit: BlockFit, i: int, j: int, own: Estimate) -> Estimate:
    found = fit.estimate(i, j)
    if min(fit.runs[i], fit.runs[j]) < RUNS_TO_SHARE or not found.se > 0:
        return own
    return Estimate(found.value, found.se, found.nu, own.n)
