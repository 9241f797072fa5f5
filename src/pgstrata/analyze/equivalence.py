"""Equality within a margin, and the verdict on a pair.

Two one-sided tests as an interval (Schuirmann 1987): the 90 % interval inside (-bound, bound), here with the
anytime-valid interval (g = 0.1, finite from 9 pairs). *Equal* wins over a proven difference: a proven difference
that is smaller than the margin does not matter by the user's own declaration.

A robust estimate gives little weight to rare bad runs, which users notice. So it must hold for the plain mean too,

    mean(d) +- t(1 - 1.5 alpha/2; n - 1) sd(d) / sqrt(n)  inside (-bound, bound)

(Welch's form where the runs are not paired), and, where more runs can be made, over enough of them that a bad
mode of one run in ten would have shown: 0.9^32 = 0.034.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pgstrata.analyze.interval import (
    ALPHA,
    CONFIRM_G,
    EQUIVALENCE_ALPHA,
    EQUIVALENCE_G,
    Estimate,
    Floats,
    Interval,
    Mixture,
    anytime_p,
    interval,
    t_interval,
    t_p,
)

Verdict = Literal["better", "worse", "equal", "undecided"]

LEAST_RUNS = 32
"""Runs of each stack before two are called equal in a campaign, which can go on. Imports cannot."""
MEAN_SHARE = 1.5
"""By simulation: 1 finds fewer than 90 % of the equal pairs within 60 pairs, and 2 calls a stack with rare bad runs
equal in more than 5 % of campaigns (docs/statistics.md)."""


@dataclass(frozen=True)
class PairVerdict:
    """A pair on the scale of the model; `better` when the first has the higher value."""

    estimate: Estimate
    interval: Interval
    """Of the difference."""
    equivalence: Interval
    mean: Interval
    """Of the plain mean of the difference."""
    enough: bool
    """Whether there are enough runs to call it equal."""
    p: float
    """Of no difference, at any look or at the one look."""
    verdict: Verdict
    one_look: bool
    """Whether it holds for a number of blocks that was declared beforehand, and for no other."""

    @property
    def decided(self) -> bool:
        return self.verdict != "undecided"

    @property
    def acceptable_bound(self) -> float:
        """The smallest margin, on the scale of the model, within which the pair is equal already."""
        bounds = (self.equivalence.low, self.equivalence.high, self.mean.low, self.mean.high)
        return max(abs(b) for b in bounds) if self.enough else math.inf


def mean_of_differences(d: Floats) -> Estimate:
    """The plain mean of paired differences; se is nan below 2."""
    n = d.size
    se = float(d.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(float(d.mean()) if n else math.nan, se, n - 1, n)


def difference_of_means(x: Floats, y: Floats) -> Estimate:
    """Of runs that are not paired; Welch (Biometrika 34, 1947). n is the smaller number of runs."""
    n = min(x.size, y.size)
    if n < 2:
        return Estimate(math.nan, math.nan, math.nan, n)
    a, b = float(x.var(ddof=1)) / x.size, float(y.var(ddof=1)) / y.size
    total = a + b
    nu = total**2 / (a**2 / (x.size - 1) + b**2 / (y.size - 1)) if total > 0 else float(x.size + y.size - 2)
    return Estimate(float(x.mean() - y.mean()), math.sqrt(total), nu, n)


def judge_pair(
    estimate: Estimate,
    bound: float,
    mean: Estimate,
    *,
    least_runs: int = LEAST_RUNS,
    alpha: float = ALPHA,
    g: Mixture = CONFIRM_G,
    equivalence_alpha: float = EQUIVALENCE_ALPHA,
    different: bool | None = None,
    one_look: bool = False,
) -> PairVerdict:
    """The verdict on one pair.

    `different` overrides what the interval says (Holm over several pairs); an interval that still holds zero then ends
    there, as it does for a rejection that others made possible (Guilbaud, Biometrical Journal 50, 2008).
    """
    if one_look:
        difference, equality, p = t_interval(estimate, alpha), t_interval(estimate, equivalence_alpha), t_p(estimate)
    else:
        difference, equality = interval(estimate, alpha, g), interval(estimate, equivalence_alpha, EQUIVALENCE_G)
        p = anytime_p(estimate, g)
    plain = t_interval(mean, MEAN_SHARE * equivalence_alpha)
    enough = mean.n >= least_runs
    proven = difference.excludes_zero() if different is None else different
    verdict: Verdict = "undecided"
    if enough and equality.inside(bound) and plain.inside(bound):
        verdict = "equal"
    elif proven:
        verdict = "better" if estimate.value > 0 else "worse"
        difference = difference.beyond_zero(estimate.value)
    return PairVerdict(estimate, difference, equality, plain, enough, p, verdict, one_look)
