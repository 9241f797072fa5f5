"""Serial correlation of block differences: a state of a stack that outlasts a block.

Blocks remove movements common to all stacks. A state of one stack (fragmentation, cache contents, a build) that lasts
for several blocks remains in its differences d, which are then worth fewer than n independent ones. With the lag-1
correlation r1 of the n differences in the order of their blocks, whose expectation without any is -1/n,

    r = max(0, r1 + 1/n) n / (n + 4);  se^2 of a difference is multiplied by (1 + r) / (1 - r)

as for the mean of an AR(1) (Box & Jenkins, Time Series Analysis, 1970, 2.1.4; bias: Kendall, Biometrika 41, 1954), from
eight pairs; n / (n + 4) keeps chance from widening every interval by much. Equality and forecasts do not use it
(docs/statistics.md has the figures). A state that outlasts the campaign cannot be detected: the campaign sees it as a
property of the stack. The correlation is reported if it is significant at a level of 0.01.
"""

from __future__ import annotations

import math

from pgstrata.analyze.stats.distributions import normal_cdf
from pgstrata.analyze.stats.interval import Estimate, Floats

LEAST_PAIRS = 8
PRIOR_PAIRS = 4
TOLD = 2.33


def excess(off: Floats, levels: int = 1) -> float:
    """Return r1 + levels/n of deviations from that number of levels; 0 if all are 0."""
    squares = float(off @ off)
    return float(off[:-1] @ off[1:]) / squares + levels / off.size if squares > 0 else 0.0


def shrunk(r: float, n: int) -> float:
    """Return r of n values without its bias, never below 0."""
    return max(0.0, r) * n / (n + PRIOR_PAIRS)


def correlation(d: Floats) -> float:
    """Return r, from differences in the order of their blocks."""
    return shrunk(excess(d - d.mean()), d.size) if d.size >= LEAST_PAIRS else 0.0


def inflated(estimate: Estimate, d: Floats) -> Estimate:
    """Return the estimate with the standard error inflated for serial correlation."""
    r = correlation(d)
    if not r:
        return estimate
    return Estimate(estimate.value, estimate.se * math.sqrt((1 + r) / (1 - r)), estimate.nu, estimate.n)


def correlation_p(d: Floats) -> float:
    """Return the one-sided p of no correlation; 1 below LEAST_PAIRS."""
    return float(normal_cdf(-excess(d - d.mean()) * math.sqrt(d.size))) if d.size >= LEAST_PAIRS else 1.0


def told_correlation(d: Floats) -> float | None:
    """Return r if it is significant."""
    return correlation(d) if d.size >= LEAST_PAIRS and excess(d - d.mean()) * math.sqrt(d.size) > TOLD else None
