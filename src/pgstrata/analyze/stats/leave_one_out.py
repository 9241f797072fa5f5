"""Sums and medians of all values but one, for every value, in the time of a sort.

The sum of the others is the sum before a value plus the sum after it, and not the whole sum less the value, which loses
its digits where one value outweighs the rest. With v_0 <= ... <= v_(n-1) and r the rank of the value that is left out,
the others in order are o_j = v_(j + [j >= r]), and their median is o_((n-2)/2) for even n, the mean of o_((n-3)/2) and
o_((n-1)/2) for odd n. The order of ranks among equal values does not matter: the remaining values are the same.
"""

from __future__ import annotations

import numpy as np

from pgstrata.analyze.stats.interval import Floats


def sums_of_others(values: Floats) -> Floats:
    """Return the sum of the others for each value; nan if another value is nan, 0 for a single value."""
    before = np.concatenate(([0.0], np.cumsum(values)))[:-1]
    after = np.concatenate((np.cumsum(values[::-1])[::-1], [0.0]))[1:]
    return np.asarray(before + after)


def medians_of_others(values: Floats) -> Floats:
    """Return the median of the others for each value; takes at least two finite values."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(values.size, dtype=np.intp)
    rank[order] = np.arange(values.size)
    ordered = values[order]
    low, high = (values.size - 2) // 2, (values.size - 1) // 2
    return np.asarray((ordered[low + (low >= rank)] + ordered[high + (high >= rank)]) / 2)
