"""Shifts of the level of a series that grows: looked at after every value, with one bound on false alarms for ever.

Values of one level are independent, normal with one variance. A segment has m values since the last shift; that the
level changed after the first a of them is one hypothesis for each a, and with b = m - a, n = a b / m, the difference d
of the two means and the residual variance s^2 on nu degrees of freedom, T = d / (s / sqrt n) has the evidence of
`interval`, E_a: the Bayes factor of a t test, whose mean stays 1 however long the level does. So does that of

    E = sum over a of w_a E_a,  w_a = 2 / (a (a + 1)), a = 2, 3, ...  (sum 1; E_a = 1 for those still to come)

and a shift is told when E reaches 1 / alpha and two values at least lie after the likeliest a (largest E_a). By Ville's
inequality a level that never changes gives a false alarm in at most alpha of all series, at whatever values one looks.
The next segment begins at the likeliest a; residuals of earlier segments stay in s^2 and nu.

Shin, Ramdas, Rinaldo: E-detectors, arXiv 2203.03532 (a sum over the moments of a change); Perez-Ortiz, Lardy, de Heide,
Gruenwald: E-statistics, group invariance and anytime-valid testing, Ann. Statist. 52, 2024 (the t test's).

When all shifts are told, each is placed anew between its neighbours. E_a / sum of E_a is its posterior there, alike
for all a beforehand; the fewest moments around the likeliest that have 95 % of it are where it may have been.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from pgstrata.analyze.interval import CONFIRM_G, Estimate, Floats

LEAST = 2
"""Values on either side of a shift."""
PLACED = 0.95
EXACT = 1e-12
"""Residual sum over that of the shift, below which residuals are rounding."""


@dataclass(frozen=True)
class Shift:
    """A change of level; places count values from 0."""

    at: int
    """The likeliest first value of the new level."""
    earliest: int
    latest: int
    """Where that value may be."""
    told: int
    """The value with which it was told."""
    estimate: Estimate
    """The level after it less the one before."""


@dataclass(frozen=True)
class _Residuals:
    """Of the segments before the one that is looked at."""

    sum: float = 0.0
    nu: int = 0

    def and_of(self, y: Floats) -> _Residuals:
        return _Residuals(self.sum + _scatter(y), self.nu + y.size - 1)


def find_shifts(values: Sequence[float], alpha: float) -> tuple[Shift, ...]:
    """Every shift that is told by the last value; none is taken back by further ones, but it may be placed anew."""
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
    """Values without which no shift is told, however large."""
    count = 2 * LEAST
    while not any(find_shifts([0.0] * a + [1.0] * (count - a), alpha) for a in range(LEAST, count - LEAST + 1)):
        count += 1
    return count


def _told(segment: Floats, before: _Residuals, alpha: float) -> int | None:
    """Values of the segment before the shift, if there is one."""
    if segment.size < 2 * LEAST:
        return None
    logs = _logs(segment, before)
    at = LEAST + int(logs.argmax())
    enough = segment.size - at >= LEAST
    return at if enough and _evidence(_weights(segment.size) + logs, segment.size) >= -math.log(alpha) else None


def _evidence(weighted: Floats, count: int) -> float:
    """Its logarithm, with what is still to come: sum of w_a over a >= m is 2 / m."""
    return float(np.logaddexp.reduce(np.append(weighted, math.log(LEAST / count))))


def _weights(count: int) -> Floats:
    a = np.arange(LEAST, count)
    return np.asarray(np.log(LEAST / (a * (a + 1.0))))


def _logs(y: Floats, before: _Residuals) -> Floats:
    """Logarithm of E_a for each a from LEAST to m - 1."""
    m, a = y.size, np.arange(LEAST, y.size)
    sums = y.cumsum()[LEAST - 1 : -1]
    d = (y.sum() - sums) / (m - a) - sums / a
    n = a * (m - a) / m
    between, nu = n * d**2, before.nu + m - 2
    left = np.maximum(before.sum + _scatter(y) - between, EXACT * between) + np.finfo(float).tiny
    t2 = between / (left / nu)
    return _mixed(
        [-0.5 * np.log1p(n * g) + (nu + 1) / 2 * np.log((nu + t2) / (nu + t2 / (1 + n * g))) for g in CONFIRM_G]
    )


def _mixed(logs: Sequence[Floats]) -> Floats:
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - math.log(len(logs)))


def _scatter(y: Floats) -> float:
    return float(((y - y.mean()) ** 2).sum())


def _placed(y: Floats, places: Sequence[int], told: Sequence[int]) -> tuple[Shift, ...]:
    """Each between its neighbours, from the first on; with the scatter of all levels."""
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
    """Of the levels between edges."""
    found = _Residuals()
    for start, end in chain.from_iterable(pairwise(one) for one in edges):
        found = found.and_of(y[start:end])
    return found


def _likely(logs: Floats) -> tuple[int, int]:
    """First and last of the likeliest moments that have the posterior together."""
    posterior = np.exp(logs - np.logaddexp.reduce(logs))
    order = posterior.argsort()[::-1]
    chosen = order[: 1 + int(np.searchsorted(posterior[order].cumsum(), PLACED))]
    return int(chosen.min()), int(chosen.max())


def _difference(before: Floats, after: Floats, left: _Residuals) -> Estimate:
    n = before.size * after.size / (before.size + after.size)
    variance = left.sum / left.nu / n
    return Estimate(float(after.mean() - before.mean()), math.sqrt(variance), float(left.nu), n)
