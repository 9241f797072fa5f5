"""Rare bad modes: a few runs of one stack that lie far below its others, while the machine was as usual.

Robust estimates give such runs little weight, so they do not show them; a user who meets one does not care how rare it
is. With the deviation e of a run from the median of its stack and, in the same block, the median o of the
other stacks' deviations (0 where there are none), r = e - o; a run is bad where both e and r lie below

    -max(4 s, ln 1.1);  s = 1.4826 median|r| of the stack

and a stack has a bad mode where 2 runs or more, but no more than a third, are bad (Hampel, JASA 69, 1974).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.comparison import Table
from pgstrata.analyze.interval import Floats

LEAST_RUNS = 6
LEAST_BAD = 2
MOST_SHARE = 1 / 3
SPREADS = 4.0
NOTABLE = math.log(1.1)


@dataclass(frozen=True)
class BadMode:
    """The bad runs of a stack; `loss` is on the scale of the model, below its other runs."""

    stack: str
    bad: int
    runs: int
    loss: float
    blocks: tuple[int, ...]


def bad_modes(names: Sequence[str], table: Table) -> tuple[BadMode, ...]:
    """Those of all stacks, in their order."""
    deviation = np.full(table.y.shape, np.nan)
    for k, row in enumerate(table.y):
        if np.isfinite(row).any():
            deviation[k] = row - np.nanmedian(row)
    return tuple(_found(names, table, deviation))


def _found(names: Sequence[str], table: Table, deviation: Floats) -> Iterator[BadMode]:
    for k, own in enumerate(deviation):
        ran = np.isfinite(own)
        runs = int(ran.sum())
        if runs < LEAST_RUNS or (own[ran] < -NOTABLE).sum() < LEAST_BAD:
            continue
        relative = own[ran] - _others(deviation, k)[ran]
        limit = -max(SPREADS * 1.4826 * float(np.median(np.abs(relative))), NOTABLE)
        bad = (own[ran] < limit) & (relative < limit)
        count = int(bad.sum())
        if LEAST_BAD <= count <= MOST_SHARE * runs:
            blocks = np.asarray(table.blocks)[ran][bad]
            yield BadMode(names[k], count, runs, -float(np.median(relative[bad])), tuple(blocks.tolist()))


def _others(deviation: Floats, k: int) -> Floats:
    """Deviation of the machine: the median deviation of the other stacks in each block, 0 in one without any."""
    others = np.sort(np.delete(deviation, k, axis=0), axis=0)  # those that are missing come last
    there = np.isfinite(others).sum(axis=0)
    usual = np.zeros(deviation.shape[1])
    columns = np.flatnonzero(there)
    count = there[columns]
    usual[columns] = (others[(count - 1) // 2, columns] + others[count // 2, columns]) / 2
    return usual
