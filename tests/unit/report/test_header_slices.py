"""The head of a report says how the runs were laid out."""

from __future__ import annotations

from pgstrata.record.schema import CellResult, SliceResult
from pgstrata.report.sentences.header import runs_measured
from pgstrata.spec.workload import Cell

CELL = Cell(script="tpcb-like", scale=1, clients=2)


def result(duration_s: float, slices: int = 0, whole: CellResult | None = None) -> CellResult:
    turns = tuple(SliceResult(began_epoch_s=n, transactions=10, measured_s=2.0, sync_s=0.0) for n in range(slices))
    return CellResult(cell=CELL, started="", duration_s=duration_s, transactions=10, tps=5.0, slices=turns, whole=whole)


def test_slices_are_told_with_the_whole_runs_beside_them() -> None:
    found = [result(8.0, 4, result(10.0)), result(8.0, 4), result(8.0, 4)]
    assert list(runs_measured(found)) == ["3 builds with 4 turns of 2.0 s each", "1 whole run of 10 s"]
    assert list(runs_measured([result(8.0, 4)])) == ["1 build with 4 turns of 2.0 s each"]


def test_whole_runs_are_told_by_their_usual_length() -> None:
    assert list(runs_measured([result(60.0), result(60.0)])) == ["2 runs of 1 min"]
    assert list(runs_measured([])) == ["0 runs"]
