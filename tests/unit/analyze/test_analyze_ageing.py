"""Differences that grow over a campaign are told; those that only scatter, or remember, are not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.stats.ageing import ageing
from pgstrata.analyze.stats.comparison import Design
from pgstrata.record.decision import Observation
from pgstrata.spec.campaign import Goal


def scatter(seed: int, blocks: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.04, blocks)


def test_a_difference_that_grows_is_told_with_its_ends() -> None:
    found = ageing(scatter(1, 24) + np.linspace(0.02, 0.20, 24), 1)
    assert found is not None
    assert (found.first, found.last) == pytest.approx((0.02, 0.20), abs=0.03)
    assert found.pairs == 24


def test_missing_blocks_keep_their_place() -> None:
    line = np.linspace(0, 1, 11)
    line[[0, 5]] = np.nan
    found = ageing(line, 1)
    assert found is not None
    assert (found.first, found.last) == pytest.approx((0.1, 1.0))
    assert found.pairs == 9
    line[[1, 2]] = np.nan
    assert ageing(line, 1) is None  # seven are too few


def test_more_tests_take_more() -> None:
    d = scatter(3, 12) + np.linspace(0, 0.16, 12)
    assert ageing(d, 1) is not None
    assert ageing(d, 1000) is None


def test_what_stays_is_seldom_told_to_grow() -> None:
    """One far run moves no rank far, and equal runs have no trend."""
    told = [ageing(scatter(seed, 16) - 0.5 * (np.arange(16) == 15), 1) is not None for seed in range(400)]
    assert np.mean(told) < 0.03
    assert ageing(np.zeros(16), 1) is None


def test_a_state_that_outlasts_a_block_is_not_taken_for_a_trend() -> None:
    told = 0
    for seed in range(400):
        state = np.cumsum(scatter(seed, 16) * 0.7 ** np.arange(16)[::-1]) / 0.7 ** np.arange(16)[::-1]
        told += ageing(state + scatter(seed + 1000, 16), 1) is not None
    assert told / 400 < 0.08


@pytest.mark.parametrize("growth", [0.0, 0.25])
def test_pairs_of_the_leader_are_tested(growth: float) -> None:
    rng = np.random.default_rng(5)
    observations = [
        Observation(
            name,
            block,
            "c",
            1000 * math.exp(rng.normal(0, 0.02) + level - growth * (name == "b") * block / 15),
            "confirm",
        )
        for block in range(16)
        for name, level in (("a", 0.05), ("b", 0.0))
    ]
    found = list(conclude(Design(("a", "b"), ("c",), Goal()), observations, "c").ageing())
    assert len(found) == (growth > 0)
    for pair, line in found:
        assert {pair.a, pair.b} == {"a", "b"}
        assert abs(line.last - line.first) == pytest.approx(growth, abs=0.05)
