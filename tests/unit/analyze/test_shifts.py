"""Shifts of a series: what they are at any look, and what no values do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from pgstrata.analyze.stats.shifts import LEAST, fewest, find_shifts

ALPHA = 0.05


def series(*levels: tuple[float, int], scatter: float = 0.02, seed: int = 3) -> list[float]:
    rng = np.random.default_rng(seed)
    return [float(level + rng.normal(0, scatter)) for level, count in levels for _ in range(count)]


def test_a_step_is_found_where_it_is_and_with_its_size() -> None:
    (found,) = find_shifts(series((0.0, 20), (-0.1, 12)), ALPHA)
    assert found.earliest <= found.at == 20 <= found.latest
    assert 21 <= found.told < 26
    assert found.estimate.value == pytest.approx(-0.1, abs=0.02)
    assert found.estimate.nu == 30


def test_there_and_back_are_two() -> None:
    found = find_shifts(series((0.0, 20), (-0.1, 10), (0.0, 10)), ALPHA)
    assert [one.at for one in found] == [20, 30]
    assert [one.estimate.value < 0 for one in found] == [True, False]


def test_one_value_that_is_far_off_is_no_level() -> None:
    assert find_shifts([*series((0.0, 20)), -0.3], ALPHA) == ()
    assert find_shifts([*series((0.0, 20)), -0.3, *series((0.0, 9), seed=2)], ALPHA) == ()


def test_what_was_told_stays_told_as_the_series_grows() -> None:
    whole = series((0.0, 12), (-0.1, 9), (0.05, 9), seed=4)
    told: list[int] = []
    for count in range(len(whole) + 1):
        now = [one.told for one in find_shifts(whole[:count], ALPHA)]
        assert now[: len(told)] == told
        told = now
    assert len(told) == 2


def test_looking_after_every_value_is_within_the_bound() -> None:
    rng = np.random.default_rng(5)
    false = sum(bool(find_shifts(rng.normal(0, 1, 40).tolist(), ALPHA)) for _ in range(200))
    assert false <= ALPHA * 200


def test_fewer_values_than_the_fewest_tell_nothing() -> None:
    count = fewest(ALPHA)
    assert find_shifts([0.0] * LEAST + [1.0] * (count - LEAST), ALPHA) != ()
    assert all(find_shifts([0.0] * a + [1.0] * (count - 1 - a), ALPHA) == () for a in range(count))
    assert fewest(ALPHA / 10) > count


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0]), max_size=30))
def test_any_values_give_ordered_places(values: list[float]) -> None:
    found = find_shifts(values, ALPHA)
    edges = [0, *(one.at for one in found), len(values)]
    assert all(b - a >= LEAST for a, b in pairwise(edges)) or not found
    assert all(one.earliest <= one.at <= one.latest for one in found)
    assert all(np.isfinite(one.estimate.value) for one in found)


def _false_alarms(series: Callable[[np.random.Generator], np.ndarray]) -> int:
    """Of 40 series of 200 values that never change."""
    return sum(bool(find_shifts(series(np.random.default_rng((7, seed))).tolist(), 0.05)) for seed in range(40))


def test_values_that_resemble_the_one_before_make_fewer_false_alarms() -> None:
    """Without the rule 12 and 31 of 40."""
    for phi, most in ((0.4, 8), (0.6, 14)):

        def series(rng: np.random.Generator, phi: float = phi) -> np.ndarray:
            return np.asarray(lfilter([1], [1, -phi], rng.normal(0, 0.02, 200)))

        assert _false_alarms(series) <= most


def test_a_scatter_that_grows_is_no_new_level() -> None:
    """With the variance of all values 16 of 40."""
    assert _false_alarms(lambda rng: rng.normal(0, 1, 200) * np.geomspace(0.01, 0.08, 200)) <= 3


def test_a_step_after_many_values_is_known_as_soon_as_after_few() -> None:
    (found,) = find_shifts(series((0.0, 60), (-0.1, 12)), ALPHA)
    assert found.at == 60
    assert found.told <= 64


def test_two_nights_in_a_tail_are_no_new_level() -> None:
    """With two values on either side 6 of 40."""
    assert _false_alarms(lambda rng: rng.standard_t(3, 200) * 0.02) <= 4
