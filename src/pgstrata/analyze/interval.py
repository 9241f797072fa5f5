"""The anytime-valid t interval: the one interval of every comparison.

Lindon, Ham, Tingley, Bojinov: Anytime-Valid Linear Models and Regression Adjusted Causal Inference in Randomized
Experiments, arXiv 2210.08589. The interval may be looked at, and the campaign stopped or extended, at any time:

    G = 1 + n g;  Q = (sqrt(G) / alpha) ** (2 / (nu + 1))
    t = inf if Q >= G else sqrt(nu (Q - 1) / (1 - Q / G));  interval = estimate +- t se

`g` sets the sample size at which the interval is tightest: a large g pays off with few runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ALPHA = 0.05
SCREEN_G = 5.0
CONFIRM_G = 1.0
EQUIVALENCE_ALPHA = 0.10
EQUIVALENCE_G = 0.1


@dataclass(frozen=True)
class Estimate:
    """A difference (or mean) on the scale of the model, with its standard error; `n` counts pairs or runs."""

    value: float
    se: float
    nu: float
    n: float


@dataclass(frozen=True)
class Interval:
    """Bounds on the scale of the model; infinite while nothing can be said."""

    low: float
    high: float
    level: float

    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def inside(self, bound: float) -> bool:
        """Whether all of it lies in (-bound, bound)."""
        return -bound < self.low and self.high < bound


def t_multiplier(n: float, nu: float, alpha: float, g: float) -> float:
    """Half width of the interval in standard errors; infinite while it is unbounded."""
    if not (n > 0 and nu > 0):
        return math.inf
    big_g = 1 + n * g
    q = math.exp(2 / (nu + 1) * (0.5 * math.log(big_g) - math.log(alpha)))
    return math.sqrt(nu * (q - 1) / (1 - q / big_g)) if q < big_g else math.inf


def t_multipliers(n: Floats, nu: Floats, alpha: float, g: float) -> Floats:
    """`t_multiplier` of arrays; n and nu must be positive or nan (which gives infinity)."""
    big_g = 1 + n * g
    q = np.exp(2 / (nu + 1) * (0.5 * np.log(big_g) - math.log(alpha)))
    bounded = q < big_g
    room = np.where(bounded, 1 - q / big_g, 1.0)
    return np.where(bounded, np.sqrt(nu * (q - 1) / room), np.inf)


def interval(estimate: Estimate, alpha: float, g: float) -> Interval:
    """The two-sided interval at level 1 - alpha."""
    half = t_multiplier(estimate.n, estimate.nu, alpha, g) * estimate.se
    if not math.isfinite(half) or not math.isfinite(estimate.value):
        return Interval(-math.inf, math.inf, 1 - alpha)
    return Interval(estimate.value - half, estimate.value + half, 1 - alpha)


def anytime_p(estimate: Estimate, g: float) -> float:
    """p = min(1, sqrt(G) ((nu + T^2/G) / (nu + T^2)) ** ((nu + 1) / 2)), T = value / se: the interval's dual."""
    if not (estimate.nu > 0 and estimate.n > 0 and estimate.se > 0):
        return 1.0
    big_g = 1 + estimate.n * g
    t2 = (estimate.value / estimate.se) ** 2
    if not math.isfinite(t2):
        return 1.0
    log_p = 0.5 * math.log(big_g)
    log_p += (estimate.nu + 1) / 2 * (math.log(estimate.nu + t2 / big_g) - math.log(estimate.nu + t2))
    return math.exp(min(0.0, log_p))
