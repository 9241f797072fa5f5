"""Thinning of series: nothing that a reader looks for may disappear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pgstrata.record.parquet import write_series
from pgstrata.record.reader import CellData
from pgstrata.record.schema import CellResult
from pgstrata.record.source import FolderSource
from pgstrata.report.pictures.series import Resolution, buckets, device_series, run_series, running_mean, stalls
from pgstrata.spec.workload import Cell


def make_cell(root: Path, rows: list[tuple[float, float]]) -> CellData:
    result = CellResult(cell=Cell(script="s", scale=1, clients=1), started="", duration_s=9, transactions=1, tps=1.0)
    folder = root / "trials" / "t" / "cells" / "c"
    folder.mkdir(parents=True)
    write_series(folder / "progress.parquet", "progress", [{"t_s": t, "tps": v, "latency_ms": 1.0} for t, v in rows])
    return CellData("t", "stack", 0, result, FolderSource(root), "trials/t/cells/c")


series = hnp.arrays(np.float64, st.integers(1, 200), elements=st.floats(0, 1e6))


@given(series, st.integers(1, 20))
def test_buckets_keep_the_extremes_and_the_mean(values: np.ndarray, width: int) -> None:
    assert buckets(values, width, "high").max() == values.max()
    assert buckets(values, width, "low").min() == values.min()
    counts = np.minimum(width, len(values) - width * np.arange(-(-len(values) // width)))
    weighted = (buckets(values, width, "mean") * counts).sum() / len(values)
    np.testing.assert_allclose(weighted, values.mean(), rtol=1e-9, atol=1e-6)


def test_a_bucket_without_a_number_is_none() -> None:
    values = np.array([1.0, 3.0, np.nan, np.nan, 5.0])
    np.testing.assert_array_equal(buckets(values, 2, "mean"), [2.0, np.nan, 5.0])


@given(series, st.integers(1, 15))
def test_a_running_mean_is_the_mean_of_its_window(values: np.ndarray, width: int) -> None:
    at = len(values) // 2
    window = values[max(0, at - width // 2) : at + (width - width // 2)]
    np.testing.assert_allclose(running_mean(values, width)[at], window.mean(), rtol=1e-7, atol=1e-3)


def test_stalls_are_stretches_below_a_tenth_of_the_median() -> None:
    values = np.array([100, 100, 5, 5, 100, 100, 0, 100], dtype=float)
    assert stalls(values, 1.0) == [(2.0, 4.0), (6.0, 7.0)]


def test_a_second_that_pgbench_left_out_counts_zero(tmp_path: Path) -> None:
    drawn = run_series(make_cell(tmp_path, [(t, 100.0) for t in (1, 2, 3, 6, 7, 8, 9)]), 100)
    assert drawn is not None
    assert drawn.mean == [100, 100, 100, 0, 0, 100, 100, 100, 100]
    assert drawn.stalls == [(3.0, 5.0)]
    assert drawn.latency[3] is None


def test_long_runs_are_thinned_to_the_points_there_are_and_keep_the_stall(tmp_path: Path) -> None:
    rows = [(t + 1.0, 0.0 if t == 777 else 100.0) for t in range(1000)]
    drawn = run_series(make_cell(tmp_path, rows), 100)
    assert drawn is not None
    assert drawn.low is not None
    assert (len(drawn.mean), drawn.width_s) == (100, 10.0)
    assert drawn.low[77] == 0
    assert drawn.stalls == [(777.0, 778.0)]


@pytest.mark.parametrize(("seconds", "smoothed"), [(8, False), (29, False), (30, True), (120, True)])
def test_a_short_run_has_no_running_mean(tmp_path: Path, seconds: int, smoothed: bool) -> None:
    drawn = run_series(make_cell(tmp_path, [(t, 100.0) for t in range(1, seconds + 1)]), 200)
    assert drawn is not None
    assert (drawn.smooth is not None) == smoothed


def test_a_run_without_series_has_nothing_to_draw(tmp_path: Path) -> None:
    empty = make_cell(tmp_path, [])
    assert run_series(empty, 100) is None
    assert device_series(empty, 100) == []


def test_more_runs_have_fewer_points_each() -> None:
    assert Resolution.of(1).run_points > Resolution.of(200).run_points > Resolution.of(5000).run_points >= 60
