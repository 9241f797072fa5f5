"""Rare bad runs of one stack are found, and told from a machine that was slow for all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgstrata.analyze.stats.bad_mode import NOTABLE, _others, bad_modes
from pgstrata.analyze.stats.comparison import Table

NAMES = ("a", "b")


def table(seed: int = 1, blocks: int = 9, stacks: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(7.6, 0.02, (stacks, blocks))


def test_two_runs_of_nine_at_half_speed_are_a_bad_mode() -> None:
    y = table()
    y[1, [3, 7]] += math.log(0.52)
    (found,) = bad_modes(NAMES, Table(y, tuple(range(10, 19))))
    assert (found.stack, found.bad, found.runs, found.blocks) == ("b", 2, 9, (13, 17))
    assert math.exp(-found.loss) == pytest.approx(0.52, abs=0.03)


def test_a_machine_that_is_slow_for_all_is_no_bad_mode_of_a_stack() -> None:
    y = table()
    y[:, [3, 7]] += math.log(0.5)
    assert bad_modes(NAMES, Table(y, tuple(range(9)))) == ()


@pytest.mark.parametrize("bad", [[3], [0, 1, 2, 3]])
def test_one_bad_run_is_an_accident_and_half_of_them_are_the_stack(bad: list[int]) -> None:
    y = table()
    y[1, bad] += math.log(0.5)
    assert bad_modes(NAMES, Table(y, tuple(range(9)))) == ()


def test_ordinary_scatter_and_missing_runs_are_no_bad_mode() -> None:
    for seed in range(200):
        y = table(seed, blocks=12, stacks=3)
        y[0, :4] = np.nan
        assert bad_modes(("a", "b", "c"), Table(y, tuple(range(12)))) == ()


def test_the_machine_is_the_median_of_those_that_ran() -> None:
    """With two, three and no other stacks in a block."""
    deviation = np.array([[0.1, -0.4, 0.3], [np.nan, 0.2, np.nan], [0.5, np.nan, np.nan], [-0.3, 0.6, np.nan]])
    assert _others(deviation, 0).tolist() == pytest.approx([0.1, 0.4, 0.0])
    assert _others(deviation, 3).tolist() == pytest.approx([0.3, -0.1, 0.3])


def test_runs_that_are_a_little_low_are_none_whatever_the_others_do() -> None:
    y = np.full((2, 9), 7.6)
    y += 1e-4 * (np.arange(18).reshape(2, 9) % 5)
    y[1, [3, 7]] -= 0.99 * NOTABLE
    y[0, [3, 7]] += 0.2
    assert bad_modes(NAMES, Table(y, tuple(range(9)))) == ()
    y[1, [3, 7]] -= 0.02 * NOTABLE
    assert [found.stack for found in bad_modes(NAMES, Table(y, tuple(range(9))))] == ["b"]


@pytest.mark.parametrize(("stacks", "runs", "scatter"), [(2, 24, 0.04), (12, 36, 0.03), (12, 12, 0.04)])
def test_throughput_that_is_rounded_has_no_bad_mode_for_that(stacks: int, runs: int, scatter: float) -> None:
    """Runs of 20 TPS as whole numbers: most are 20, and 18 is no mode of its own."""
    rng, names = np.random.default_rng(1), tuple(map(str, range(stacks)))
    told = 0
    for _ in range(300):
        rounded = np.log(np.round(20 * np.exp(rng.normal(0, scatter, (stacks, runs)))))
        told += bool(bad_modes(names, Table(rounded, tuple(range(runs)))))
    assert told <= 3


def test_a_bad_mode_of_rounded_throughput_is_told() -> None:
    rounded = np.log(np.round(20 * np.exp(np.random.default_rng(1).normal(0, 0.04, (2, 24)))))
    rounded[0, [3, 9, 15]] = np.log(10)
    assert [found.stack for found in bad_modes(NAMES, Table(rounded, tuple(range(24))))] == [NAMES[0]]
