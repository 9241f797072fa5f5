"""Rare bad modes: a few runs of one stack far below its other runs, while the machine was as usual.

Robust estimates give such runs little weight and so hide them; a user who meets one does not care how rare it is. With
the deviation e of a run from the median of its stack and, in the same block, the median o of the other stacks'
deviations (0 where there are none), r = e - o; a run is bad where both e and r lie below

    -max(4 s, ln 1.1, 2.5 q);  s = 1.4826 median|r| of the stack

with q the step to which throughput is rounded, the smallest difference of two values in the table: where most runs of a
stack are the same number, s is 0 and is no measure of their scatter. Lower steps are larger than q on this scale, so
that 2 q would not cover two of them. A stack has a bad mode if 2 runs or more, but at most a third, are bad (Hampel,
JASA 69, 1974).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.stats.comparison import Table
from pgstrata.analyze.stats.interval import Floats

LEAST_RUNS = 6
LEAST_BAD = 2
MOST_SHARE = 1 / 3
SPREADS = 4.0
NOTABLE = math.log(1.1)
STEPS = 2.5
"""Distance of a bad run below the others, in rounding steps."""
SAME = 1e-9
"""Difference of logarithms below which two runs are the same number."""


@dataclass(frozen=True)
class BadMode:
    """The bad runs of a stack; `loss` is on the scale of the model, below its other runs."""

    stack: str
    bad: int
    runs: int
    loss: float
    blocks: tuple[int, ...]


def bad_modes(names: Sequence[str], table: Table) -> tuple[BadMode, ...]:
    """Return the bad modes of all stacks, in their order."""
    deviation = np.full(table.y.shape, np.nan)
    for k, row in enumerate(table.y):
        if np.isfinite(row).any():
            deviation[k] = row - np.nanmedian(row)
    return tuple(_found(names, table, deviation, STEPS * _rounding(table)))


def _rounding(table: Table) -> float:
    """Return the smallest difference of two runs that are not the same number; 0 if there is none."""
    steps = np.diff(np.unique(table.y[np.isfinite(table.y)]))
    return float(steps[steps > SAME].min(initial=math.inf)) if (steps > SAME).any() else 0.0


def _found(names: Sequence[str], table: Table, deviation: Floats, least: float) -> Iterator[BadMode]:
    for k, own in enumerate(deviation):
        ran = np.isfinite(own)
        runs = int(ran.sum())
        if runs < LEAST_RUNS or (own[ran] < -NOTABLE).sum() < LEAST_BAD:
            continue
        relative = own[ran] - _others(deviation, k)[ran]
        limit = -max(SPREADS * 1.4826 * float(np.median(np.abs(relative))), NOTABLE, least)
        bad = (own[ran] < limit) & (relative < limit)
        count = int(bad.sum())
        if LEAST_BAD <= count <= MOST_SHARE * runs:
            blocks = np.asarray(table.blocks)[ran][bad]
            yield BadMode(names[k], count, runs, -float(np.median(relative[bad])), tuple(blocks.tolist()))


def _others(deviation: Floats, k: int) -> Floats:
    """Return the deviation of the machine: the median deviation of the other stacks in each block, 0 in one without
    any."""
    others = np.sort(np.delete(deviation, k, axis=0), axis=0)  # missing runs come last
    there = np.isfinite(others).sum(axis=0)
    usual = np.zeros(deviation.shape[1])
    columns = np.flatnonzero(there)
    count = there[columns]
    usual[columns] = (others[(count - 1) // 2, columns] + others[count // 2, columns]) / 2
    return usual
