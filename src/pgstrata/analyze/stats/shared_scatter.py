"""Differences of pairs, with the scatter of all runs of the campaign.

y = stack + block is fitted to every run that counts (`fit.py`), so that a pair has degrees of freedom from the scatter
of the other stacks too. With only two stacks nothing can be shared: the difference is the location of their own pairs
(`confirm.py`).

A stack with fewer than three runs shares nothing: by simulation two runs of a stack that scatters ten times as much as
the others lie so close together, in one campaign of twenty, that it looks like the others.

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

from pgstrata.analyze.stats.confirm import paired_location
from pgstrata.analyze.stats.distributions import beta_above, f_above
from pgstrata.analyze.stats.fit import EVIDENT_RUNS, BlockFit, Bools, Evident, Ints, fit_blocks
from pgstrata.analyze.stats.interval import Estimate, Floats

RUNS_TO_SHARE = 3
"""Runs of a stack needed to distinguish its scatter from that of others."""
EVIDENT = (0.10, 0.02, 0.005)
"""Levels of a third, a fourth and any later run (docs/statistics.md has the cost of others)."""
EVIDENT_AT_ONE_LOOK = (0.20,)
"""Level for a declared number of blocks, where the least evidence suffices."""
EVIDENT_IN_TABLE = 0.20
"""Level for the table of all pairs, by F(n_k - 1, df) of s_k^2 / v without correction, which is conservative for few
stacks."""


def evident_by_share(ratio: Floats, own_df: Ints, df: int, levels: Sequence[float]) -> Bools:
    """Return which stacks evidently scatter more, at the levels of a third and further runs. Takes each stack's own
    variance over the pooled one, and both degrees of freedom."""
    share = np.minimum(own_df * ratio / df, 1.0)
    level = np.take(levels, own_df + 1 - RUNS_TO_SHARE, mode="clip")
    return np.asarray(beta_above(own_df / 2, np.maximum(df - own_df, 1) / 2, share) < level)


def _evident_in_table(ratio: Floats, own_df: Ints, df: int) -> Bools:
    return np.asarray(f_above(own_df, df, ratio) < EVIDENT_IN_TABLE)


def evident_in_pairs(*, one_look: bool = False) -> Evident:
    """Return the rule of declared pairs. At one look an evident stack keeps n_k - 1 degrees of freedom."""
    if one_look:
        return Evident(partial(evident_by_share, levels=EVIDENT_AT_ONE_LOOK), runs=0)
    return Evident(partial(evident_by_share, levels=EVIDENT), EVIDENT_RUNS)


def evident_in_table(*, one_look: bool = False) -> Evident:
    """Return the rule of the table of all pairs."""
    return Evident(_evident_in_table, runs=0 if one_look else EVIDENT_RUNS)


def pair_estimates(y: Floats, pairs: Sequence[tuple[int, int]], *, one_look: bool = False) -> tuple[Estimate, ...]:
    """Estimate each pair of stacks in a table (stack x block, nan without a valid run); n counts complete pairs."""
    differences = [d[np.isfinite(d)] for d in (y[i] - y[j] for i, j in pairs)]
    alone = tuple(paired_location(d) for d in differences)
    if np.isfinite(y).any(axis=1).sum() < 3:
        return alone
    fit = fit_blocks(y, evident=evident_in_pairs(one_look=one_look))
    return tuple(_shared(fit, i, j, own) for (i, j), own in zip(pairs, alone, strict=True))


def _shared(fit: BlockFit, i: int, j: int, own: Estimate) -> Estimate:
    found = fit.estimate(i, j)
    if min(fit.runs[i], fit.runs[j]) < RUNS_TO_SHARE or not found.se > 0:
        return own
    return Estimate(found.value, found.se, found.nu, own.n)
