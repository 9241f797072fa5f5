"""Trend of throughput within a run: Theil-Sen slope per run, tested across runs.

Sen, Estimates of the Regression Coefficient Based on Kendall's Tau, JASA 63 (1968): the median of the slopes between
all pairs of points. One slope is one observation of a run (seconds are far from independent); a t test of the slopes of
its runs shows if a stack has a trend.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.stats.distributions import t_cdf
from pgstrata.analyze.stats.interval import Floats
from pgstrata.analyze.stats.jitter import MEAN_S, means, median

_ENOUGH_MEANS = 8
_MOST_POINTS = 400


def theil_sen(t: Floats, y: Floats) -> float:
    """Return the median slope; nan below 2 points."""
    if t.size < 2:
        return math.nan
    i, j = _pairs(t.size)
    return median((y[j] - y[i]) / (t[j] - t[i]))


@lru_cache(maxsize=4)
def _pairs(points: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the indices of all pairs; most runs of a campaign have as many points as the others."""
    return np.triu_indices(points, k=1)


def trend_per_hour(tps: Floats) -> float:
    """Return the slope of one run as share of its median per hour, from 15 s means (from seconds if the run is
    short)."""
    width = MEAN_S if tps.size >= _ENOUGH_MEANS * MEAN_S else 1
    while tps.size // width > _MOST_POINTS:
        width *= 2
    y: Floats = means(tps, width)
    middle = median(y)
    if not middle > 0:
        return math.nan
    return theil_sen(np.arange(0, y.size * width, width, dtype=np.float64), y) / middle * 3600


def trend_p(slopes: Floats) -> float:
    """Return the two-sided p of no trend, t test across runs; 1 below 3 runs, which are too few for a test."""
    slopes = slopes[np.isfinite(slopes)]
    if slopes.size < 3:
        return 1.0
    se = float(slopes.std(ddof=1)) / math.sqrt(slopes.size)
    if se == 0:
        return 1.0 if float(slopes.mean()) == 0 else 0.0
    return float(2 * t_cdf(slopes.size - 1, -abs(float(slopes.mean())) / se))
