"""One cell: the same state before every run, then the load with the probes beside it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

from pgstrata.errors import TrialError, TrialExcluded
from pgstrata.host.capabilities import DROP_CACHES
from pgstrata.host.facts.cpu import read_throttle_count
from pgstrata.host.protocol import Command, ProcessorSeconds, command
from pgstrata.postgres.database import (
    WAL_POSITION,
    database_bytes,
    plan_checkpoint,
    plan_database_bytes,
    plan_prewarm,
    prewarm,
    wal_position_bytes,
)
from pgstrata.record.recorder import utc_now
from pgstrata.record.schema import ClientUse, Moment, OthersUse, SliceResult
from pgstrata.spec.expand import has_whole_run
from pgstrata.spec.workload import Cell
from pgstrata.stack.plan import plan_empty_caches
from pgstrata.stack.step import PlannedCommand, Step
from pgstrata.trial.context import CellRun, TrialContext, TrialSetup
from pgstrata.trial.steps.acknowledgements import LONGER_S, acknowledgement_steps, stale_s, stale_steps, watched_s
from pgstrata.trial.steps.cluster import (
    admission_steps,
    attest_cluster,
    prewarm_commands,
    prewarm_standbys,
    start_commands,
    start_servers,
    stop_commands,
    stop_servers,
    wait_for_run,
)
from pgstrata.trial.steps.collect import (
    WARM_UP_OUTPUTS,
    collect_cell,
    is_logged,
    logs_folder,
    run_outputs,
    slice_outputs,
)
from pgstrata.trial.steps.disk_accounts import (
    disks_used,
    plan_accounts,
    read_accounts,
    refuse_untimed,
    summed_use,
    timing_steps,
)
from pgstrata.trial.steps.load import check_data, data_request
from pgstrata.trial.steps.pooler import attest_pooler, read_sent, sent_between, start_pooler_steps, stop_pooler_steps
from pgstrata.trial.steps.probes import plan_probes, probing
from pgstrata.trial.survey.host_survey import DATABASE, Site
from pgstrata.workload.driver import RunOutput, RunRequest, measured_s

SYNC_TIMEOUT_S = 3600.0
WARM_UP_SEED_STEP, STALE_SEED_STEP, WATCHED_SEED_STEP, SLICE_SEED_STEP = 1, 2, 3, 4
"""Seed offsets of further loads, which must not touch the same rows in the same order as the measured run."""
HOST_CLOCK = command("date", "+%s.%N")


CellAct = Callable[..., None]
"""Takes the trial's context and, by name, the cell."""
WINDOWS = 5
"""Parts of a warm-up whose means are compared."""
SETTLED_RANGE = 0.20
SETTLED_TREND = 0.10
_OUR_PROGRAMS = ("strata-disk",)
ROUND_TRIPS, ROUND_TRIP_TIMEOUT_S = 50, 60.0
_TIMED = re.compile(r"^Time: (\d+(?:\.\d+)?) ms", re.MULTILINE)


def cell_steps(setup: TrialSetup, cell: Cell) -> tuple[Step, ...]:
    """Measure one cell and record it: in one run, or in the trial's slices and in some blocks a whole run after them.

    A mount option, sysctl, queue or server setting that somebody changes behind our back fails the trial.
    """
    server, step = setup.server, partial(_step, setup, cell)
    size = plan_database_bytes(server, DATABASE)
    warm_up = (_plan_beside(setup, cell, WARM_UP_SEED_STEP, setup.warmup_s),) if setup.warmup_s > 0 else ()
    stale_load = _plan_beside(setup, cell, STALE_SEED_STEP, stale_s(setup.stack) + LONGER_S)
    watched_load = _plan_beside(setup, cell, WATCHED_SEED_STEP, watched_s(setup.stack) + LONGER_S)
    several = "s" if setup.standbys else ""
    return (
        _cold_step(setup, cell),
        *_far_cold_steps(setup, cell),
        step(f"start the server{several}", *start_commands(setup), size, act=_start, begins_turn=True),
        *(() if setup.stack.topology else admission_steps(setup)),
        *_round_trip_steps(setup, cell),
        step("prewarm", plan_prewarm(server, DATABASE), *prewarm_commands(setup), act=_prewarm),
        *start_pooler_steps(setup, cell),
        *timing_steps(setup, cell, on=True),
        *(step("warm-up", run, act=_warm_up, expected_s=setup.warmup_s, begins_turn=True) for run in warm_up),
        Step(
            f"{cell.id}: checkpoint",
            tuple(c for one in setup.servers.values() for c in one.planned(plan_checkpoint(one))),
        ),
        step("attest before", act=partial(_attest, moment="before cell")),
        *_slice_steps(setup, cell),
        *_whole_steps(setup, cell),
        *stale_steps(setup, cell, stale_load),
        *acknowledgement_steps(setup, cell, watched_load),
        step("attest after", act=partial(_attest, moment="after cell"), begins_turn=True),
        *timing_steps(setup, cell, on=False),
        *stop_pooler_steps(setup, cell),
        step("collect", act=collect_cell),
        *_check_steps(setup, cell),
        step(f"stop the server{several}", size, *stop_commands(setup), act=_stop),
    )


def _step(
    setup: TrialSetup,
    cell: Cell,
    name: str,
    *commands: Command | PlannedCommand,
    act: CellAct,
    expected_s: float | None = None,
    progress: str | None = None,
    begins_turn: bool = False,
) -> Step:
    """A step of a cell; turns begin in trials with slices alone."""
    return Step(
        f"{cell.id}: {name}",
        tuple(c if isinstance(c, PlannedCommand) else PlannedCommand.of(c) for c in commands),
        act=partial(act, cell=cell),
        expected_s=expected_s,
        progress=progress,
        begins_turn=begins_turn and setup.trial.slices is not None,
    )


def _round_trip_steps(setup: TrialSetup, cell: Cell) -> Iterator[Step]:
    """Yield the time of the network between client and server; none for a client on the server's host."""
    if setup.client:
        ask = setup.target.psql(
            "\\timing on\n" + "SELECT;\n" * ROUND_TRIPS, "--no-password", timeout_s=ROUND_TRIP_TIMEOUT_S
        )
        yield _step(setup, cell, "round trip of the client", *setup.driving(ask), act=_time_round_trip)


def _check_steps(setup: TrialSetup, cell: Cell) -> Iterator[Step]:
    """Yield the check of the data after the run; none where the driver has no conditions, or the data is another."""
    commands = setup.driver.plan_check(data_request(setup), fresh=False) if setup.workload.scaled else ()
    if commands:
        yield _step(setup, cell, "check the data", *setup.driving(*commands), act=_check)


def _whole_steps(setup: TrialSetup, cell: Cell) -> tuple[Step, ...]:
    """Return the measured run; after slices only in some blocks."""
    if setup.trial.slices and not has_whole_run(setup.trial):
        return ()
    wal = setup.server.ask(WAL_POSITION)
    whole = _step(
        setup,
        cell,
        "whole run after the slices" if setup.trial.slices else "measure",
        wal,
        *plan_probes(setup),
        *plan_accounts(setup),
        HOST_CLOCK,
        _plan_measured(setup, cell),
        *plan_accounts(setup),
        wal,
        act=_measure,
        expected_s=_whole_s(setup, cell),
        progress=None if setup.client else f"{setup.cell_folder(cell)}/{run_outputs(setup.driver)[1]}",
        begins_turn=True,
    )
    return (whole,)


def _slice_steps(setup: TrialSetup, cell: Cell) -> Iterator[Step]:
    """Yield the turns of a stack beside others; none for a trial that runs alone."""
    slices, wal = setup.trial.slices, setup.server.ask(WAL_POSITION)
    for number in range(slices.count if slices else 0):
        yield _step(
            setup,
            cell,
            f"slice {number + 1}",
            wal,
            *plan_accounts(setup),
            HOST_CLOCK,
            _plan_slice(setup, cell, number),
            HOST_CLOCK,
            *plan_sync_data(setup),
            HOST_CLOCK,
            *plan_accounts(setup),
            wal,
            act=partial(_measure_slice, number=number),
            expected_s=slices.length if slices else None,
            begins_turn=True,
        )


def _whole_s(setup: TrialSetup, cell: Cell) -> float | None:
    return setup.trial.duration_s or setup.workload.cell_duration_s(cell)


def _cold_step(setup: TrialSetup, cell: Cell) -> Step:
    """Write everything to the medium, and drop the host's caches if possible."""
    sync = command("sync", timeout_s=SYNC_TIMEOUT_S)
    tells = _told_of_drop(setup.site)
    tells = [*(f"send {script} to {path}" for script, path in _script_paths(setup, cell).items()), *tells]
    return Step(
        f"{cell.id}: cold caches",
        tuple(PlannedCommand.of(c) for c in (sync, *plan_empty_caches(setup.plan))),
        act=partial(_cool, cell=cell),
        tells=tuple(tells),
        host_wide=not setup.site.caches_kept,
        begins_turn=setup.trial.slices is not None,
    )


def _far_cold_steps(setup: TrialSetup, cell: Cell) -> Iterator[Step]:
    """The same on every other host of its nodes."""
    for host in setup.stack.far_hosts:
        site = setup.site.sites[host]
        commands = (command("sync", timeout_s=SYNC_TIMEOUT_S), *plan_empty_caches(setup.plan, host))
        cool = Step(
            f"{cell.id}: cold caches",
            tuple(map(PlannedCommand.of, commands)),
            act=partial(_cool_far, cell=cell, far=host),
            tells=tuple(_told_of_drop(site)),
            host_wide=not site.caches_kept,
        )
        yield cool.on(host)


def _told_of_drop(site: Site) -> list[str]:
    return [] if site.caches_kept else [f"write '3' to {DROP_CACHES}"]


def _drop_caches(site: Site) -> None:
    if not site.caches_kept:
        site.host.write_text(DROP_CACHES, "3\n")


def _script_paths(setup: TrialSetup, cell: Cell) -> dict[str, str]:
    """Return the paths of the driver's files on the host."""
    folder = f"{setup.driver_folder(cell)}/script"
    return {path: f"{folder}/{name}" for path, name in setup.driver.files(setup.workload, cell).items()}


def _plan_beside(setup: TrialSetup, cell: Cell, seed_step: int, duration_s: float) -> PlannedCommand:
    """Return the load of the measured run, for a run before or after it."""
    return plan_load(setup, cell, seed_step, duration_s, logged=False)


def _plan_measured(setup: TrialSetup, cell: Cell) -> PlannedCommand:
    return plan_load(setup, cell, 0, _whole_s(setup, cell), logged=is_logged(setup, cell))


def _plan_slice(setup: TrialSetup, cell: Cell, number: int) -> PlannedCommand:
    """Return one turn of the load; each touches other rows than the whole run and the turns before it."""
    length_s = setup.trial.slices.length if setup.trial.slices else None
    return plan_load(setup, cell, SLICE_SEED_STEP * (number + 1), length_s, logged=is_logged(setup, cell))


def plan_load(
    setup: TrialSetup, cell: Cell, seed_step: int, duration_s: float | None, *, logged: bool
) -> PlannedCommand:
    """Return one run of the driver."""
    run = setup.driver.plan_run(
        RunRequest(
            setup.driven,
            setup.workload,
            cell,
            seed=setup.trial.workload_seed + seed_step,
            duration_s=duration_s,
            folder=logs_folder(setup.driver_folder(cell)),
            files=_script_paths(setup, cell),
            logged=logged,
        )
    )
    return PlannedCommand.of(run, setup.client)


# ---------------------------------------------------------------- what the steps do


def _cool(context: TrialContext, *, cell: Cell) -> None:
    prepare_folder(context, cell)
    context.executor.run_rest()
    _drop_caches(context.site)


def _cool_far(context: TrialContext, *, cell: Cell, far: str) -> None:
    site = context.site.sites[far]
    site.host.make_directory(context.setup.cell_folder_on(far, cell), mode=0o710, group=site.user, new=True)
    context.executor.run_rest()
    _drop_caches(site)


def prepare_folder(context: TrialContext, cell: Cell) -> None:
    """Create the folders for output, and send the driver's files to its own.

    They belong to the caller, except for the folder of the logs, which the driver opens by itself.
    """
    host, user, folder = context.driver_host, context.site.driving.user, context.setup.driver_folder(cell)
    context.cell(cell)  # from now on there may be something to rescue
    for name in dict.fromkeys(("", context.setup.client)):
        site, own = context.site.sites[name], context.setup.cell_folder_on(name, cell)
        site.host.make_directory(own, mode=0o710, group=site.user, new=True)
    host.make_directory(logs_folder(folder), mode=0o700, owner=user, new=True)
    paths = _script_paths(context.setup, cell)
    if paths:
        host.make_directory(f"{folder}/script", mode=0o710, group=user, new=True)
    for script, path in paths.items():
        host.send(script, path, mode=0o755 if os.access(script, os.X_OK) else 0o644)


def _start(context: TrialContext, *, cell: Cell) -> None:
    start_servers(context)
    context.cell(cell).database_bytes_before = database_bytes(context.server, DATABASE)


def _time_round_trip(context: TrialContext, *, cell: Cell) -> None:
    times = [float(found) for found in _TIMED.findall(context.executor.run_next().stdout)]
    context.cell(cell).round_trip_ms = median(times) if times else None


def _prewarm(context: TrialContext, *, cell: Cell) -> None:
    context.cell(cell).prewarmed = prewarm(context.server, DATABASE)
    prewarm_standbys(context)


def _warm_up(context: TrialContext, *, cell: Cell) -> None:
    out, err = (f"{context.setup.driver_folder(cell)}/{name}" for name in WARM_UP_OUTPUTS)
    _run_load(context, out, err)
    seconds = context.setup.driver.parse_seconds(context.driver_host.read_text(err))
    context.cell(cell).settled = warmup_settled([row[1] or 0.0 for row in seconds])


def _run_load(context: TrialContext, out: str, err: str) -> int:
    """Run the step's next command, a load, to its end; return its pid. TrialError if it failed."""
    process, planned = context.executor.start_next(stdout=out, stderr=err)
    code = wait_for_run(context, process, planned.timeout_s)
    if code != 0:
        raise load_failure(context, err, code)
    return process.pid


def _attest(context: TrialContext, *, cell: Cell, moment: Moment) -> None:
    context.attest_stack(moment)
    context.attest_server(moment)
    attest_cluster(context, moment)
    attest_pooler(context, moment)
    if moment == "before cell":
        context.record_settings()


def _measure(context: TrialContext, *, cell: Cell) -> None:
    run, folder = context.cell(cell), context.setup.driver_folder(cell)
    if run.slices:
        run.whole = run = CellRun()
    with _counting_wal(context, run), probing(context, cell):
        sent = read_sent(context)
        counted, looked, at_client = read_accounts(context), read_processors(context), _read_client(context)
        run.started, run.began_epoch_s = utc_now(), float(context.executor.run_next().stdout)
        run.pids.append(_run_load(context, *(f"{folder}/{name}" for name in run_outputs(context.setup.driver))))
        run.others = others_use(looked, read_processors(context))
        run.client = _client_use(context, run, at_client)
        run.disks = disks_used(counted, read_accounts(context))
        refuse_untimed(run.disks)
        run.sent = sent_between(sent, read_sent(context))


@contextmanager
def _counting_wal(context: TrialContext, run: CellRun) -> Iterator[None]:
    """Add the WAL of the block to that of the run. TrialExcluded if processors were slowed down meanwhile."""
    throttled_before, wal_before = _throttled(context), wal_position_bytes(context.server)
    yield
    run.wal_bytes += wal_position_bytes(context.server) - wal_before
    for before, after in zip(throttled_before, _throttled(context), strict=True):
        refuse_throttled(before, after)


def _measure_slice(context: TrialContext, *, cell: Cell, number: int) -> None:
    """Run one turn: the load, then write everything to the medium."""
    run, folder = context.cell(cell), context.setup.driver_folder(cell)
    with _counting_wal(context, run):
        counted, looked = read_accounts(context), read_processors(context)
        began_epoch_s = float(context.executor.run_next().stdout)
        if not run.slices:
            run.started, run.began_epoch_s = utc_now(), began_epoch_s
        out, err = (f"{folder}/{name}" for name in slice_outputs(number))
        run.pids.append(_run_load(context, out, err))
        ended_epoch_s = float(context.executor.run_next().stdout)
        for _ in plan_sync_data(context.setup):
            context.executor.run_next()
        sync_s = max(0.0, float(context.executor.run_next().stdout) - ended_epoch_s)
        others = others_use(looked, read_processors(context))
        run.others = others if run.others is None else run.others + others
        used = disks_used(counted, read_accounts(context))
        refuse_untimed(used)
        run.disks = summed_use(run.disks, used)
        output = RunOutput(context.host.read_text(out), context.host.read_text(err))
        found = context.setup.driver.parse_run(output, cell)
        run.slices.append(
            SliceResult(
                began_epoch_s=began_epoch_s,
                transactions=found.result["transactions"],
                measured_s=measured_s(found),
                sync_s=sync_s,
                others=others,
            )
        )


def plan_sync_data(setup: TrialSetup) -> tuple[Command, ...]:
    """Write everything of the server's filesystems to the medium: one command for each."""
    places = setup.server.layout.places
    return tuple(command("sync", "--file-system", folder, timeout_s=SYNC_TIMEOUT_S) for folder in places)


def _check(context: TrialContext, *, cell: Cell) -> None:
    check_data(context, fresh=False)


def _stop(context: TrialContext, *, cell: Cell) -> None:
    context.cell(cell).database_bytes_after = database_bytes(context.server, DATABASE)
    stop_servers(context)


def _throttled(context: TrialContext) -> list[int | None]:
    """Return how often the processors of each host have been slowed down."""
    found = []
    for host in (context.host, *context.executor.elsewhere.values()):
        with host.looking():
            found.append(read_throttle_count(host))
    return found


def refuse_throttled(before: int | None, after: int | None) -> None:
    """Raise TrialExcluded for a run on throttled processors, whatever its figures are."""
    if before is not None and after is not None and after > before:
        raise TrialExcluded(
            f"processors were slowed down {after - before} times during the run because they were too hot",
            hint="see to the cooling, or cap the frequency of the processors",
        )


def load_failure(context: TrialContext, errors_file: str, code: int) -> TrialError:
    """Return the error with the output of the driver and the server's log, which shows a full disk."""
    said = [line for line in context.driver_host.read_text(errors_file).splitlines() if "progress:" not in line]
    log = [line for line in context.server.read_log().splitlines() if " PANIC: " in line or " FATAL: " in line]
    errors = [line for line in context.server.read_log().splitlines() if " ERROR: " in line]
    tail = "\n".join([*said[-5:], *(log or errors)[-3:]])
    hint = ""
    if "No space left" in tail:
        hint = "give the stack a larger device (size: of its loop files), or a smaller scale"
    return TrialError(f"{context.setup.driver.name} ended with exit code {code}: {tail}", hint=hint)


def warmup_settled(tps: Sequence[float]) -> bool | None:
    """Return if a load had settled, by one value a second; None when there are fewer seconds than windows.

    The rule of the SNIA Performance Test Specification, 2.0.1, "steady state": five windows of equal length, whose
    means range over at most 20 % of the overall mean, and the straight line through them rises or falls by at most 10 %
    of it.
    """
    width = len(tps) // WINDOWS
    if width < 1:
        return None
    tail = tps[len(tps) - width * WINDOWS :]
    means = [sum(tail[i * width : (i + 1) * width]) / width for i in range(WINDOWS)]
    mean = sum(means) / WINDOWS
    if mean <= 0:
        return False
    middle = (WINDOWS - 1) / 2
    slope = sum((i - middle) * m for i, m in enumerate(means)) / sum((i - middle) ** 2 for i in range(WINDOWS))
    return max(means) - min(means) <= SETTLED_RANGE * mean and abs(slope) * (WINDOWS - 1) <= SETTLED_TREND * mean


@dataclass(frozen=True)
class ProcessorsLook:
    """The counters of the host at one moment."""

    at_s: float
    """By the monotonic clock of this machine."""
    counted: ProcessorSeconds


def read_processors(context: TrialContext) -> ProcessorsLook:
    """Return the counters of the server's host now."""
    with context.host.looking():
        counted = context.host.processor_seconds((context.site.user,), _OUR_PROGRAMS)
    return ProcessorsLook(time.monotonic(), counted)


def _read_client(context: TrialContext) -> ProcessorsLook | None:
    """Return the counters of the client's host now; None where it is the server's."""
    if not context.setup.client:
        return None
    with context.driver_host.looking():
        counted = context.driver_host.processor_seconds((), ())
    return ProcessorsLook(time.monotonic(), counted)


def _client_use(context: TrialContext, run: CellRun, before: ProcessorsLook | None) -> ClientUse | None:
    """Return the work of the client's host since a look at it."""
    now = _read_client(context)
    if before is None or now is None:
        return None
    return ClientUse(
        host=context.setup.client,
        busy_s=max(0.0, now.counted.busy_s - before.counted.busy_s),
        elapsed_s=max(0.0, now.at_s - before.at_s),
        processors=now.counted.processors,
        round_trip_ms=run.round_trip_ms,
    )


def others_use(before: ProcessorsLook, after: ProcessorsLook) -> OthersUse:
    """Return the time between two looks that was neither the kernel's threads' nor ours.

    Processes are counted in clock ticks, so that a difference of a few hundredths of a second means nothing.
    """
    then, now = before.counted, after.counted
    return OthersUse(
        used_s=max(0.0, (now.busy_s - then.busy_s) - (now.own_s - then.own_s)),
        stolen_s=max(0.0, now.stolen_s - then.stolen_s),
        elapsed_s=max(0.0, after.at_s - before.at_s),
        processors=now.processors,
    )
