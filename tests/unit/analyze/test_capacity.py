"""The search for capacity under a latency objective."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.analyze.campaign.metrics import open_loop_of
from pgstrata.analyze.stats.capacity import (
    RESOLUTION,
    capacity_tps,
    is_lag_rising,
    meets,
    next_rate,
)
from pgstrata.record.decision import OpenLoop
from pgstrata.record.reader import CellData
from pgstrata.record.schema import CellResult
from pgstrata.record.source import FolderSource
from pgstrata.spec.workload import Cell

OBJECTIVE = 20.0


def run_at(rate_tps: float, capacity: float) -> OpenLoop:
    """A stack that keeps 5 ms up to its capacity and falls behind above."""
    over = rate_tps > capacity
    return OpenLoop(rate_tps, 50.0 if over else 5.0, 0.05 if over else 0.0, lag_rising=over)


@given(st.floats(10, 1e6), st.floats(10, 1e6))
def test_search_ends_within_the_resolution(capacity: float, start_tps: float) -> None:
    results: list[OpenLoop] = []
    while (rate := next_rate(OBJECTIVE, results, start_tps)) is not None:
        results.append(run_at(rate, capacity))
        assert len(results) < 60
    found = capacity_tps(OBJECTIVE, results)
    if found is None:
        assert capacity < start_tps / 1000
    else:
        assert capacity / (1 + RESOLUTION) <= found <= capacity


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (OpenLoop(1, 20.0, 0.0, False), True),
        (OpenLoop(1, 20.1, 0.0, False), False),
        (OpenLoop(1, 5.0, 0.01, False), False),
        (OpenLoop(1, 5.0, 0.0, True), False),
    ],
)
def test_promise(result: OpenLoop, kept: bool) -> None:
    assert meets(OBJECTIVE, result) is kept


def test_a_good_rate_above_a_failing_one_does_not_count() -> None:
    results = [run_at(100, 150), run_at(120, 110), run_at(140, 150)]
    assert capacity_tps(OBJECTIVE, results) == 100


def test_rising_lag_is_seen_and_noise_is_not() -> None:
    rng = np.random.default_rng(3)
    noise = rng.exponential(1.0, 300)
    assert not is_lag_rising(noise.tolist())
    assert is_lag_rising((noise + np.linspace(0, 10, 300)).tolist())
    assert not is_lag_rising([2.0] * 100)
    assert not is_lag_rising([1.0, 2.0, 3.0])


def test_a_rate_at_which_everything_was_skipped_is_a_failing_one() -> None:
    cell = Cell(script="tpcb-like", scale=1, clients=1, rate_tps=500.0)
    result = CellResult(cell=cell, started="", duration_s=5.0, transactions=0, tps=0.0, skipped=2500, open_loop=True)
    data = CellData("t", "xfs", 0, result, FolderSource(Path("nowhere")), "trials/t/cells/c")
    found = open_loop_of(data, "p99")
    assert found is not None
    assert not meets(OBJECTIVE, found)
