"""The Hodges-Lehmann estimate, a cross-check of the Huber estimates.

Hodges & Lehmann, Estimates of Location Based on Rank Tests, Ann. Math. Statist. 34 (1963). Paired: the median of the
averages of all pairs of differences (each with itself too); two samples: the median of all differences x - y.
"""

from __future__ import annotations

import numpy as np

from pgstrata.analyze.stats.interval import Floats


def hodges_lehmann(d: Floats) -> float:
    """Return the location of paired differences; nan without any."""
    if not d.size:
        return float("nan")
    i, j = np.triu_indices(d.size)
    return float(np.median((d[i] + d[j]) / 2))


def hodges_lehmann_shift(x: Floats, y: Floats) -> float:
    """Return the shift of x against y, independent samples; nan if one is empty."""
    if not (x.size and y.size):
        return float("nan")
    return float(np.median(x[:, None] - y[None, :]))
