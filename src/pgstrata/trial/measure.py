"""One cell: the same state before every run, then pgbench with the probes beside it."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.errors import PgstrataError, TrialError, TrialExcluded
from pgstrata.host.facts.thermal import read_throttle_count
from pgstrata.host.protocol import HostLost, command
from pgstrata.postgres.database import Prewarmed, checkpoint, database_bytes, prewarm, wal_position_bytes
from pgstrata.record.recorder import utc_now
from pgstrata.spec.workload import Cell
from pgstrata.stack.plan import plan_empty_caches
from pgstrata.trial.bench import Bench
from pgstrata.trial.collect import LOG_PREFIX, collect_cell, logs_folder, rescue_outputs
from pgstrata.trial.probes import probing
from pgstrata.trial.site import DATABASE
from pgstrata.trial.warmup import warmup_settled
from pgstrata.workload.pgbench import BUILTIN_SCRIPTS, plan_run
from pgstrata.workload.pgbench_output import parse_progress

DROP_CACHES = "/proc/sys/vm/drop_caches"
SYNC_TIMEOUT_S = 3600.0
WARM_UP_SEED_STEP = 1
"""The warm-up must not touch the very rows in the very order of the measured run."""


@dataclass(frozen=True)
class Start:
    """How the server was brought into the state that every run begins with."""

    prewarmed: Prewarmed
    settled: bool | None
    """Whether throughput had settled at the end of the warm-up; None where that cannot be told."""


@dataclass(frozen=True)
class Measured:
    """One finished run; its output still lies on the host, in `folder`."""

    cell: Cell
    folder: str
    pid: int
    """Of pgbench, which names its logs by it."""
    started: str
    began_epoch_s: float
    """By the clock of the host."""
    wal_bytes: int
    start: Start


@dataclass(frozen=True)
class DatabaseBytes:
    """The database's logical size, asked while the server ran: before the warm-up and after the measured run."""

    before: int
    after: int


def run_cell(bench: Bench, cell: Cell) -> DatabaseBytes:
    """Measures one cell and records it; TrialError when anything is not as it should be.

    A mount option, sysctl, queue or server setting that somebody changes behind our back fails the trial.
    """
    folder = cell_folder(bench, cell)
    try:
        return _run_steps(bench, cell, folder)
    except HostLost:
        raise
    except (PgstrataError, OSError):
        rescue_outputs(bench, cell.id, folder)
        raise


def _run_steps(bench: Bench, cell: Cell, folder: str) -> DatabaseBytes:
    step, workload = bench.steps.step, bench.site.campaign.workload
    with step(f"{cell.id}: cold caches"):
        script = _prepare_folder(bench, cell, folder)
        _drop_caches(bench)
    with step(f"{cell.id}: start the server"):
        bench.cluster.start()
        before_bytes = database_bytes(bench.cluster, DATABASE)
    with step(f"{cell.id}: prewarm"):
        prewarmed = prewarm(bench.cluster, DATABASE)
    with step(f"{cell.id}: warm-up", expected_s=workload.warmup):
        start = Start(prewarmed, _warm_up(bench, cell, script))
    with step(f"{cell.id}: checkpoint"):
        checkpoint(bench.cluster)
    with step(f"{cell.id}: attest before"):
        bench.attest_stack("before cell")
        bench.attest_server("before cell")
    with step(f"{cell.id}: measure", expected_s=bench.trial.duration_s or workload.cell_duration_s(cell)):
        measured = _measure(bench, cell, folder, script, start)
    with step(f"{cell.id}: attest after"):
        bench.attest_stack("after cell")
        bench.attest_server("after cell")
    with step(f"{cell.id}: collect"):
        collect_cell(bench, measured)
    with step(f"{cell.id}: stop the server"):
        after_bytes = database_bytes(bench.cluster, DATABASE)
        bench.cluster.stop()
    return DatabaseBytes(before_bytes, after_bytes)


def cell_folder(bench: Bench, cell: Cell) -> str:
    """Where the output of a cell lies on the host until it is fetched."""
    return f"{bench.outputs}/cells/{cell.id}"


def _prepare_folder(bench: Bench, cell: Cell, folder: str) -> str | None:
    """Where the tools write; a script of the user's is sent there. Returns the script's path on the host.

    All of it is the caller's but the folder for the logs, which pgbench opens by itself.
    """
    bench.host.make_directory(folder, mode=0o710, group=bench.site.user, new=True)
    bench.host.make_directory(logs_folder(folder), mode=0o700, owner=bench.site.user, new=True)
    if cell.script in BUILTIN_SCRIPTS:
        return None
    bench.host.make_directory(f"{folder}/script", mode=0o710, group=bench.site.user, new=True)
    path = f"{folder}/script/{cell.id}.sql"  # pgbench takes FILE@WEIGHT, and a script may be called anything
    bench.host.send(cell.script, path, mode=0o644)
    return path


def _drop_caches(bench: Bench) -> None:
    """Everything on the medium, and nothing of it in memory. Without root the caches stay as they are."""
    bench.host.run(command("sync", timeout_s=SYNC_TIMEOUT_S))
    for step in plan_empty_caches(bench.plan):
        bench.host.run(step)
    if bench.site.as_root:
        bench.host.write_text(DROP_CACHES, "3\n")


def _warm_up(bench: Bench, cell: Cell, script: str | None) -> bool | None:
    workload = bench.site.campaign.workload
    if workload.warmup <= 0:
        return None
    seed = bench.trial.workload_seed + WARM_UP_SEED_STEP
    plan = plan_run(bench.target, cell, workload, seed=seed, duration_s=workload.warmup, script_path=script)
    done = bench.host.run(plan)
    bench.recorder.write_text(f"cells/{cell.id}/raw/warmup.out", done.stdout)
    bench.recorder.write_text(f"cells/{cell.id}/raw/warmup.err", done.stderr)
    return warmup_settled([row.tps for row in parse_progress(done.stderr).rows])


def _measure(bench: Bench, cell: Cell, folder: str, script: str | None, start: Start) -> Measured:
    workload = bench.site.campaign.workload
    plan = plan_run(
        bench.target,
        cell,
        workload,
        seed=bench.trial.workload_seed,
        duration_s=bench.trial.duration_s or workload.cell_duration_s(cell),
        script_path=script,
        log_prefix=f"{logs_folder(folder)}/{LOG_PREFIX}" if workload.logs(cell) else None,
    )
    wal_before, throttled_before = wal_position_bytes(bench.cluster), read_throttle_count(bench.host)
    with probing(bench, folder):
        started, began_epoch_s = utc_now(), _host_clock_s(bench)
        process = bench.host.start(plan, stdout=f"{folder}/pgbench.out", stderr=f"{folder}/pgbench.err")
        code = process.wait(plan.timeout_s)
        if code != 0:
            raise _failure(bench, folder, code)
    wal_bytes = wal_position_bytes(bench.cluster) - wal_before
    refuse_throttled(throttled_before, read_throttle_count(bench.host))
    return Measured(cell, folder, process.pid, started, began_epoch_s, wal_bytes, start)


def refuse_throttled(before: int | None, after: int | None) -> None:
    """Outcome-blind: a run on processors that were slowed down does not count, whatever its figures are."""
    if before is not None and after is not None and after > before:
        raise TrialExcluded(
            f"processors were slowed down {after - before} times during the run because they were too hot",
            hint="see to the cooling, or cap the frequency of the processors",
        )


def _host_clock_s(bench: Bench) -> float:
    return float(bench.host.run(command("date", "+%s.%N")).stdout)


def _failure(bench: Bench, folder: str, code: int) -> TrialError:
    """What pgbench said, and what the server said meanwhile: a full disk shows there."""
    said = [line for line in bench.host.read_text(f"{folder}/pgbench.err").splitlines() if "progress:" not in line]
    log = [line for line in bench.cluster.read_log().splitlines() if " PANIC: " in line or " FATAL: " in line]
    errors = [line for line in bench.cluster.read_log().splitlines() if " ERROR: " in line]
    tail = "\n".join([*said[-5:], *(log or errors)[-3:]])
    hint = ""
    if "No space left" in tail:
        hint = "give the stack a larger device (size: of its loop files), or a smaller scale"
    return TrialError(f"pgbench ended with exit code {code}: {tail}", hint=hint)
