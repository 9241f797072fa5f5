"""Steadiness of a run, from its throughput second by second.

Definitions: a missing progress second counts 0, except the last one if the run has transactions that no progress line
reports (a client may end before it prints its last line); CV is the population CV (standard deviation / mean); 15 s
means do not overlap (a rest at the end is left out); a stall is a second below 10 % of the run's median. If the client
reports every N seconds, a report is one value for its N seconds, and a missing one counts 0 for N seconds.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.stats.interval import Floats

MEAN_S = 15
STALL = 0.1
HALF = 0.5
UNTOLD = 0.1
"""In units of the median second: with more transactions than that beyond the progress lines, the last second was no
stall."""


def per_second(t_s: Floats, tps: Floats, duration_s: float, transactions: int, interval_s: int = 1) -> Floats:
    """Return one value per second: the report at the end of its interval, 0 if the client reported nothing (it hung).

    `transactions` of the whole run determine why the last interval is missing: its line was not printed, or the run
    ended within it. In the first case the interval is left out.
    """
    ends = np.rint(t_s / interval_s).astype(int)
    last = max(int(duration_s / interval_s + 0.5), 0)
    values = np.zeros(last)
    inside = (ends >= 1) & (ends <= last) & np.isfinite(tps)
    values[ends[inside] - 1] = tps[inside]
    if inside.any() and ends[inside].max() == last - 1:
        told = float((tps[inside] * np.diff(t_s[inside], prepend=0.0)).sum())
        if transactions - told > UNTOLD * median(tps[inside]):
            values = values[:-1]
    return np.repeat(values, interval_s)


def median(values: Floats) -> float:
    """Return the median; nan if there are no values. For a run of a few seconds `np.median` takes eight times as
    long."""
    if not values.size:
        return math.nan
    low, high = (values.size - 1) // 2, values.size // 2
    placed = np.partition(values, (low, high))
    return float(placed[low] + placed[high]) / 2


def means(tps: Floats, width_s: int = MEAN_S) -> Floats:
    """Return the means of consecutive windows that do not overlap."""
    count = tps.size // width_s
    return np.asarray(tps[: count * width_s].reshape(count, width_s).mean(axis=1))


def coefficient_of_variation(values: Floats) -> float:
    """Return population standard deviation over mean; nan below two values or at mean 0."""
    if values.size < 2:
        return math.nan
    mean = float(values.mean())
    return float(values.std()) / mean if mean > 0 else math.nan


def share_below(tps: Floats, share: float) -> float:
    """Return the share of seconds below `share` of the median (at median 0: of seconds at 0)."""
    if not tps.size:
        return math.nan
    return float((_below(tps, share * median(tps))).mean())


def longest_stall_s(tps: Floats) -> float:
    """Return the largest number of consecutive seconds below 10 % of the median."""
    if not tps.size:
        return math.nan
    slow = _below(tps, STALL * median(tps))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], slow.astype(int), [0]])))
    return float((edges[1::2] - edges[::2]).max()) if edges.size else 0.0


def p1_to_median(tps: Floats) -> float:
    """Return the 1st percentile (linear interpolation) over the median; nan at median 0."""
    middle = median(tps)
    if not middle > 0:
        return math.nan
    at = 0.01 * (tps.size - 1)
    low, high = int(at), min(int(at) + 1, tps.size - 1)
    placed = np.partition(tps, (low, high))
    return float(placed[low] + (at - low) * (placed[high] - placed[low])) / middle


def _below(tps: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    return np.asarray(tps < threshold) if threshold > 0 else np.asarray(tps <= 0)
