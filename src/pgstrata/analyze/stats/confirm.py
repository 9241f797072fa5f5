"""Stage 2: the location of paired differences from fresh pairs.

Huber, Robust Statistics (1981), chapter 6: M-estimate m of the paired log differences d with c = 2. Start at the
median; s = 1.4826 median|d - m| sqrt(n / (n - 1)), recomputed each iteration; with q = share of |r| <= 2s,

    kappa = 1 + (1 - q) / (n q);  se^2 = kappa^2 sum(min(|r|, 2s)^2) / ((n - 1) q^2 n);  nu = n - 1
"""

from __future__ import annotations

import math

import numpy as np

from pgstrata.analyze.stats.interval import Estimate, Floats

ITERATIONS = 100
TOLERANCE = 1e-10
_NO_SPREAD = 1e-11
_SMALLEST_VARIANCE = 1e-12


def paired_location(d: Floats) -> Estimate:
    """Return the location of the differences, its standard error and degrees of freedom; se is nan below 2 pairs."""
    n = d.size
    if n < 2:
        return Estimate(float(d[0]) if n else math.nan, math.nan, math.nan, n)
    m, s = _huber(d)
    if s <= _NO_SPREAD:
        variance = max(float(d.var(ddof=1)), _SMALLEST_VARIANCE)
        return Estimate(float(d.mean()), math.sqrt(variance / n), n - 1, n)
    size = np.abs(d - m)
    q = float((size <= 2 * s).mean())
    kappa = 1 + (1 - q) / (n * q)
    squares = float((np.minimum(size, 2 * s) ** 2).sum())
    return Estimate(m, kappa * math.sqrt(squares / ((n - 1) * n)) / q, n - 1, n)


def _huber(d: Floats) -> tuple[float, float]:
    n = d.size
    half = n // 2
    order = (half,) if n % 2 else (half - 1, half)
    inflation = 1.4826 * math.sqrt(n / (n - 1))
    ordered = np.partition(d, order)
    m = float(ordered[order[0]] + ordered[order[-1]]) / 2
    weight, s = np.ones(n), 0.0
    for _ in range(ITERATIONS):
        size = np.abs(d - m)
        ordered = np.partition(size, order)
        s = inflation * float(ordered[order[0]] + ordered[order[-1]]) / 2
        if s <= _NO_SPREAD:
            break
        new = np.minimum(1.0, 2 * s / np.maximum(size, 1e-300))
        m = float(new @ d / new.sum())
        change = float(np.abs(new - weight).max())
        weight = new
        if change < TOLERANCE:
            break
    return m, s
