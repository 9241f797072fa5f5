"""Differences between the levels in a table and the verdict next to them, and the run responsible.

A level is fitted over the screening; a verdict rests on the fresh pairs alone, so the two may disagree. With y the runs
of both stacks on the scale of the model and d = y_a - y_b in each block that has both,

    gap = (level_a - level_b) - (the estimate of the fresh pairs), reported from max(margin, ln 1.05) on

A block is far off where |d - m| > max(4 s, ln 1.1), m = median d, s = 1.4826 median|d - m| (Hampel, JASA 69, 1974), and
widens the gap: towards it in the screening, away from it among the fresh pairs. If at most a third of the blocks are
far off, the farthest is named, and of its two runs the one further from the median of its own stack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.stats.comparison import Table
from pgstrata.analyze.stats.interval import Floats

LEAST_BLOCKS = 5
MOST_SHARE = 1 / 3
SPREADS = 4.0
FAR = math.log(1.1)
NOTABLE = math.log(1.05)


@dataclass(frozen=True)
class OffRun:
    """A run far from the others of its stack; `off` is on the scale of the model, negative where it was worse."""

    first: bool
    """True for the first stack of the pair."""
    block: int
    off: float


def is_notable(gap: float, bound: float) -> bool:
    """Return True if levels and verdict differ enough to be reported."""
    return abs(gap) > max(bound, NOTABLE)


def far_run(table: Table, i: int, j: int, fresh: frozenset[int], gap: float) -> OffRun | None:
    """Return the run that contributes most to the gap; None if no block is far off. `fresh` has blocks of fresh
    pairs."""
    d: Floats = table.y[i] - table.y[j]
    both = np.flatnonzero(np.isfinite(d))
    if both.size < LEAST_BLOCKS:
        return None
    off = d[both] - np.median(d[both])
    widens = np.array([gap * (-1.0 if table.blocks[k] in fresh else 1.0) for k in both]) * off > 0
    limit = max(SPREADS * 1.4826 * float(np.median(np.abs(off))), FAR)
    if not 0 < int((widens & (np.abs(off) > limit)).sum()) <= MOST_SHARE * both.size:
        return None
    column = int(both[np.argmax(np.where(widens, np.abs(off), 0.0))])
    own = [float(table.y[k][column] - np.nanmedian(table.y[k])) for k in (i, j)]
    first = abs(own[0]) >= abs(own[1])
    return OffRun(first, table.blocks[column], own[0] if first else own[1])
