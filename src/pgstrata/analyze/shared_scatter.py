"""Differences of pairs, with the scatter of all runs of the campaign.

y = stack + block is fitted to every run that counts (`fit.py`), so that a pair has degrees of freedom from the scatter
of the other stacks too. Where two stacks are all there is, nothing can be shared: the difference is the location of
their own pairs (`confirm.py`).

A stack with fewer than three runs shares nothing: by simulation two runs of a stack that scatters ten times as much as
the others lie so close together, in one campaign of twenty, that nothing tells it from the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgstrata.analyze.confirm import paired_location
from pgstrata.analyze.fit import BlockFit, Floats, fit_blocks
from pgstrata.analyze.interval import Estimate

RUNS_TO_SHARE = 3
"""Of a stack, for its scatter to be told from that of others."""
EVIDENT = 0.20
"""Level of the F test by which a stack keeps its own scatter. By simulation: at 0.10 and 0.15 a baseline that scatters
ten times as much as three others makes false claims in 5 % of campaigns (docs/statistics.md)."""


def pair_estimates(y: Floats, pairs: Sequence[tuple[int, int]]) -> tuple[Estimate, ...]:
    """Of each pair of stacks in a table (stack x block, nan without a valid run); n counts complete pairs."""
    differences = [d[np.isfinite(d)] for d in (y[i] - y[j] for i, j in pairs)]
    alone = tuple(paired_location(d) for d in differences)
    if np.isfinite(y).any(axis=1).sum() < 3:
        return alone
    fit = fit_blocks(y, evident=EVIDENT)
    return tuple(_shared(fit, i, j, own) for (i, j), own in zip(pairs, alone, strict=True))


def _shared(fit: BlockFit, i: int, j: int, own: Estimate) -> Estimate:
    found = fit.estimate(i, j)
    if min(fit.runs[i], fit.runs[j]) < RUNS_TO_SHARE or not found.se > 0:
        return own
    return Estimate(found.value, found.se, found.nu, own.n)
