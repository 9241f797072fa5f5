"""Difference provable with a number of pairs, and pairs needed for a verdict.

All results follow from the width of the anytime-valid interval with se = sigma / sqrt(n), sigma the standard deviation
of one paired difference (sqrt(2) times that of a run). Rule of thumb for equivalence: 22 (sigma_run / margin)^2 pairs,
at least 32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pgstrata.analyze.stats.distributions import normal_cdf
from pgstrata.analyze.stats.equivalence import LEAST_RUNS
from pgstrata.analyze.stats.interval import (
    ALPHA,
    CONFIRM_G,
    EQUIVALENCE_ALPHA,
    EQUIVALENCE_G,
    Floats,
    Mixture,
    t_multiplier,
    t_multipliers,
)

MOST_PAIRS = 4096
ASSUMED_SIGMA_RUN = 0.03
"""Run-to-run CV of an ordinary quiet server at 300 s; used until this host is measured."""
ASSUMED_WITHIN = 0.10
ASSUMED_TAU_S = 9.0
"""CV of a second within a run, and the number of seconds that make one independent value (lag-1 correlation 0.8)."""


@lru_cache(maxsize=256)
def _widths(alpha: float, g: Mixture) -> Floats:
    """Return the half width of the paired interval at 1 ... MOST_PAIRS pairs, in sigmas of one difference."""
    n = np.arange(1, MOST_PAIRS + 1, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        widths: Floats = np.where(n < 2, np.inf, t_multipliers(n, np.maximum(n - 1, 1), alpha, g)) / np.sqrt(n)
    return widths


def smallest_difference(sigma_pair: float, pairs: int, alpha: float = ALPHA, *, freedom: float = 0.0) -> float:
    """Return the smallest difference (scale of the model) that the interval at that number of pairs excludes; inf below
    3 pairs, or 2 if screening gave their scatter with `freedom` degrees of freedom."""
    if freedom and 2 <= pairs < MOST_PAIRS:
        return sigma_pair * t_multiplier(pairs, pairs - 1 + freedom, alpha, CONFIRM_G) / math.sqrt(pairs)
    return _width(sigma_pair, pairs, alpha, CONFIRM_G)


def smallest_margin(sigma_pair: float, pairs: int, alpha: float = EQUIVALENCE_ALPHA) -> float:
    """Return the smallest margin (scale of the model) within which truly equal stacks can be shown equal."""
    return _width(sigma_pair, pairs, alpha, EQUIVALENCE_G) if pairs >= LEAST_RUNS else math.inf


def _width(sigma_pair: float, pairs: int, alpha: float, g: Mixture) -> float:
    if pairs < 1:
        return math.inf
    return sigma_pair * float(_widths(alpha, g)[min(pairs, MOST_PAIRS) - 1])


def pairs_needed(
    difference: float,
    sigma_pair: float,
    bound: float,
    alpha: float = ALPHA,
    equivalence_alpha: float = EQUIVALENCE_ALPHA,
) -> int | None:
    """Return the total number of pairs for a verdict, if the difference stays the same; None beyond MOST_PAIRS."""
    settled = _widths(alpha, CONFIRM_G) * sigma_pair < abs(difference)
    equal = _widths(equivalence_alpha, EQUIVALENCE_G) * sigma_pair + abs(difference) < bound
    settled |= equal & (np.arange(1, MOST_PAIRS + 1) >= LEAST_RUNS)
    return int(settled.argmax()) + 1 if settled.any() else None


@dataclass(frozen=True)
class Outlook:
    """Expected estimate at the last affordable pair: normal, with that center and spread."""

    center: float
    spread: float
    sigma_pair: float
    pairs: int
    freedom: float = 0.0
    """Degrees of freedom of the scatter in addition to those of the pairs."""

    def chance_of_difference(self, alpha: float = ALPHA) -> float:
        """Return the probability that the interval then excludes no difference."""
        outer = smallest_difference(self.sigma_pair, self.pairs, alpha, freedom=self.freedom)
        if not math.isfinite(outer):
            return 0.0
        spread = max(self.spread, 1e-12)
        return float(normal_cdf((-outer - self.center) / spread) + normal_cdf((self.center - outer) / spread))

    def chance_of_equality(self, bound: float, alpha: float = EQUIVALENCE_ALPHA) -> float:
        """Return the probability that the equivalence interval then lies within the bound."""
        inner = bound - smallest_margin(self.sigma_pair, self.pairs, alpha)
        if not inner > 0:
            return 0.0
        spread = max(self.spread, 1e-12)
        return float(normal_cdf((inner - self.center) / spread) - normal_cdf((-inner - self.center) / spread))
