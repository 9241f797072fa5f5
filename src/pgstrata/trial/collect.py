"""Brings raw output from the host into the record, and makes numbers and series of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pgstrata.errors import PgstrataError
from pgstrata.probe.start import POSTGRES, SAMPLES
from pgstrata.record.schema import CellResult
from pgstrata.spec.workload import Cell, Workload
from pgstrata.trial.bench import Bench
from pgstrata.trial.probes import write_probe_series
from pgstrata.workload.pgbench_output import PgbenchResult, parse_progress, parse_result

if TYPE_CHECKING:
    from pgstrata.trial.measure import Measured

RUN_OUTPUTS = ("pgbench.out", "pgbench.err", SAMPLES, "samples.err", POSTGRES, "postgres.err")
"""In the folder of a cell, opened by the caller: what a run leaves, and all that is fetched but pgbench's logs."""
LOG_PREFIX = "pgbench_log"
LOG_BYTES_PER_S = 32_000_000
"""More than any pgbench writes: half a million transactions a second."""
LOG_LINE_BYTES = 80
LOG_BYTES_AT_LEAST = 64 << 20
MOST_SERVER_LOG_BYTES = 16 << 30


def logs_folder(folder: str) -> str:
    """Where pgbench writes its logs of a cell: the only part of its folder that belongs to the server's user."""
    return f"{folder}/logs"


def collect_cell(bench: Bench, measured: Measured) -> None:
    """Fetches the output of one run, writes `result.json` and its series, and frees the space on the host."""
    cell_id = measured.cell.id
    raw = bench.recorder.cell(cell_id, "raw/pgbench.out").parent
    for name in RUN_OUTPUTS:
        bench.host.fetch(f"{measured.folder}/{name}", str(raw / name))
    _fetch_logs(bench, measured, raw)
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


def rescue_outputs(bench: Bench, cell_id: str, folder: str) -> None:
    """What a run that failed had printed, as far as it can be had: the error that came first is the one that counts."""
    raw = bench.recorder.cell(cell_id, "raw/pgbench.out").parent
    for name in RUN_OUTPUTS:
        with suppress(PgstrataError, OSError):
            if not (raw / name).exists() and bench.host.status(f"{folder}/{name}", follow=False) is not None:
                bench.host.fetch(f"{folder}/{name}", str(raw / name))


def _fetch_logs(bench: Bench, measured: Measured, raw: Path) -> None:
    """pgbench's logs: plain files of the server's user under the names that this pgbench gave them, no more than a
    run of that length can have written."""
    workload, cell = bench.site.campaign.workload, measured.cell
    left = most_log_bytes(workload, cell, bench.trial.duration_s)
    for name in log_names(workload, cell, measured.pid):
        path = f"{logs_folder(measured.folder)}/{name}"
        left -= bench.host.fetch(path, str(raw / name), owner=bench.site.user, most_bytes=left)


def log_names(workload: Workload, cell: Cell, pid: int) -> tuple[str, ...]:
    """One for each thread of the pgbench with that pid."""
    threads = min(workload.jobs, cell.clients) if workload.logs(cell) else 0
    return tuple(f"{LOG_PREFIX}.{pid}.{thread}" if thread else f"{LOG_PREFIX}.{pid}" for thread in range(threads))


def most_log_bytes(workload: Workload, cell: Cell, duration_s: float | None) -> int:
    """All logs of a run together."""
    bound_s = duration_s or workload.cell_duration_s(cell)
    if bound_s is None:
        written = (workload.transactions or 0) * cell.clients * LOG_LINE_BYTES
    else:
        written = round(bound_s * LOG_BYTES_PER_S)
    return LOG_BYTES_AT_LEAST + written


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
    if bench.host.status(bench.cluster.log_file, follow=False) is not None:
        path = str(bench.recorder.raw("postgresql.log"))
        bench.host.fetch(bench.cluster.log_file, path, owner=bench.site.user, most_bytes=MOST_SERVER_LOG_BYTES)
