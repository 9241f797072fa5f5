"""Brings raw output from the host into the record, and makes numbers and series of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pgstrata.record.schema import CellResult
from pgstrata.trial.bench import Bench
from pgstrata.trial.probes import write_probe_series
from pgstrata.workload.pgbench_output import PgbenchResult, parse_progress, parse_result

if TYPE_CHECKING:
    from pgstrata.trial.measure import Measured

SAMPLER = "sampler.py"
"""The probe's own program, which is no output."""


def collect_cell(bench: Bench, measured: Measured) -> None:
    """Fetches the output of one run, writes `result.json` and its series, and frees the space on the host."""
    cell_id = measured.cell.id
    for name in bench.host.list_directory(measured.folder):
        if name == SAMPLER:
            continue
        bench.host.fetch(f"{measured.folder}/{name}", str(bench.recorder.cell(cell_id, f"raw/{name}")))
    raw = bench.recorder.cell(cell_id, "raw/pgbench.out").parent
    progress = parse_progress((raw / "pgbench.err").read_text(encoding="utf-8"))
    bench.recorder.series(cell_id, "progress", (asdict(row) for row in progress.rows))
    found = parse_result((raw / "pgbench.out").read_text(encoding="utf-8"))
    duration_s = _duration_s(found)
    checkpoints = write_probe_series(bench, cell_id, raw, measured.began_epoch_s, duration_s)
    logs = sorted(raw.glob("pgbench_log.*"))
    open_loop = measured.cell.rate_tps is not None
    percentiles = bench.percentiles(logs, open_loop) if logs else {}
    result = _result(measured, found, duration_s, checkpoints, dict(percentiles))
    bench.recorder.write(f"cells/{cell_id}/result.json", result)
    bench.host.remove(measured.folder)


def _duration_s(found: PgbenchResult) -> float:
    """As bounded; for a run bounded by transactions, as its rate says."""
    if found.duration_s is not None:
        return float(found.duration_s)
    return found.transactions / found.tps if found.tps else 0.0


def _result(
    measured: Measured, found: PgbenchResult, duration_s: float, checkpoints: int, percentiles_ms: dict[str, float]
) -> CellResult:
    return CellResult(
        cell=measured.cell,
        started=measured.started,
        duration_s=duration_s,
        transactions=found.transactions,
        tps=found.tps,
        latency_avg_ms=found.latency_avg_ms,
        latency_stddev_ms=found.latency_stddev_ms,
        initial_connection_ms=found.initial_connection_ms,
        lag_avg_ms=found.lag_avg_ms,
        failed=found.failed,
        retried=found.retried,
        skipped=found.skipped,
        late=found.late,
        wal_bytes=measured.wal_bytes,
        checkpoints=checkpoints,
        warmup_stable=measured.start.settled,
        prewarmed=measured.start.prewarmed,
        percentiles_ms=percentiles_ms,
        open_loop=measured.cell.rate_tps is not None,
    )


def fetch_server_log(bench: Bench) -> None:
    """The server's log into `raw/postgresql.log`, if it was ever started."""
    if bench.host.status(bench.cluster.log_file) is not None:
        bench.host.fetch(bench.cluster.log_file, str(bench.recorder.raw("postgresql.log")))
