"""Rare bad runs of one stack are found, and told from a machine that was slow for all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgstrata.analyze.badmode import bad_modes
from pgstrata.analyze.comparison import Table

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
