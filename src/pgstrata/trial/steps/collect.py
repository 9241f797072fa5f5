"""Copies raw output from the host into the record, and derives numbers and series from it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pgstrata.errors import PgstrataError, TrialError
from pgstrata.probe.parse import checkpoint_rows
from pgstrata.probe.start import POSTGRES, SAMPLES
from pgstrata.record.schema import PROGRESS_COLUMNS, CellResult
from pgstrata.spec.expand import has_whole_run
from pgstrata.spec.workload import Cell
from pgstrata.trial.context import CellRun, TrialContext, TrialSetup
from pgstrata.trial.events import Notice
from pgstrata.trial.steps import acknowledgements, pooler
from pgstrata.trial.steps.probes import read_node_use, samples_of, write_probe_series
from pgstrata.workload.driver import LoadDriver, RunOutput, summed
from pgstrata.workload.tool_run import Row, ToolRun

PROBE_OUTPUTS = (SAMPLES, "samples.err", POSTGRES, "postgres.err")
"""In the folder of a cell, opened by the caller."""
WARM_UP_OUTPUTS = ("warmup.out", "warmup.err")
MOST_SERVER_LOG_BYTES = 16 << 30


def run_outputs(driver: LoadDriver) -> tuple[str, str]:
    """Return the names of a measured run's standard output and error."""
    return f"{driver.name}.out", f"{driver.name}.err"


def is_logged(setup: TrialSetup, cell: Cell) -> bool:
    """Return true if the measured runs of a cell log single transactions."""
    return setup.workload.logs(cell)


def logs_folder(folder: str) -> str:
    """Folder of the driver's logs of a cell: the only part of its folder that belongs to the server's user."""
    return f"{folder}/logs"


def collect_cell(context: TrialContext, cell: Cell) -> None:
    """Fetches the output of one run, writes `result.json` and its series, and frees the space on the host."""
    run, folder = context.cell(cell), context.setup.cell_folder(cell)
    raw = context.recorder.cell(cell.id, f"raw/{SAMPLES}").parent
    for name in _outputs(context):
        context.host.fetch(f"{folder}/{name}", str(raw / name))
    for name in _driver_outputs(context):
        context.driver_host.fetch(f"{context.setup.driver_folder(cell)}/{name}", str(raw / name))
    for host in context.setup.stack.far_hosts:
        _fetch_far(context, cell, host, raw)
    result = (_of_slices if run.slices else _of_whole_run)(context, cell, run, raw)
    if run.whole is not None:
        result = result.model_copy(update={"whole": _of_whole_run(context, cell, run.whole, raw)})
    context.recorder.write(f"cells/{cell.id}/result.json", result)
    context.host.remove(folder)
    context.driver_host.remove(context.setup.driver_folder(cell))
    run.collected = True


def _of_whole_run(context: TrialContext, cell: Cell, run: CellRun, raw: Path) -> CellResult:
    driver = context.setup.driver
    output = replace(_run_output(context, cell, raw, run_outputs(driver)), logs=_fetch_logs(context, cell, run, raw))
    found = driver.parse_run(output, cell)
    if found.incomplete:
        raise TrialError(f"{driver.name} did not finish its run: {found.incomplete}")
    _tell_messages(context, found)
    context.recorder.series(cell.id, "progress", map(_whole_row, found.progress))
    duration_s = found.result["duration_s"]
    checkpoints = write_probe_series(context, cell.id, raw, run.began_epoch_s, duration_s)
    result = cell_result(cell, run, found, checkpoints)
    return result.model_copy(update={"nodes": read_node_use(context, raw, run)})


def _whole_row(row: Row) -> Row:
    """Return a second with all columns: a driver leaves out the last ones that it does not know."""
    return (*row, *(None,) * (len(PROGRESS_COLUMNS) - len(row)))


def _of_slices(context: TrialContext, cell: Cell, run: CellRun, raw: Path) -> CellResult:
    """Return the sums of all turns: transactions over seconds, including those of synchronising."""
    driver = context.setup.driver
    outputs = [_run_output(context, cell, raw, slice_outputs(number)) for number in range(len(run.slices))]
    outputs[-1] = replace(outputs[-1], logs=_fetch_logs(context, cell, run, raw))
    found = summed([driver.parse_run(output, cell) for output in outputs])
    _tell_messages(context, found)
    seconds = sum(one.measured_s + one.sync_s for one in run.slices)
    last_s = run.slices[-1].began_epoch_s - run.began_epoch_s + run.slices[-1].measured_s
    began = checkpoint_rows(context.server.read_log(), run.began_epoch_s)
    checkpoints = sum(0 <= row["start_t_s"] <= last_s for row in began)
    result = cell_result(cell, run, found, checkpoints)
    scripts = tuple(one.model_copy(update={"tps": one.transactions / seconds}) for one in result.scripts)
    tps = result.transactions / seconds
    changes = {"tps": tps, "scripts": scripts, "slices": tuple(run.slices)}
    return result.model_copy(update=changes)


def _run_output(context: TrialContext, cell: Cell, raw: Path, names: tuple[str, str]) -> RunOutput:
    out, err = ((raw / name).read_text(encoding="utf-8", errors="replace") for name in names)
    workload = context.setup.workload
    return RunOutput(out, err, workload=workload, asked_s=context.trial.duration_s or workload.cell_duration_s(cell))


def slice_outputs(number: int) -> tuple[str, str]:
    """Return the names of the driver's outputs in a turn: result, and progress with errors."""
    return f"slice-{number + 1:02d}.out", f"slice-{number + 1:02d}.err"


def _tell_messages(context: TrialContext, found: ToolRun) -> None:
    """Report the number of messages of server and script; the driver's exit code and result decide about the run."""
    if found.messages:
        count = f"{len(found.messages):,} line{'s' * (len(found.messages) > 1)}"
        quiet = "SET client_min_messages = error in the script keeps the server quiet"
        first = found.messages[0]
        context.executor.tell(Notice(f"{context.trial.stack}: server or script said {count}: {first!r}; {quiet}"))


def _fetch_far(context: TrialContext, cell: Cell, host: str, raw: Path) -> None:
    """Fetches the samples of another host of its nodes."""
    far, folder = context.executor.host_of(host), context.setup.cell_folder_on(host, cell)
    own = samples_of(context.setup, host)
    far.fetch(f"{folder}/{SAMPLES}", str(raw / f"{own}.jsonl"))
    far.fetch(f"{folder}/samples.err", str(raw / f"{own}.err"))
    far.remove(folder)


def _driver_outputs(context: TrialContext) -> tuple[str, ...]:
    """Names of the driver's outputs, on its host."""
    before = WARM_UP_OUTPUTS if context.setup.warmup_s > 0 else ()
    slices = context.trial.slices
    turns = (name for number in range(slices.count) for name in slice_outputs(number)) if slices else ()
    return (*before, *turns, *(() if _in_slices_alone(context) else run_outputs(context.setup.driver)))


def _in_slices_alone(context: TrialContext) -> bool:
    return context.trial.slices is not None and not has_whole_run(context.trial)


def _outputs(context: TrialContext) -> tuple[str, ...]:
    """Names of the probes' outputs, on the server's host."""
    stack = context.setup.stack
    if _in_slices_alone(context):
        return ()
    behind = acknowledgements.STALE_OUTPUTS if acknowledgements.stale_s(stack) else ()
    watched = acknowledgements.WATCHED_OUTPUTS if acknowledgements.watched_s(stack) else ()
    return (
        *PROBE_OUTPUTS,
        *behind,
        *watched,
        *(pooler.OUTPUTS if context.setup.pooler else ()),
    )


def rescue_outputs(context: TrialContext) -> None:
    """Fetches what failed runs had printed, as far as possible: nothing here may hide the error that came first."""
    for cell in context.trial.cells:
        run = context.cells.get(cell.id)
        if run is not None and not run.collected:
            _rescue(context, cell)


def _rescue(context: TrialContext, cell: Cell) -> None:
    raw = context.recorder.cell(cell.id, f"raw/{SAMPLES}").parent
    outputs = [(context.host, f"{context.setup.cell_folder(cell)}/{name}") for name in _outputs(context)]
    folder = context.setup.driver_folder(cell)
    for host, path in (*outputs, *((context.driver_host, f"{folder}/{name}") for name in _driver_outputs(context))):
        kept = raw / path.rpartition("/")[2]
        with suppress(PgstrataError, OSError):
            if not kept.exists() and host.status(path, follow=False) is not None:
                host.fetch(path, str(kept))


def _fetch_logs(context: TrialContext, cell: Cell, run: CellRun, raw: Path) -> list[Path]:
    """Fetches the driver's logs: plain files of the server's user under the names that this run gave them, of no more
    bytes than a run of that length can have written."""
    setup = context.setup
    workload, driver, logs = setup.workload, setup.driver, logs_folder(setup.driver_folder(cell))
    if not is_logged(context.setup, cell):
        return []
    slices = context.trial.slices
    length_s = slices.measured_s if slices and run.slices else context.trial.duration_s
    left = driver.most_log_bytes(workload, cell, length_s or workload.cell_duration_s(cell))
    names = [name for pid in run.pids for name in driver.log_names(workload, cell, pid)]
    for name in names:
        path, user = f"{logs}/{name}", context.site.driving.user
        left -= context.driver_host.fetch(path, str(raw / name), owner=user, most_bytes=left)
    return [raw / name for name in names]


def cell_result(cell: Cell, run: CellRun, found: ToolRun, checkpoints: int | None) -> CellResult:
    """Return the record of a run; without a count of checkpoints where nobody counted."""
    named = {name: value for name, value in found.figures.items() if name in CellResult.model_fields}
    return CellResult.model_validate(
        {
            **found.result,
            **named,
            "cell": cell,
            "started": run.started,
            "wal_bytes": run.wal_bytes,
            "checkpoints": checkpoints,
            "warmup_stable": run.settled,
            "prewarmed": run.prewarmed,
            "open_loop": cell.rate_tps is not None,
            "disks": run.disks,
            "others": run.others,
            "client": run.client,
            "extra": {name: value for name, value in found.figures.items() if name not in named},
        }
    )


def fetch_server_log(context: TrialContext) -> None:
    """The server's log into `raw/postgresql.log`, if it was ever started; of a standby `raw/postgresql-NAME.log`."""
    for name, server in context.setup.servers.items():
        if server.host.status(server.log_file, follow=False) is not None:
            file = "postgresql.log" if server is context.server else f"postgresql-{name}.log"
            path = str(context.recorder.raw(file))
            server.host.fetch(server.log_file, path, owner=server.user, most_bytes=MOST_SERVER_LOG_BYTES)
