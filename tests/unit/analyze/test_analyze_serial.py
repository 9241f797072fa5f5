"""Differences that resemble those of the block before are worth fewer."""

from __future__ import annotations

import numpy as np
import pytest

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.campaign.simulate import CELL
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.interval import Estimate
from pgstrata.analyze.stats.serial import correlation, inflated, told_correlation
from pgstrata.record.decision import Observation
from pgstrata.spec.campaign import Goal


def ar1(phi: float, count: int, seed: int) -> np.ndarray:
    rng, found = np.random.default_rng(seed), [0.0]
    for _ in range(count + 20):
        found.append(phi * found[-1] + rng.normal())
    return np.array(found[-count:])


def test_the_formula() -> None:
    d = np.array([1.0, 1, 1, 1, -1, -1, -1, -1])
    r = (5 / 8 + 1 / 8) * 8 / 12
    assert correlation(d) == pytest.approx(r)
    estimate = Estimate(0.1, 0.02, 7, 8)
    assert inflated(estimate, d).se == pytest.approx(0.02 * ((1 + r) / (1 - r)) ** 0.5)


def test_few_equal_or_alternating_differences_change_nothing() -> None:
    estimate = Estimate(0.1, 0.02, 7, 8)
    for d in (np.array([1.0, 1, 1, -1, -1, -1]), np.zeros(9), np.array([1.0, -1] * 5)):
        assert inflated(estimate, d) is estimate


def test_what_is_told_is_rarely_chance() -> None:
    told = [told_correlation(ar1(0.0, 20, seed)) is not None for seed in range(1000)]
    assert sum(told) <= 20
    remembering = [told_correlation(ar1(0.8, 20, seed)) is not None for seed in range(100)]
    assert sum(remembering) >= 60


def test_a_conclusion_allows_for_it_in_differences_alone() -> None:
    swing = 0.02 * np.sign(np.sin(np.arange(24) / 24 * 4 * np.pi + 0.1))
    noise = np.random.default_rng(2).normal(0, 0.004, 24)
    orders = {"slow": np.arange(24), "mixed": np.random.default_rng(3).permutation(24)}
    widths = {}
    for name, order in orders.items():
        d = (swing + noise)[order]
        seen = [
            Observation(stack, block, CELL, float(1000 * np.exp(d[block] if stack == "a" else 0.0)))
            for block in range(24)
            for stack in "ab"
        ]
        (pair,) = conclude(Design(("a", "b"), (CELL,), Goal()), seen, CELL).confirmed
        widths[name] = pair.verdict.interval.high - pair.verdict.interval.low
        assert (pair.correlation() is not None) == (name == "slow")
    assert widths["slow"] > 1.5 * widths["mixed"]
