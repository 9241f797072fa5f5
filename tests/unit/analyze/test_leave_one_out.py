"""What is said of a host against all the others: by sums and medians without it, the same as taken one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr

from pgstrata.analyze.stats.comparison import Table
from pgstrata.analyze.stats.hosts import centred_by_host, evident_hosts, p_alike
from pgstrata.analyze.stats.interval import Estimate
from pgstrata.analyze.stats.leave_one_out import medians_of_others, sums_of_others
from pgstrata.record.decision import Observation

NUMBERS = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))
"""Whole numbers make ties."""
ESTIMATES = st.builds(
    Estimate,
    value=NUMBERS,
    se=st.one_of(st.floats(1e-6, 1e3), st.just(math.nan)),
    nu=st.floats(1, 30),
    n=st.just(3.0),
)


def one_by_one(own: Sequence[Estimate]) -> list[float]:
    """The formula, as it is written."""
    apart = evident_hosts(np.array([e.se**2 * e.n for e in own]), np.array([e.nu for e in own]))
    alike = [e for e, is_apart in zip(own, apart, strict=True) if not is_apart]
    pool_nu = sum(e.nu for e in alike)
    pool = sum(e.nu * e.se**2 * e.n for e in alike) / pool_nu if pool_nu else math.nan
    rest_nu = sum(e.nu for e in own)
    parts = [math.nan if math.isnan(pool) else max(e.se**2, pool / e.n) for e in own]
    found = []
    for at, one in enumerate(own):
        others = [other for k, other in enumerate(own) if k != at]
        rest = math.pi / 2 * sum(part for k, part in enumerate(parts) if k != at) / max(1, len(others) ** 2)
        total = parts[at] + rest
        if len(others) < 2 or not total > 0:
            found.append(math.nan)
            continue
        nu = total**2 / (parts[at] ** 2 / (one.nu if apart[at] else pool_nu) + rest**2 / rest_nu)
        t = (one.value - median(e.value for e in others)) / math.sqrt(total)
        found.append(2 * float(stdtr(nu, -abs(t))))
    return found


@given(st.lists(ESTIMATES, max_size=12))
def test_every_host_against_the_median_of_the_others(own: list[Estimate]) -> None:
    assert p_alike(own) == pytest.approx(one_by_one(own), rel=1e-9, nan_ok=True)


@given(st.lists(NUMBERS, min_size=2, max_size=12))
def test_medians_without_each(values: list[float]) -> None:
    expected = [median(values[:k] + values[k + 1 :]) for k in range(len(values))]
    assert medians_of_others(np.array(values)).tolist() == expected


@given(st.lists(st.floats(0, 1e6), max_size=12))
def test_sums_without_each(values: list[float]) -> None:
    expected = [math.fsum(values[:k] + values[k + 1 :]) for k in range(len(values))]
    assert sums_of_others(np.array(values)) == pytest.approx(expected, rel=1e-12)


def test_a_value_that_outweighs_the_rest_takes_no_digits_of_theirs() -> None:
    assert sums_of_others(np.array([1e20, 1.0, 2.0]))[0] == 3.0


@given(st.lists(st.lists(st.one_of(NUMBERS, st.just(math.nan)), min_size=2, max_size=2), min_size=1, max_size=12))
def test_runs_are_held_against_their_stack_on_their_own_host(rows: list[list[float]]) -> None:
    y = np.array(rows).T
    blocks = tuple(range(len(rows)))
    observations = [Observation("a", block, "cell", 1.0, host=f"h{block % 3}") for block in blocks]
    centred = centred_by_host(Table(y, blocks), observations).y
    for stack in range(2):
        for host in range(min(3, len(rows))):
            own = y[stack, host::3]
            there = own[np.isfinite(own)]
            expected = own - (np.median(there) if there.size else 0.0)
            assert centred[stack, host::3].tolist() == pytest.approx(expected.tolist(), nan_ok=True)


def test_the_work_does_not_grow_with_the_square_of_the_hosts() -> None:
    """40,000 hosts take a moment; one by one they would take an hour, and the test its time limit."""
    rng = np.random.default_rng(1)
    own = [Estimate(float(v), 0.1, 9.0, 10.0) for v in rng.normal(0, 0.1, 40_000)]
    p = p_alike(own)
    few = [0, 17, 39_999]
    ordered = sorted(range(len(own)), key=lambda k: own[k].value)
    assert p[ordered[0]] < p[ordered[len(own) // 2]]
    assert np.isfinite(p[few]).all()
