"""Two modes among the differences of a pair, as of builds that come out faster or slower.

The robust estimate takes the first runs of a second mode for lost ones. The n sorted differences are split where the
squares within both parts, S, are least (k-means of two means; Hartigan, Clustering Algorithms, 1975, chapter 4). With
the standard error and the degrees of freedom of the estimate, of which f = nu - (n - 1) come from other runs than those
of the pair, the parts are modes if the distance of their means is above

    3.5 sqrt((S + f n se^2) / (n - 2 + f))

and the smaller one holds one difference in eight or more: fewer are lost runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.stats.interval import Estimate, Floats

LEAST_PAIRS = 4
LEAST_SHARE = 1 / 8
SPREADS = 3.5
"""With 3, eight stacks against a baseline need more runs; with 4, more false claims remain (docs/statistics.md)."""


@dataclass(frozen=True)
class TwoModes:
    """Means of the two parts, on the scale of the model, and their numbers of differences."""

    low: float
    high: float
    below: int
    above: int

    @property
    def distance(self) -> float:
        return self.high - self.low


def two_modes(d: Floats, estimate: Estimate) -> TwoModes | None:
    """Return the two modes of differences, of which that is the estimate; None if they have one."""
    n = d.size
    if n < LEAST_PAIRS:
        return None
    ordered, below = np.sort(d), np.arange(1, n)
    sums = np.cumsum(ordered)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (n - below)
    within = float(ordered @ ordered) - below * low**2 - (n - below) * high**2
    at = int(np.argmin(within))
    found = TwoModes(float(low[at]), float(high[at]), at + 1, n - at - 1)
    shared = max(estimate.nu - (n - 1), 0.0)
    squares = max(float(within[at]), 0.0) + shared * n * estimate.se**2
    apart = found.distance > SPREADS * math.sqrt(squares / (n - 2 + shared))
    return found if apart and min(found.below, found.above) >= LEAST_SHARE * n else None
