"""Moments at which the level of throughput changed: PELT on 15 s means.

Killick, Fearnhead & Eckley, Optimal Detection of Changepoints with a Linear Computational Cost, JASA 107 (2012), cost
of a changed mean, penalty 10 ln n in units of the noise's variance (from the differences of neighbours). Seconds are
not used: their serial correlation causes false alarms.
"""

from __future__ import annotations

import math

import numpy as np

from pgstrata.analyze.stats.interval import Floats
from pgstrata.analyze.stats.jitter import MEAN_S, means

PENALTY = 10.0
_ENOUGH_MEANS = 8
_MIN_SEGMENT = 2


def changepoints_s(tps: Floats) -> tuple[float, ...]:
    """Return the seconds from the start of the run at which new levels begin."""
    y = means(tps)
    if y.size < _ENOUGH_MEANS:
        return ()
    return tuple(float(MEAN_S * at) for at in pelt(y, PENALTY * math.log(y.size) * _noise(y)))


def _noise(y: Floats) -> float:
    """Return the variance of the noise: robust, from differences of neighbours, so that a step does not count as
    noise."""
    differences = np.diff(y)
    robust = (1.4826 * float(np.median(np.abs(differences)))) ** 2 / 2
    return max(robust, 1e-12 * float(y.mean()) ** 2, 1e-300)


def pelt(y: Floats, penalty: float) -> tuple[int, ...]:
    """Return the starts of the second and later segments of the best partition; each segment costs `penalty`."""
    n = y.size
    sums = np.concatenate([[0.0], np.cumsum(y)])
    squares = np.concatenate([[0.0], np.cumsum(y**2)])
    best = np.full(n + 1, math.inf)
    best[0] = -penalty
    previous = np.zeros(n + 1, dtype=int)
    candidates = np.array([0])
    for end in range(_MIN_SEGMENT, n + 1):
        length = end - candidates
        cost = squares[end] - squares[candidates] - (sums[end] - sums[candidates]) ** 2 / length
        total = best[candidates] + cost
        at = int(total.argmin())
        best[end] = total[at] + penalty
        previous[end] = candidates[at]
        # A start that is beaten by more than the penalty never becomes the last change again.
        candidates = np.append(candidates[total <= best[end]], end - _MIN_SEGMENT + 1)
        candidates = candidates[np.isfinite(best[candidates])]
    starts: list[int] = []
    end = n
    while previous[end] > 0:
        end = int(previous[end])
        starts.append(end)
    return tuple(reversed(starts))
