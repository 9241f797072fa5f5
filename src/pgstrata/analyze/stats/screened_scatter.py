"""The scatter of fresh pairs, combined with the scatter from screening.

The runs that made a stack lead must not also prove that it does, so the difference is that of the fresh pairs alone
(`confirm.py`). The scatter of runs is a separate question, and screening answered it from many more runs. But screening
tends to end when it happens to see little scatter, so its variance is inflated; and if the pairs themselves evidently
scatter more, by an F test, their own variance stands alone. With s^2 the variance of one difference from n pairs, v_i
and v_j the variances of a run in the fit of screening (`fit.py`, where a stack that evidently scatters more keeps its
own), and f the degrees of freedom of their difference,

    p = INFLATION (v_i + v_j);  v = ((n - 1) s^2 + f p) / (n - 1 + f)             of one pair
    se^2 = v / n;  nu = n - 1 + f                      s^2 / n and n - 1 where P(F(n - 1, f) > s^2 / p) < EVIDENT

A single pair proves nothing: one lost run would be taken for a difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pgstrata.analyze.stats.distributions import f_above
from pgstrata.analyze.stats.fit import BlockFit
from pgstrata.analyze.stats.interval import Estimate

INFLATION = 1.2
"""In simulations at 1 the intervals cover less often if runs are noisy, and more costs runs (docs/statistics.md)."""
EVIDENT = 0.10
"""In simulations without the test intervals cover in 0.90 of campaigns in which one run in ten loses 30 %, and a higher
level costs runs."""


@dataclass(frozen=True)
class Scatter:
    """Scatter of the difference of one pair of runs."""

    variance: float
    freedom: float


def scatter_in_screening(fit: BlockFit, i: int, j: int) -> Scatter | None:
    """Return the scatter of stacks i and j; None if screening does not know it."""
    found = fit.estimate(i, j)
    if not (found.se > 0 and found.nu > 0):
        return None
    return Scatter(float(fit.variance[i] + fit.variance[j]), found.nu)


def with_screening(own: Estimate, screened: Scatter | None) -> Estimate:
    """Return the location of fresh pairs with the scatter of both stages."""
    if screened is None or own.n < 2:
        return own
    variance, expected = own.se**2 * own.n, INFLATION * screened.variance
    if f_above(own.nu, screened.freedom, variance / expected) < EVIDENT:
        return own
    nu = own.nu + screened.freedom
    both = (own.nu * variance + screened.freedom * expected) / nu
    return Estimate(own.value, math.sqrt(both / own.n), nu, own.n)
