"""Shifts of the level of a growing series: tested after every value, with one bound on all false alarms.

Values of one level are independent, normal with one variance. A segment has m values since the last shift; that the
level changed after the first a of them is one hypothesis for each a, and with b = m - a, n = a b / m, the difference d
of the two means and the residual variance s^2 on nu degrees of freedom, T = d / (s / sqrt n) has the evidence of
`interval`, E_a: the Bayes factor of a t test, whose mean stays 1 however long the level does. So does that of

    E = sum over a of w_a E_a,  w_a = 3 / (a (a + 1)), a = 3, 4, ...  (sum 1; E_a = 1 for those still to come)

and a shift is reported once E reaches 1 / alpha and at least three values lie after the likeliest a (largest E_a). By
Ville's inequality a level that never changes gives a false alarm in at most alpha of all series, whenever they are
tested. The next segment begins at the likeliest a; residuals of earlier segments stay in s^2 and nu.

Shin, Ramdas, Rinaldo: E-detectors, arXiv 2203.03532 (a sum over the moments of a change); Perez-Ortiz, Lardy, de Heide,
Gruenwald: E-statistics, group invariance and anytime-valid testing, Ann. Statist. 52, 2024 (the t test's).

Serially correlated values count less: T^2 is multiplied by (1 - r) / (1 + r), r the lag-1 correlation about the levels
before and after the likeliest a. This approximation is supported by simulation, not by a theorem.

The scatter may grow: where s^2 of the last 30 values about the two levels is 1.4 times that of all or more (0.10 of
F(28, 170)), T has that, on 28 degrees of freedom. The evidence is only the smaller for it.

Finally the moment of each shift is estimated again between its neighbours. E_a / sum of E_a is its posterior there,
with a uniform prior over a; its range is the smallest set of moments around the likeliest with 95 % of the posterior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from pgstrata.analyze.stats.interval import CONFIRM_G, Estimate, Floats
from pgstrata.analyze.stats.serial import LEAST_PAIRS, excess, shrunk

LEAST = 3
"""Minimum number of values on either side of a shift: with two, a bad night and the next one would be a new level
(docs/history.md)."""
LAST = 30
"""Number of last values whose variance is used if it is evidently larger than that of all."""
GROWN = 1.4
"""Ratio of their s^2 to that of all from which it is used: a smaller one would delay every change."""
PLACED = 0.95
EXACT = 1e-12
"""Residual sum relative to that of the shift, below which residuals are rounding."""


@dataclass(frozen=True)
class Shift:
    """A change of level; positions count values from 0."""

    at: int
    """Most likely position of the first value of the new level."""
    earliest: int
    latest: int
    """Range of that position."""
    told: int
    """Position of the value that revealed the shift."""
    estimate: Estimate
    """Level after the shift minus the level before."""


@dataclass(frozen=True)
class _Residuals:
    """Residuals of the segments before the current one."""

    sum: float = 0.0
    nu: int = 0

    def and_of(self, y: Floats) -> _Residuals:
        return _Residuals(self.sum + _scatter(y), self.nu + y.size - 1)


def find_shifts(values: Sequence[float], alpha: float) -> tuple[Shift, ...]:
    """Return every shift detected by the last value; further values never remove one, but may move it."""
    y = np.asarray(values)
    starts, told, before = [0], [], _Residuals()
    for count in range(1, y.size + 1):
        segment = y[starts[-1] : count]
        at = _told(segment, before, alpha)
        if at is not None:
            before = before.and_of(segment[:at])
            starts.append(starts[-1] + at)
            told.append(count - 1)
    return _placed(y, starts[1:], told) if told else ()


def fewest(alpha: float) -> int:
    """Return the minimum number of values for a shift to be detected, however large."""
    count = 2 * LEAST
    while not any(find_shifts([0.0] * a + [1.0] * (count - a), alpha) for a in range(LEAST, count - LEAST + 1)):
        count += 1
    return count


def _told(segment: Floats, before: _Residuals, alpha: float) -> int | None:
    """Return the number of values of the segment before the shift, if there is one."""
    if segment.size < 2 * LEAST:
        return None
    logs = _logs(segment, before)
    r = _remembered(segment, LEAST + int(logs.argmax()))
    logs = _logs(segment, before, r) if r else logs
    at = LEAST + int(logs.argmax())
    enough = segment.size - at >= LEAST
    return at if enough and _evidence(_weights(segment.size) + logs, segment.size) >= -math.log(alpha) else None


def _evidence(weighted: Floats, count: int) -> float:
    """Return the logarithm of E, including future terms: the sum of w_a over a >= m is LEAST / m."""
    return float(np.logaddexp.reduce(np.append(weighted, math.log(LEAST / count))))


def _weights(count: int) -> Floats:
    a = np.arange(LEAST, count)
    return np.asarray(np.log(LEAST / (a * (a + 1.0))))


def _remembered(y: Floats, at: int) -> float:
    """Return the lag-1 correlation of the values about the levels before and after a moment, as in `serial`; never
    below 0."""
    off = np.concatenate([part - part.mean() for part in (y[:at], y[at:])])
    return shrunk(excess(off, levels=2), y.size) if y.size >= LEAST_PAIRS else 0.0


def _logs(y: Floats, before: _Residuals, r: float = 0.0) -> Floats:
    """Return the logarithm of E_a for each a from LEAST to m - 1."""
    m, a = y.size, np.arange(LEAST, y.size)
    sums = y.cumsum()[LEAST - 1 : -1]
    d = (y.sum() - sums) / (m - a) - sums / a
    n = a * (m - a) / m
    between = n * d**2
    variance, nu = _variances(y, between, before)
    t2 = between / variance * (1 - r) / (1 + r)
    return _mixed(
        [-0.5 * np.log1p(n * g) + (nu + 1) / 2 * np.log((nu + t2) / (nu + t2 / (1 + n * g))) for g in CONFIRM_G]
    )


def _variances(y: Floats, between: Floats, before: _Residuals) -> tuple[Floats, Floats]:
    """Return s^2 and nu for each a from LEAST to m - 1, of all values or of the last; `between` is the sum of squares
    explained by a."""
    nu = before.nu + y.size - 2
    whole = (np.maximum(before.sum + _scatter(y) - between, EXACT * between) + np.finfo(float).tiny) / nu
    if y.size <= LAST:
        return whole, np.full(whole.shape, nu)
    last = y[-LAST:]
    a, sums = np.arange(1, LAST), last.cumsum()[:-1]
    apart = a * (LAST - a) / LAST * ((last.sum() - sums) / (LAST - a) - sums / a) ** 2
    of_last = (_scatter(last) - np.append(np.zeros(y.size), apart)[-between.size :]) / (LAST - 2)
    grown = of_last > GROWN * whole
    return np.where(grown, of_last, whole), np.where(grown, LAST - 2, nu)


def _mixed(logs: Sequence[Floats]) -> Floats:
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - math.log(len(logs)))


def _scatter(y: Floats) -> float:
    return float(((y - y.mean()) ** 2).sum())


def _placed(y: Floats, places: Sequence[int], told: Sequence[int]) -> tuple[Shift, ...]:
    """Place each shift between its neighbours, in order; with the scatter of all levels."""
    edges = [0, *places, y.size]
    ranges = []
    for at in range(1, len(edges) - 1):
        low, high = edges[at - 1], edges[at + 1]
        logs = _logs(y[low:high], _left(y, edges[:at], edges[at + 1 :]))[: high - low - 2 * LEAST + 1]
        edges[at] = low + LEAST + int(logs.argmax())
        first, last = _likely(logs)
        ranges.append((low + LEAST + first, low + LEAST + last))
    left = _left(y, edges)
    spans = [y[start:end] for start, end in pairwise(edges)]
    return tuple(
        Shift(at, *where, when, _difference(before, after, left))
        for at, where, when, (before, after) in zip(edges[1:-1], ranges, told, pairwise(spans), strict=True)
    )


def _left(y: Floats, *edges: Sequence[int]) -> _Residuals:
    """Return the residuals of the levels between edges."""
    found = _Residuals()
    for start, end in chain.from_iterable(pairwise(one) for one in edges):
        found = found.and_of(y[start:end])
    return found


def _likely(logs: Floats) -> tuple[int, int]:
    """Return the first and last of the likeliest moments that together have the posterior."""
    posterior = np.exp(logs - np.logaddexp.reduce(logs))
    order = posterior.argsort()[::-1]
    chosen = order[: 1 + int(np.searchsorted(posterior[order].cumsum(), PLACED))]
    return int(chosen.min()), int(chosen.max())


def _difference(before: Floats, after: Floats, left: _Residuals) -> Estimate:
    n = before.size * after.size / (before.size + after.size)
    variance = left.sum / left.nu / n
    return Estimate(float(after.mean() - before.mean()), math.sqrt(variance), float(left.nu), n)
