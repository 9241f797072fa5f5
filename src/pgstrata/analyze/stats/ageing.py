"""Trend in the difference of two stacks over a campaign: one of them ages, or warms up.

Blocks remove ageing common to all stacks, and a verdict concerns the mean of all blocks. With the differences d in the
order of their blocks, rho is Spearman's rank correlation (Am. J. Psychol. 15, 1904) of d with that order, and

    t = rho sqrt((n - 2) / (1 - rho^2)) sqrt((1 - r) / (1 + r));  n - 2 degrees of freedom

with r the lag-1 correlation (`serial.py`) of the residuals of the ranks about the Theil-Sen line (`trend.py`), so that
a state which outlasts a block is not taken for a trend (von Storch, Analysis of Climate Variability, 1995, on trends in
noise that remembers). A trend is reported from eight pairs on, at a level of 0.01 over all pairs of the leader.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.stats.distributions import t_cdf
from pgstrata.analyze.stats.interval import Floats
from pgstrata.analyze.stats.serial import LEAST_PAIRS, correlation
from pgstrata.analyze.stats.trend import theil_sen

LEVEL = 0.01


@dataclass(frozen=True)
class Ageing:
    """The line through the differences, on the scale of the model."""

    first: float
    """Difference in the first block, ..."""
    last: float
    pairs: int


def ageing(d: Floats, tests: int) -> Ageing | None:
    """Test the differences, in the order of their blocks, as one of `tests` series; nan marks blocks without both
    runs."""
    at = np.flatnonzero(np.isfinite(d)).astype(np.float64)
    values = d[np.isfinite(d)]
    if at.size < LEAST_PAIRS or _p(values) >= LEVEL / tests:
        return None
    slope = theil_sen(at, values)
    middle = float(np.median(values - slope * at))
    return Ageing(middle + slope * float(at[0]), middle + slope * float(at[-1]), at.size)


def _p(values: Floats) -> float:
    """Two-sided p of no trend."""
    n, placed, order = values.size, ranks(values), np.arange(1.0, values.size + 1)
    if (placed == placed[0]).all():
        return 1.0
    rho = float(np.corrcoef(placed, order)[0, 1])
    if abs(rho) >= 1 - 1e-12:
        return 0.0
    r = correlation(placed - theil_sen(order, placed) * order)
    t = rho * math.sqrt((n - 2) / (1 - rho**2) * (1 - r) / (1 + r))
    return float(2 * t_cdf(n - 2, -abs(t)))


def ranks(values: Floats) -> Floats:
    """Return ranks from 1; equal values share the mean of their ranks."""
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    placed: Floats = (np.cumsum(counts) - (counts - 1) / 2)[at]
    return placed
