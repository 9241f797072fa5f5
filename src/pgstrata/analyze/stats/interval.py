"""The anytime-valid t interval: the one interval of every comparison.

Lindon, Ham, Tingley, Bojinov: Anytime-Valid Linear Models and Regression Adjusted Causal Inference in Randomized
Experiments, arXiv 2210.08589. The interval may be inspected, and the campaign stopped or extended, at any time. With G
= 1 + n g and T = difference / se, the evidence against a difference is

    E_g = sqrt(1 / G) ((nu + T^2) / (nu + T^2 / G)) ** ((nu + 1) / 2)

whose mean is at most 1 at any look if that is the true difference. So is the mean of E_g over several g (Robbins, Ann.
Math. Statist. 41, 1970: the method of mixtures). The interval holds every difference against which that mean is
below 1 / alpha: estimate +- t se, unbounded while no T reaches that. In u = T^2 / (nu + T^2) the mean is increasing,

    mean of sqrt(1 / G) (1 - u (1 - 1 / G)) ** (-(nu + 1) / 2) = 1 / alpha,  t = sqrt(nu u / (1 - u))

With one g that is u = (1 - (alpha / sqrt(G)) ** (2 / (nu + 1))) / (1 - 1 / G). With several, each g alone at its share
of alpha bounds u from above, and Newton's method from there comes down to it, because the logarithm of the mean is
convex in u; arrays are solved by halving.

`g` sets the effect size for which the interval is tightest, as variance of the true difference in variances of one
pair: a large g pays off with large effects and few runs, a small one with small effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.stats.distributions import t_cdf, t_quantile

Floats = npt.NDArray[np.float64]

ALPHA = 0.05
Mixture = tuple[float, ...]
"""Values of g with equal weights."""
SCREEN_G: Mixture = (5.0,)
CONFIRM_G: Mixture = (1.0, 16.0)
"""For a difference: effects of 1 and of 4 standard deviations of a pair."""
DECLARED_G: Mixture = (4.0,)
"""For several declared pairs, whose scatter has many degrees of freedom: effects of 2. With eight stacks the interval
is 5 % tighter at the third pair, 1 % wider at the 60th. A single pair needs a larger g at first, and so do two."""
EQUIVALENCE_ALPHA = 0.10
EQUIVALENCE_G: Mixture = (0.1,)
HALVINGS = 60
"""Number of halvings until u has all of its digits."""
CLOSE = 1e-14
"""Step of Newton's method, as a share of u, that is negligible."""
_LARGEST = 700.0
"""Largest logarithm of a float."""


@dataclass(frozen=True)
class Estimate:
    """A difference (or mean) on the scale of the model, with its standard error; `n` counts pairs or runs."""

    value: float
    se: float
    nu: float
    n: float


@dataclass(frozen=True)
class Interval:
    """Bounds on the scale of the model; infinite while nothing is known."""

    low: float
    high: float
    level: float

    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def beyond_zero(self, value: float) -> Interval:
        """Return the part on the side of zero on which `value` lies."""
        low, high = (max(self.low, 0.0), self.high) if value > 0 else (self.low, min(self.high, 0.0))
        return Interval(low, high, self.level)

    def hull(self, other: Interval) -> Interval:
        """Return the smallest interval that contains both."""
        return Interval(min(self.low, other.low), max(self.high, other.high), self.level)

    def inside(self, bound: float) -> bool:
        """Return True if all of it lies in (-bound, bound)."""
        return -bound < self.low and self.high < bound


def t_multiplier(n: float, nu: float, alpha: float, g: Mixture) -> float:
    """Return the half width of the interval in standard errors; infinite while it is unbounded."""
    if not (n > 0 and nu > 0):
        return math.inf
    power = (nu + 1) / 2
    terms = [(-0.5 * math.log1p(n * one), n * one / (1 + n * one)) for one in g]
    wanted = math.log(len(g) / alpha)
    share = min(-math.expm1((log - wanted) / power) / shrink for log, shrink in terms)
    if len(g) > 1:
        share = _descended(min(share, 1.0), terms, power, wanted)
    return math.sqrt(nu * share / (1 - share)) if share < 1 else math.inf


def _descended(share: float, terms: Sequence[tuple[float, float]], power: float, wanted: float) -> float:
    """Return where the sum of the terms equals `wanted` (logarithms), starting at a share where it is larger; 1 if
    nowhere."""
    for _ in range(HALVINGS):
        logs = [log - power * math.log1p(-share * shrink) for log, shrink in terms]
        largest = max(logs)
        weights = [math.exp(log - largest) for log in logs]
        total = sum(weights)
        over = largest + math.log(total) - wanted
        if share == 1 and over <= 0:
            return 1.0
        slopes = (w * shrink / (1 - share * shrink) for w, (_, shrink) in zip(weights, terms, strict=True))
        step = over * total / (power * sum(slopes))
        share -= step
        if abs(step) < CLOSE * share:
            break
    return share


def t_multipliers(n: Floats, nu: Floats, alpha: float, g: Mixture) -> Floats:
    """Vectorised `t_multiplier`; n and nu must be positive or nan (which gives infinity)."""
    big_g = 1 + np.outer(g, n)
    power, wanted = (nu + 1) / 2, len(g) / alpha

    def evidence(share: Floats) -> Floats:
        logs = -0.5 * np.log(big_g) - power * np.log1p(-share * (1 - 1 / big_g))
        return np.asarray(np.exp(np.minimum(logs, _LARGEST)).sum(axis=0))

    low, high = np.zeros(n.shape), np.ones(n.shape)
    bounded = evidence(high) > wanted
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        over = evidence(middle) > wanted
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    bounded &= high < 1
    return np.where(bounded, np.sqrt(nu * high / np.where(bounded, 1 - high, 1.0)), np.inf)


def interval(estimate: Estimate, alpha: float, g: Mixture) -> Interval:
    """Return the two-sided interval at level 1 - alpha."""
    half = t_multiplier(estimate.n, estimate.nu, alpha, g) * estimate.se
    if not math.isfinite(half) or not math.isfinite(estimate.value):
        return Interval(-math.inf, math.inf, 1 - alpha)
    return Interval(estimate.value - half, estimate.value + half, 1 - alpha)


def t_interval(estimate: Estimate, alpha: float) -> Interval:
    """Return Student's interval, two-sided at level 1 - alpha: it holds at one look that was declared beforehand."""
    half = float(t_quantile(estimate.nu, 1 - alpha / 2)) * estimate.se if estimate.nu > 0 else math.inf
    if not math.isfinite(half):
        return Interval(-math.inf, math.inf, 1 - alpha)
    return Interval(estimate.value - half, estimate.value + half, 1 - alpha)


def t_p(estimate: Estimate) -> float:
    """Return the p value dual to `t_interval`."""
    if not (estimate.nu > 0 and estimate.se > 0):
        return 1.0
    return float(2 * t_cdf(estimate.nu, -abs(estimate.value / estimate.se)))


def anytime_p(estimate: Estimate, g: Mixture) -> float:
    """Return p = min(1, 1 / mean over g of E), the interval's dual."""
    if not (estimate.nu > 0 and estimate.n > 0 and estimate.se > 0):
        return 1.0
    t2 = (estimate.value / estimate.se) ** 2
    if not math.isfinite(t2):
        return 1.0
    share = t2 / (estimate.nu + t2)
    power = (estimate.nu + 1) / 2
    logs = [
        -0.5 * math.log1p(estimate.n * one) - power * math.log1p(-share * (1 - 1 / (1 + estimate.n * one))) for one in g
    ]
    largest = max(logs)
    mean = largest + math.log(sum(math.exp(one - largest) for one in logs) / len(logs))
    return math.exp(min(0.0, -mean))
