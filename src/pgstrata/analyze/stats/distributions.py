"""Student's t, Fisher's F, the normal and the beta distribution, and Kendall's test: those that the statistics use.

The incomplete beta function I_x(a, b) is the continued fraction of DLMF 8.17.22 (by Lentz's method, as in Thompson &
Barnett, J. Comput. Phys. 64, 1986) with its prefactor by Stirling's series (DLMF 5.11.1) where a or b is large, so that
no digits cancel. Quantiles of t are found by Newton's method on logarithms. Range: degrees of freedom up to 1e6,
compared with scipy to 1e-9 (tests/unit/analyze/test_distributions.py). scipy itself takes 114 MB.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

Values = Any
"""A number, or an array of them: the result has the same shape."""
_LARGE = 10.0
"""From here on Stirling's series of five terms is exact to 1e-14."""
_NORMAL_FROM = 1e9
"""Degrees of freedom of a t that is not told from the normal distribution."""
_TINY = 1e-300
_STEPS = 20_000
_EXACT_PAIRS = 33
"""Values up to which Kendall's test counts permutations."""


def normal_cdf(x: float) -> float:
    """Return P(Z <= x)."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def t_cdf(freedom: Values, t: Values) -> npt.NDArray[np.float64]:
    """Return P(T <= t); NaN without degrees of freedom."""
    return _over(_t_cdf, freedom, t)


@lru_cache(4096)
def t_quantile(freedom: float, p: float) -> float:
    """Return the t with P(T <= t) = p; NaN without degrees of freedom."""
    tail = min(p, 1 - p)
    if not (freedom > 0 and 0 < p < 1) or tail == 0.5:
        return 0.0 if freedom > 0 and p == 0.5 else math.nan
    t = -NormalDist().inv_cdf(tail)
    if freedom < _NORMAL_FROM:
        scale = math.exp(-_log_beta(freedom / 2, 0.5)) / math.sqrt(freedom)
        for _ in range(100):
            own = _t_cdf(freedom, -t)
            density = scale * math.exp(-(freedom + 1) / 2 * math.log1p(t * t / freedom))
            step = math.log(own / tail) * own / (t * density)
            t *= math.exp(min(step, 700))
            if abs(step) < 1e-14:
                break
    return t if p > 0.5 else -t


def f_above(freedom: Values, other: Values, ratio: Values) -> npt.NDArray[np.float64]:
    """Return P(F > ratio); NaN below zero."""
    return _over(_f_above, freedom, other, ratio)


def f_quantile(freedom: float, other: float, p: float) -> float:
    """Return the ratio with P(F <= ratio) = p, by bisection of its logarithm."""
    low, high = -700.0, 700.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _f_above(freedom, other, math.exp(middle)) > 1 - p else (low, middle)
    return math.exp((low + high) / 2)


def beta_above(a: Values, b: Values, x: Values) -> npt.NDArray[np.float64]:
    """Return P(X > x) of a beta distribution."""
    return _over(lambda a, b, x: _beta(b, a, 1 - x, x), a, b, x)


def kendall_rising_p(values: npt.NDArray[np.float64]) -> float:
    """Return p of Kendall's one-sided test that values rise with their index: exact for up to 33 without ties."""
    n = values.size
    signs = np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)]
    counts = np.unique(values, return_counts=True)[1]
    falling = int((signs < 0).sum())
    if counts.max() == 1 and (n <= _EXACT_PAIRS or min(falling, signs.size - falling) <= 1):
        orders = [1]  # permutations by their number of falling pairs
        for size in range(2, n + 1):
            sums = [0] * size + list(accumulate([*orders, *[0] * (size - 1)]))
            orders = [sums[at + size] - sums[at] for at in range(len(orders) + size - 1)]
        return sum(orders[: falling + 1]) / math.factorial(n)
    variance = (n * (n - 1) * (2 * n + 5) - float((counts * (counts - 1) * (2 * counts + 5)).sum())) / 18
    return normal_cdf(-float(signs.sum()) / math.sqrt(variance))


def _over(function: Callable[..., float], *arguments: Values) -> npt.NDArray[np.float64]:
    arrays = np.broadcast_arrays(*(np.asarray(one, dtype=np.float64) for one in arguments))
    found = [function(*values) for values in zip(*(one.ravel().tolist() for one in arrays), strict=True)]
    return np.array(found, dtype=np.float64).reshape(arrays[0].shape)


def _t_cdf(freedom: float, t: float) -> float:
    if not freedom > 0 or math.isnan(t):
        return math.nan
    if freedom >= _NORMAL_FROM or math.isinf(t):
        return normal_cdf(t)
    square = t * t
    tail = 0.5 * _beta(freedom / 2, 0.5, freedom / (freedom + square), square / (freedom + square))
    return tail if t < 0 else 1 - tail


def _f_above(freedom: float, other: float, ratio: float) -> float:
    if not (freedom > 0 and other > 0 and ratio >= 0):
        return math.nan
    if math.isinf(ratio):
        return 0.0
    total = other + freedom * ratio
    return _beta(other / 2, freedom / 2, other / total, freedom * ratio / total)


def _beta(a: float, b: float, x: float, rest: float) -> float:
    """Return I_x(a, b); `rest` is 1 - x without cancellation."""
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        return math.nan
    if x == 0 or rest == 0:
        return float(rest == 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_fraction(b, a, rest, x)
    return _beta_fraction(a, b, x, rest)


def _beta_fraction(a: float, b: float, x: float, rest: float) -> float:
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d, c = 1 / _away(1 + step * d), _away(1 + step / c)
            found *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return found * math.exp(_log_power(a, b, x, rest)) / a


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _log_power(a: float, b: float, x: float, rest: float) -> float:
    """Return log(x^a (1-x)^b / B(a, b))."""
    log_x = math.log(x) if x < 0.5 else math.log1p(-rest)
    log_rest = math.log(rest) if rest < 0.5 else math.log1p(-x)
    if min(a, b) < _LARGE:
        return a * log_x + b * log_rest - _log_beta(a, b)
    # Relative to the mean a / (a + b), where the large terms cancel.
    off = x * b - rest * a
    near = a * _log_near(off / a, x * (a + b) / a) + b * _log_near(-off / b, rest * (a + b) / b)
    return near + math.log(a * b / (2 * math.pi * (a + b))) / 2 + _stirling(a + b) - _stirling(a) - _stirling(b)


def _log_near(off: float, value: float) -> float:
    """Return the logarithm of 1 + off, which is also given as `value`."""
    return math.log1p(off) if abs(off) < 0.5 else math.log(value)


def _log_beta(a: float, b: float) -> float:
    small, large = min(a, b), max(a, b)
    if large < _LARGE:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    grown = large + small  # log(gamma(grown) / gamma(large))
    growth = (grown - 0.5) * math.log1p(small / large) + small * math.log(large) - small
    return math.lgamma(small) - growth - _stirling(grown) + _stirling(large)


def _stirling(z: float) -> float:
    """Return the rest of Stirling's series for log gamma."""
    w = 1 / (z * z)
    return (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188)))) / z
