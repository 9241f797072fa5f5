"""How steady a run was, from its throughput second by second.

Definitions: a missing progress second counts 0, except the last one where transactions were made that no progress
line reports (pgbench may end before it prints its last line); CV is the population CV (standard deviation / mean);
15 s means do not overlap (a rest at the end is left out); a stall is a second below 10 % of the run's median.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MEAN_S = 15
STALL = 0.1
HALF = 0.5
UNTOLD = 0.1
"""Of the median second: with more transactions than that beyond the progress lines, the last second was no stall."""


def per_second(t_s: Floats, tps: Floats, duration_s: float, transactions: int) -> Floats:
    """One value a second: the report at second t, 0 where pgbench reported nothing (it hung).

    `transactions` of the whole run tell whether the last second alone is missing because its line was not printed;
    it is left out then.
    """
    seconds = np.rint(t_s).astype(int)
    last = max(int(duration_s + 0.5), 0)
    values = np.zeros(last)
    inside = (seconds >= 1) & (seconds <= last) & np.isfinite(tps)
    values[seconds[inside] - 1] = tps[inside]
    if inside.any() and seconds[inside].max() == last - 1:
        told = float((tps[inside] * np.diff(t_s[inside], prepend=0.0)).sum())
        if transactions - told > UNTOLD * float(np.median(tps[inside])):
            return values[:-1]
    return values


def means(tps: Floats, width_s: int = MEAN_S) -> Floats:
    """Means of consecutive windows that do not overlap."""
    count = tps.size // width_s
    return np.asarray(tps[: count * width_s].reshape(count, width_s).mean(axis=1))


def coefficient_of_variation(values: Floats) -> float:
    """Population standard deviation over mean; nan below two values or at mean 0."""
    if values.size < 2:
        return math.nan
    mean = float(values.mean())
    return float(values.std()) / mean if mean > 0 else math.nan


def share_below(tps: Floats, share: float) -> float:
    """Share of seconds below `share` of the median (at median 0: of seconds at 0)."""
    if not tps.size:
        return math.nan
    median = float(np.median(tps))
    return float((_below(tps, share * median)).mean())


def longest_stall_s(tps: Floats) -> float:
    """Most consecutive seconds below 10 % of the median."""
    if not tps.size:
        return math.nan
    slow = _below(tps, STALL * float(np.median(tps)))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], slow.astype(int), [0]])))
    return float((edges[1::2] - edges[::2]).max()) if edges.size else 0.0


def p1_to_median(tps: Floats) -> float:
    """1st percentile (linear interpolation) over median; nan at median 0."""
    if not tps.size:
        return math.nan
    median = float(np.median(tps))
    return float(np.percentile(tps, 1)) / median if median > 0 else math.nan


def _below(tps: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    return np.asarray(tps < threshold) if threshold > 0 else np.asarray(tps <= 0)
