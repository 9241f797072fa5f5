"""Figures of the scripts of a mix, over the runs of a stack."""

from __future__ import annotations

import numpy as np
import pytest

from pgstrata.analyze.why.use import script_findings
from pgstrata.record.schema import CellResult, ScriptRun
from pgstrata.spec.workload import Cell

CELL = Cell(script="a@9+b@1", scale=1, clients=1)


def run(*scripts: ScriptRun) -> CellResult:
    return CellResult(cell=CELL, started="", duration_s=10, transactions=0, scripts=scripts)


def script(latencies_ms: list[float], tps: float, name: str = "a") -> ScriptRun:
    mean, stddev = float(np.mean(latencies_ms)), float(np.std(latencies_ms))
    count = len(latencies_ms)
    return ScriptRun(
        name=name, weight=9, transactions=count, tps=tps, latency_avg_ms=mean, latency_stddev_ms=stddev, skipped=1
    )


def test_latency_is_that_of_all_transactions_together() -> None:
    first, second = [1.0, 2.0, 6.0], [3.0, 5.0]
    idle = ScriptRun(name="b", weight=1, transactions=0, tps=0.0)
    a, b = script_findings([run(script(first, 3.0), idle), run(script(second, 1.0), idle)])
    assert a.latency_avg_ms == pytest.approx(np.mean(first + second))
    assert a.latency_stddev_ms == pytest.approx(np.std(first + second))
    assert (a.runs, a.transactions, a.share, a.weight) == (2, 5, 1.0, 9)
    assert a.tps == pytest.approx(5 / 3)
    assert a.failed_share == pytest.approx(2 / 7)
    assert (b.transactions, b.share, b.tps, b.latency_avg_ms, b.failed_share) == (0, 0.0, None, None, None)


def test_a_run_without_a_standard_deviation_leaves_it_out() -> None:
    (found,) = script_findings(
        [run(script([1.0, 3.0], 1.0)), run(ScriptRun(name="a", transactions=2, tps=1.0, latency_avg_ms=4.0))]
    )
    assert (found.latency_avg_ms, found.latency_stddev_ms) == (3.0, None)


def test_one_script_gives_nothing() -> None:
    assert script_findings([run()]) == ()


def test_a_percentile_is_the_mean_over_the_runs_that_all_have_one() -> None:
    runs = [run(ScriptRun(name="a", transactions=2, tps=1.0, percentiles_ms={"p99": p99})) for p99 in (4.0, 6.0)]
    (found,) = script_findings(runs)
    assert found.latency_p99_ms == 5.0
    (found,) = script_findings([*runs, run(ScriptRun(name="a", transactions=2, tps=1.0))])
    assert found.latency_p99_ms is None
