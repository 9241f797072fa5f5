"""Equality within a margin, and the verdict on a pair.

Two one-sided tests as an interval (Schuirmann 1987): the 90 % interval inside (-bound, bound), here with the
anytime-valid interval (g = 0.1, finite from 9 pairs). *Equal* wins over a proven difference: a proven difference
that is smaller than the margin does not matter by the user's own declaration.

A robust estimate gives little weight to rare bad runs, which users notice. Equality must therefore hold for the plain
mean too,

    mean(d) +- t(1 - 1.5 alpha/2; n - 1) sd(d) / sqrt(n)  inside (-bound, bound)

(Welch's form for unpaired runs). Likewise a difference is better or worse only if the 85 % interval of the plain mean
lies on the same side of zero; otherwise that interval widens the interval of the difference. Below twice the distance
of two modes (`two_modes.py`), which the plain mean weighs by their shares, its interval has the error rate of the
difference itself, the larger of both standard errors, and the degrees of freedom of the estimate. If more runs are
possible, equality also requires enough runs to show a bad mode of one run in ten: 0.9^32 = 0.034.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pgstrata.analyze.stats.interval import (
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
from pgstrata.analyze.stats.two_modes import TwoModes

Verdict = Literal["better", "worse", "equal", "undecided"]

LEAST_RUNS = 32
"""Runs of each stack before two are called equal in a campaign, which can be continued. Imports cannot."""
MEAN_ALPHA = 0.15
"""Level of the interval of the plain mean, which must lie on the same side of zero as the difference."""
MODES_APART = 2.0
"""A difference below this many distances of two modes needs the plain mean at the error rate of the claim."""
MEAN_SHARE = 1.5
"""In simulations 1 finds fewer than 90 % of the equal pairs within 60 pairs, and 2 calls a stack with rare bad runs
equal in more than 5 % of campaigns (docs/statistics.md)."""


@dataclass(frozen=True)
class PairVerdict:
    """A pair on the scale of the model; `better` if the first has the higher value."""

    estimate: Estimate
    interval: Interval
    """Interval of the difference."""
    equivalence: Interval
    mean: Interval
    """Interval of the plain mean of the difference."""
    runs: int
    """Runs of the stack that has fewer."""
    enough: bool
    """True if there are enough runs to call the pair equal."""
    p: float
    """p of no difference, at any look or at the one look."""
    verdict: Verdict
    opposed_n: float | None
    """If the plain mean alone does not prove the difference: the number of runs with which it would if it stays as it
    is, infinite if it lies on the other side. None otherwise."""
    modes: TwoModes | None
    """Two modes that keep a smaller difference from being proven."""
    one_look: bool
    """True if the verdict holds for a number of blocks declared beforehand, and for no other."""

    @property
    def decided(self) -> bool:
        return self.verdict != "undecided"

    @property
    def acceptable_bound(self) -> float:
        """The smallest margin, on the scale of the model, within which the pair is equal already."""
        bounds = (self.equivalence.low, self.equivalence.high, self.mean.low, self.mean.high)
        return max(abs(b) for b in bounds) if self.enough else math.inf


def mean_of_differences(d: Floats) -> Estimate:
    """Return the plain mean of paired differences; se is nan below 2."""
    n = d.size
    se = float(d.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(float(d.mean()) if n else math.nan, se, n - 1, n)


def difference_of_means(x: Floats, y: Floats) -> Estimate:
    """Return the difference of means of unpaired runs; Welch (Biometrika 34, 1947). n is the smaller number of runs."""
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
    serial: Estimate | None = None,
    modes: TwoModes | None = None,
    one_look: bool = False,
) -> PairVerdict:
    """Judge one pair; `serial` is the estimate of the difference if blocks resemble their neighbours, `modes` those
    of the differences.

    `different` overrides the interval (Holm over several pairs). An interval that contains zero then ends at zero, as
    it does for a rejection made possible by other pairs (Guilbaud, Biometrical Journal 50, 2008).
    """
    if one_look:
        difference, equality, p = t_interval(estimate, alpha), t_interval(estimate, equivalence_alpha), t_p(estimate)
    else:
        difference, p = interval(serial or estimate, alpha, g), anytime_p(serial or estimate, g)
        equality = interval(estimate, equivalence_alpha, EQUIVALENCE_G)
    plain = t_interval(mean, MEAN_SHARE * equivalence_alpha)
    enough = mean.n >= least_runs
    proven = difference.excludes_zero() if different is None else different
    if modes is not None and abs(estimate.value) < MODES_APART * modes.distance:
        weighed = Estimate(mean.value, max(mean.se, estimate.se), estimate.nu, estimate.n)
        side = t_interval(weighed, alpha) if one_look else interval(weighed, alpha, g)
    else:
        modes, side = None, t_interval(mean, MEAN_ALPHA)
    opposed_n = _opposed_n(mean, side, estimate.value) if proven else None
    verdict: Verdict = "undecided"
    if enough and equality.inside(bound) and plain.inside(bound):
        verdict = "equal"
    elif opposed_n is not None:
        difference = difference.hull(side)
    elif proven:
        verdict = "better" if estimate.value > 0 else "worse"
        difference = difference.beyond_zero(estimate.value)
    return PairVerdict(
        estimate,
        difference,
        equality,
        plain,
        int(mean.n),
        enough,
        p,
        verdict,
        opposed_n,
        modes if proven and verdict == "undecided" else None,
        one_look,
    )


def _opposed_n(mean: Estimate, found: Interval, value: float) -> float | None:
    """Return the runs with which the plain mean would support the value; None if its interval already does."""
    if found.excludes_zero() and (mean.value > 0) == (value > 0):
        return None
    half, towards = (found.high - found.low) / 2, mean.value if value > 0 else -mean.value
    return mean.n * (half / towards) ** 2 if towards > 0 else math.inf
