"""Capacity under a latency objective: the highest rate that a stack sustains within a limit on its latency.

A rate meets the objective when a percentile of the latency, counted from the scheduled start, is within the limit, less
than one per cent of the transactions were late or skipped, and the schedule lag does not rise during the run. The
percentile of a run is known if ten transactions lie beyond it; a run with fewer that seems to meet the objective is no
evidence. The search bisects on the logarithm of the rate until the bracket is 2.5 % wide; the answer is then confirmed
by runs interleaved between stacks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.stats.distributions import kendall_rising_p
from pgstrata.record.decision import OpenLoop

RESOLUTION = 0.025
FAILED_SHARE = 0.01
RISING_P = 0.01
BEYOND = 10
"""Transactions beyond a percentile from which on the percentile is known."""


def least_transactions(percentile: str) -> int:
    """Return the minimum number of transactions in a run for that percentile: 1000 for `p99`, 10000 for `p999`."""
    digits = percentile.removeprefix("p")
    return round(BEYOND / (1 - int(digits) / 10.0 ** len(digits)))


def meets(objective_ms: float, result: OpenLoop) -> bool:
    """Return True if a run met the objective."""
    within = result.latency_ms <= objective_ms
    return within and result.failed_share < FAILED_SHARE and not result.lag_rising


def is_lag_rising(lag_ms: Sequence[float]) -> bool:
    """Return True if the schedule lag of a run grows: Mann-Kendall by Kendall's tau against time, one-sided, p < 0.01.

    `lag_ms` has one mean per second. Ten-second means are tested, because neighbouring seconds depend on each other.
    """
    values = np.asarray(lag_ms, dtype=float)
    width = max(1, min(10, values.size // 8))
    count = values.size // width
    if count < 4:
        return False
    means = values[: count * width].reshape(count, width).mean(axis=1)
    if np.ptp(means) == 0:
        return False
    return bool(kendall_rising_p(means) < RISING_P)


def next_rate(objective_ms: float, results: Sequence[OpenLoop], start_tps: float) -> float | None:
    """Return the rate to try next, or None if the bracket is narrower than `RESOLUTION`.

    Without a failing rate the last good one is raised by half; without a good one the last failing one is halved.
    """
    good = [r.rate_tps for r in results if meets(objective_ms, r)]
    bad = [r.rate_tps for r in results if not meets(objective_ms, r)]
    if not results:
        return start_tps
    if not bad:
        return max(good) * 1.5
    low = max((g for g in good if g < min(bad)), default=None)
    if low is None:
        return min(bad) / 2 if min(bad) > start_tps / 1024 else None
    high = min(b for b in bad if b > low)
    return None if high / low - 1 <= RESOLUTION else math.sqrt(low * high)


@dataclass(frozen=True)
class Bracket:
    """The rates between which the capacity lies, by all runs: every run at `low_tps` and below met the objective, every
    run at `high_tps` and above missed it."""

    low_tps: float | None
    """None if no rate below every failing one met the objective."""
    high_tps: float | None
    """None if no rate above every good one failed."""
    runs: int
    """Number of runs at the lower end; at the upper end without a lower one."""


def bracket(objective_ms: float, results: Sequence[OpenLoop]) -> Bracket:
    """Return the bracket of a stack's runs. Runs that contradict one another, a rate that failed below one that did
    not, widen it."""
    low = capacity_tps(objective_ms, results)
    good = max((r.rate_tps for r in results if meets(objective_ms, r)), default=0.0)
    high = min((r.rate_tps for r in results if not meets(objective_ms, r) and r.rate_tps > good), default=None)
    return Bracket(low, high, sum(r.rate_tps == (high if low is None else low) for r in results))


def capacity_tps(objective_ms: float, results: Sequence[OpenLoop]) -> float | None:
    """Return the highest rate below every failing one that met the objective; None if no rate did."""
    bad = min((r.rate_tps for r in results if not meets(objective_ms, r)), default=math.inf)
    return max((r.rate_tps for r in results if meets(objective_ms, r) and r.rate_tps < bad), default=None)
