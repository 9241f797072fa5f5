"""Runs of pgbench as runs of a tool, for tools whose results hold pgbench's own output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers.pgbench_text import PgbenchRun, read_pgbench_text
from pgstrata.importers.source import read_text
from pgstrata.workload.pgbench_output import PgbenchOutputError, PgbenchResult
from pgstrata.workload.tool_run import Row, ToolRun

_RATE_DIGITS = 2


def traits_of(result: PgbenchResult) -> dict[str, str]:
    """Return the traits that make runs of one script different measurements."""
    return {
        "protocol": result.protocol,
        "partitions": f"{result.partitions} partitions" if result.partitions else "no partitions",
        "connections": "a connection for each transaction" if result.reconnects else "kept connections",
    }


def rate_tps(result: PgbenchResult) -> float | None:
    """Return the rate of an open loop as it was achieved; None for a closed one."""
    if result.lag_avg_ms is None or not result.tps:
        return None
    return float(f"{result.tps:.{_RATE_DIGITS}g}")


def pgbench_runs(path: Path, *, stack: str, traits: Mapping[str, str]) -> list[ToolRun]:
    """Return the runs in an output of pgbench; one without a result is incomplete. UsageError for a damaged output."""
    text = read_text(path)
    if "transaction type: " not in text:
        return [ToolRun(str(path), "pgbench", stack=stack, incomplete="pgbench printed no result")]
    try:
        found = read_pgbench_text(text)
    except PgbenchOutputError as error:
        raise UsageError(f"{path}: {error.message}", hint="leave out the runs that were cut or damaged") from None
    return [_tool_run(path, run, stack, traits) for run in found.runs]


def _tool_run(path: Path, run: PgbenchRun, stack: str, traits: Mapping[str, str]) -> ToolRun:
    from pgstrata.workload.pgbench import script_fields, workload_of

    result = run.result
    measured = {
        "tps": result.tps,
        "latency_avg_ms": result.latency_avg_ms,
        "latency_stddev_ms": result.latency_stddev_ms,
    }
    timed_s = float(result.duration_s) if result.duration_s else result.transactions / (result.tps or 1.0)
    return ToolRun(
        f"{path} (line {run.line})",
        workload_of(result),
        {name: value for name, value in measured.items() if value is not None},
        scale=result.scale,
        clients=result.clients,
        rate_tps=rate_tps(result),
        result={
            "duration_s": timed_s,
            "transactions": result.transactions,
            "failed": result.failed,
            "retried": result.retried,
            "skipped": result.skipped,
            "late": result.late,
            "initial_connection_ms": result.initial_connection_ms,
            "lag_avg_ms": result.lag_avg_ms,
            "scripts": script_fields(result),
        },
        progress=_progress(run),
        traits={**traits_of(result), **traits},
        told={
            "threads": str(result.jobs),
            "duration": f"{result.duration_s} s" if result.duration_s else "",
            "version of pgbench": result.version or "before 14",
        },
        stack=stack,
        raw=(path,),
        incomplete=f"pgbench says {run.incomplete[:120]!r}" if run.incomplete else "",
    )


def _progress(run: PgbenchRun) -> Sequence[Row]:
    return [
        (row.t_s, row.tps, row.latency_ms, row.latency_stddev_ms, row.lag_ms, row.failed, row.retried, row.skipped)
        for row in run.progress.rows
    ]
