"""Row 19: the runs of a campaign against those of a test that knows the scatter.

Wald's sequential test (Ann. Math. Statist. 16, 1945) of each stack against the baseline, with the standard deviation
and the size of the difference known, and only its direction not: the stack leaves once the likelihood ratio reaches
pairs / 0.05, from the third block on, as the product learns the scatter from three runs.
"""

from __future__ import annotations

import math

import numpy as np

from pgstrata.analyze.stats.interval import ALPHA

LEAST_BLOCKS = 3


def runs_with_known_scatter(stacks: int, difference: float, sigma: float, count: int = 500) -> float:
    """Return the mean number of runs until every stack is proven to differ from the baseline."""
    rng, ahead = np.random.default_rng((19, stacks, round(1000 * difference))), math.log1p(difference)
    return sum(_runs(rng, stacks - 1, ahead, sigma) for _ in range(count)) / count


def _runs(rng: np.random.Generator, pairs: int, ahead: float, sigma: float) -> int:
    left, sums, blocks, runs = np.ones(pairs, dtype=bool), np.zeros(pairs), 0, 0
    while left.any():
        baseline, others = rng.normal(0, sigma), rng.normal(ahead, sigma, pairs)
        sums[left] += (others - baseline)[left]
        blocks, runs = blocks + 1, runs + 1 + int(left.sum())
        towards = sums * ahead / (2 * sigma**2)
        evidence = np.logaddexp(towards, -towards) - math.log(2) - blocks * (ahead / (2 * sigma)) ** 2
        left &= ~((evidence >= math.log(pairs / ALPHA)) & (blocks >= LEAST_BLOCKS))
    return runs
