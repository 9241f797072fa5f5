"""Copies raw output from the host into the record, and derives numbers and series from it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from pgstrata.errors import PgstrataError
from pgstrata.probe.checkpoints import checkpoint_rows
from pgstrata.probe.start import POSTGRES, SAMPLES
from pgstrata.record.schema import CellResult
from pgstrata.record.script_run import ScriptRun
from pgstrata.spec.side_by_side import has_whole_run
from pgstrata.spec.workload import Cell, Workload
from pgstrata.trial.context import CellRun, TrialContext
from pgstrata.trial.events import Notice
from pgstrata.trial.steps import acknowledgements, pooler, stale_reads
from pgstrata.trial.steps.node_use import read_node_use
from pgstrata.trial.steps.probes import samples_of, write_probe_series
from pgstrata.workload.pgbench import script_fields
from pgstrata.workload.pgbench_output import PgbenchResult, Progress, ScriptResult, parse_progress, parse_result

RUN_OUTPUTS = ("pgbench.out", "pgbench.err", SAMPLES, "samples.err", POSTGRES, "postgres.err")
"""In the folder of a cell, opened by the caller: a run's output, and everything fetched except pgbench's logs."""
WARM_UP_OUTPUTS = ("warmup.out", "warmup.err")
LOG_PREFIX = "pgbench_log"
LOG_BYTES_PER_S = 32_000_000
"""More than any pgbench writes: half a million transactions a second."""
LOG_LINE_BYTES = 80
LOG_BYTES_AT_LEAST = 64 << 20
MOST_SERVER_LOG_BYTES = 16 << 30


def logs_folder(folder: str) -> str:
    """Folder of pgbench's logs of a cell: the only part of its folder that belongs to the server's user."""
    return f"{folder}/logs"


def collect_cell(context: TrialContext, cell: Cell) -> None:
    """Fetches the output of one run, writes `result.json` and its series, and frees the space on the host."""
    run, folder = context.cell(cell), context.setup.cell_folder(cell)
    raw = context.recorder.cell(cell.id, "raw/pgbench.out").parent
    for name in _outputs(context):
        context.host.fetch(f"{folder}/{name}", str(raw / name))
    for host in context.setup.stack.far_hosts:
        _fetch_far(context, cell, host, raw)
    result = (_of_slices if run.slices else _of_whole_run)(context, cell, run, raw)
    if run.whole is not None:
        result = result.model_copy(update={"whole": _of_whole_run(context, cell, run.whole, raw)})
    context.recorder.write(f"cells/{cell.id}/result.json", result)
    context.host.remove(folder)
    run.collected = True


def _of_whole_run(context: TrialContext, cell: Cell, run: CellRun, raw: Path) -> CellResult:
    progress = parse_progress((raw / "pgbench.err").read_text(encoding="utf-8", errors="replace"))
    _tell_messages(context, progress)
    context.recorder.series(cell.id, "progress", (asdict(row) for row in progress.rows))
    found = parse_result((raw / "pgbench.out").read_text(encoding="utf-8"))
    duration_s = _duration_s(found)
    checkpoints = write_probe_series(context, cell.id, raw, run.began_epoch_s, duration_s)
    percentiles_ms = _fetch_percentiles(context, cell, run, raw)
    result = _result(cell, run, found, duration_s, checkpoints, percentiles_ms)
    return result.model_copy(update={"nodes": read_node_use(context, raw, run)})


def _of_slices(context: TrialContext, cell: Cell, run: CellRun, raw: Path) -> CellResult:
    """Return the sums of all turns: transactions over seconds, including those of synchronising."""
    outputs = [slice_outputs(number) for number in range(len(run.slices))]
    found = summed_results([parse_result((raw / out).read_text(encoding="utf-8")) for out, _ in outputs])
    errors = ((raw / err).read_text(encoding="utf-8", errors="replace") for _, err in outputs)
    _tell_messages(context, parse_progress("".join(errors)))
    seconds = sum(one.measured_s + one.sync_s for one in run.slices)
    last_s = run.slices[-1].began_epoch_s - run.began_epoch_s + run.slices[-1].measured_s
    began = checkpoint_rows(context.server.read_log(), run.began_epoch_s)
    checkpoints = sum(0 <= row["start_t_s"] <= last_s for row in began)
    percentiles_ms = _fetch_percentiles(context, cell, run, raw)
    result = _result(cell, run, found, _duration_s(found), checkpoints, percentiles_ms)
    scripts = tuple(one.model_copy(update={"tps": one.transactions / seconds}) for one in result.scripts)
    changes = {"tps": found.transactions / seconds, "scripts": scripts, "slices": tuple(run.slices)}
    return result.model_copy(update=changes)


def summed_results(results: Sequence[PgbenchResult]) -> PgbenchResult:
    """Return one result of the turns of a stack, without the standard deviation of latencies. Pure."""
    transactions, seconds = sum(one.transactions for one in results), sum(map(measured_s, results))
    by_script = zip(*(one.scripts for one in results), strict=True)
    return replace(
        results[0],
        transactions=transactions,
        tps=transactions / seconds if seconds else 0.0,
        duration_s=sum(one.duration_s or 0 for one in results),
        failed=sum(one.failed for one in results),
        retried=sum(one.retried for one in results),
        retries=sum(one.retries for one in results),
        skipped=sum(one.skipped for one in results),
        late=sum(one.late for one in results),
        latency_avg_ms=_mean_latency_ms(results),
        latency_stddev_ms=None,
        lag_avg_ms=None,
        lag_max_ms=None,
        scripts=tuple(_summed_script(turns, seconds) for turns in by_script),
    )


def _summed_script(turns: Sequence[ScriptResult], seconds: float) -> ScriptResult:
    transactions = sum(one.transactions for one in turns)
    return replace(
        turns[0],
        transactions=transactions,
        tps=transactions / seconds if seconds else 0.0,
        failed=sum(one.failed for one in turns),
        skipped=sum(one.skipped for one in turns),
        latency_avg_ms=_mean_latency_ms(turns),
        latency_stddev_ms=None,
    )


def _mean_latency_ms(results: Sequence[PgbenchResult] | Sequence[ScriptResult]) -> float:
    return sum((one.latency_avg_ms or 0.0) * one.transactions for one in results) / max(
        1, sum(one.transactions for one in results)
    )


def measured_s(found: PgbenchResult) -> float:
    """Return the time that pgbench's throughput refers to: without connecting."""
    return found.transactions / found.tps if found.tps else float(found.duration_s or 0)


def slice_outputs(number: int) -> tuple[str, str]:
    """Return the names of pgbench's outputs in a turn: result, and progress with errors."""
    return f"slice-{number + 1:02d}.out", f"slice-{number + 1:02d}.err"


def _tell_messages(context: TrialContext, progress: Progress) -> None:
    """Report the number of messages of server and script; pgbench's exit code and result decide about the run."""
    said = [line for line in progress.messages if not line.startswith("pgbench: ")]
    if said:
        count = f"{len(said) + progress.messages_cut:,} line{'s' * (len(said) > 1)}"
        quiet = "SET client_min_messages = error in the script keeps the server quiet"
        context.executor.tell(Notice(f"{context.trial.stack}: server or script said {count}: {said[0]!r}; {quiet}"))


def _fetch_far(context: TrialContext, cell: Cell, host: str, raw: Path) -> None:
    """Fetches the samples of another host of its nodes."""
    far, folder = context.executor.host_of(host), context.setup.cell_folder_on(host, cell)
    own = samples_of(context.setup, host)
    far.fetch(f"{folder}/{SAMPLES}", str(raw / f"{own}.jsonl"))
    far.fetch(f"{folder}/samples.err", str(raw / f"{own}.err"))
    far.remove(folder)


def _outputs(context: TrialContext) -> tuple[str, ...]:
    stack = context.setup.stack
    before = WARM_UP_OUTPUTS if context.setup.warmup_s > 0 else ()
    slices = context.trial.slices
    if slices is not None:
        before = (*before, *(name for number in range(slices.count) for name in slice_outputs(number)))
        if not has_whole_run(context.trial):
            return before
    behind = stale_reads.OUTPUTS if stale_reads.asked_s(stack) else ()
    watched = acknowledgements.OUTPUTS if acknowledgements.watched_s(stack) else ()
    return (*before, *RUN_OUTPUTS, *behind, *watched, *(pooler.OUTPUTS if context.setup.pooler else ()))


def rescue_outputs(context: TrialContext) -> None:
    """Fetches what failed runs had printed, as far as possible: nothing here may hide the error that came first."""
    for cell in context.trial.cells:
        run = context.cells.get(cell.id)
        if run is not None and not run.collected:
            _rescue(context, cell)


def _rescue(context: TrialContext, cell: Cell) -> None:
    raw = context.recorder.cell(cell.id, "raw/pgbench.out").parent
    folder = context.setup.cell_folder(cell)
    for name in _outputs(context):
        with suppress(PgstrataError, OSError):
            if not (raw / name).exists() and context.host.status(f"{folder}/{name}", follow=False) is not None:
                context.host.fetch(f"{folder}/{name}", str(raw / name))


def _fetch_percentiles(context: TrialContext, cell: Cell, run: CellRun, raw: Path) -> dict[str, float]:
    """Fetches pgbench's logs: plain files of the server's user under the names that this pgbench gave them, of no more
    bytes than a run of that length can have written."""
    workload, logs = context.setup.workload, logs_folder(context.setup.cell_folder(cell))
    slices = context.trial.slices
    left = most_log_bytes(workload, cell, slices.measured_s if slices and run.slices else context.trial.duration_s)
    names = [name for pid in run.pids for name in log_names(workload, cell, pid)]
    for name in names:
        path = f"{logs}/{name}"
        left -= context.host.fetch(path, str(raw / name), owner=context.site.user, most_bytes=left)
    return dict(context.percentiles([raw / name for name in names], cell.rate_tps is not None)) if names else {}


def log_names(workload: Workload, cell: Cell, pid: int) -> tuple[str, ...]:
    """Names of the logs of the pgbench with that pid: one for each of its threads."""
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
    """The configured length; for a run bounded by transactions, the length that results from its rate."""
    if found.duration_s is not None:
        return float(found.duration_s)
    return found.transactions / found.tps if found.tps else 0.0


def _result(
    cell: Cell,
    run: CellRun,
    found: PgbenchResult,
    duration_s: float,
    checkpoints: int,
    percentiles_ms: dict[str, float],
) -> CellResult:
    return CellResult(
        cell=cell,
        started=run.started,
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
        wal_bytes=run.wal_bytes,
        checkpoints=checkpoints,
        warmup_stable=run.settled,
        prewarmed=run.prewarmed,
        percentiles_ms=percentiles_ms,
        open_loop=cell.rate_tps is not None,
        scripts=_scripts(cell, found),
        disks=run.disks,
    )


def _scripts(cell: Cell, found: PgbenchResult) -> tuple[ScriptRun, ...]:
    names = [script.short_name for script in cell.scripts]
    return tuple(map(ScriptRun.model_validate, script_fields(found, names))) if found.scripts else ()


def fetch_server_log(context: TrialContext) -> None:
    """The server's log into `raw/postgresql.log`, if it was ever started; of a standby `raw/postgresql-NAME.log`."""
    for name, server in context.setup.servers.items():
        if server.host.status(server.log_file, follow=False) is not None:
            file = "postgresql.log" if server is context.server else f"postgresql-{name}.log"
            path = str(context.recorder.raw(file))
            server.host.fetch(server.log_file, path, owner=server.user, most_bytes=MOST_SERVER_LOG_BYTES)
