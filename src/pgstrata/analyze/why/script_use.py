"""Figures of the scripts of a mix, over the runs of a stack: sums by script."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgstrata.analyze.findings import ScriptFinding
from pgstrata.record.schema import CellResult
from pgstrata.record.script_run import ScriptRun


def script_findings(results: Sequence[CellResult]) -> tuple[ScriptFinding, ...]:
    """Return the figures of each script of a mix, in the order of pgbench; none for a cell with one script."""
    names = dict.fromkeys(run.name for result in results for run in result.scripts)
    transactions = sum(run.transactions for result in results for run in result.scripts)
    return tuple(_finding(name, results, transactions) for name in names)


def _finding(name: str, results: Sequence[CellResult], transactions: int) -> ScriptFinding:
    runs = [run for result in results for run in result.scripts if run.name == name]
    own = sum(run.transactions for run in runs)
    measured_s = sum(run.transactions / run.tps for run in runs if run.tps)
    tried = own + sum(run.failed + run.skipped for run in runs)
    mean_ms, stddev_ms = _latency_ms(runs)
    return ScriptFinding(
        script=name,
        weight=runs[0].weight,
        runs=len(runs),
        transactions=own,
        share=own / transactions if transactions else None,
        tps=own / measured_s if measured_s else None,
        latency_avg_ms=mean_ms,
        latency_stddev_ms=stddev_ms,
        failed_share=(tried - own) / tried if tried else None,
    )


def _latency_ms(runs: Sequence[ScriptRun]) -> tuple[float | None, float | None]:
    """Return mean and standard deviation of all transactions together; None if a run lacks them."""
    timed = [run for run in runs if run.transactions]
    count = sum(run.transactions for run in timed)
    means = [run.latency_avg_ms for run in timed if run.latency_avg_ms is not None]
    if not timed or len(means) < len(timed):
        return None, None
    mean_ms = sum(m * run.transactions for m, run in zip(means, timed, strict=True)) / count
    stddevs = [run.latency_stddev_ms for run in timed if run.latency_stddev_ms is not None]
    if len(stddevs) < len(timed):
        return mean_ms, None
    squares = (run.transactions * (m**2 + s**2) for m, s, run in zip(means, stddevs, timed, strict=True))
    return mean_ms, math.sqrt(max(0.0, sum(squares) / count - mean_ms**2))
