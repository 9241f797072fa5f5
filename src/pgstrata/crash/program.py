"""A crash trial as a program: the ledger is recorded, states are chosen from the log, each is mounted and recovered.

The first part is known beforehand. The states are known after a pass over the log, and the steps that check them are
created then: one for a batch of states, with a command for each worker, whose job lies in a file. `trial.executor`
holds both to the plan.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from pgstrata.crash.event_log_archive import state_file
from pgstrata.crash.job import (
    FAULTS,
    CrashPlaces,
    Portion,
    Seen,
    WorkerOutput,
    asked_checks,
    base_backup,
    describe_states,
    extensions_of,
    failover_steps,
    fitting_workers,
    ledger_size,
    look,
    plan_stages,
    plan_take_down,
    plan_workers,
    portions_of,
    recorded_disks,
    render_fault,
    seen_by,
    undos_of_stages,
)
from pgstrata.crash.ledger import (
    BEGIN,
    END,
    FAULT,
    LedgerSize,
    Mark,
    acknowledged_by,
    count_flushes,
    count_marks,
    lost_time_s,
    parse_answers,
    parse_marks,
    plan_client,
    render_schema,
)
from pgstrata.crash.ledger_client import CHECKPOINT, RECORDING
from pgstrata.crash.script import LEDGER, SCRIPTS
from pgstrata.crash.verdict import Examination, Judged, Recovery, judge_state
from pgstrata.errors import TrialError, parser_of
from pgstrata.host.protocol import Command, CommandFailed, Completed
from pgstrata.postgres.server import Server
from pgstrata.record.crash import StateRecord
from pgstrata.record.schema import PlannedRecord
from pgstrata.spec.campaign import Trial
from pgstrata.spec.crash_request import SHOWN, CrashRequest
from pgstrata.stack.block.media import call, plan_serve, undos_of
from pgstrata.stack.step import PlannedCommand, Step, planned
from pgstrata.stack.undoing import again_while_busy
from pgstrata.trial.context import TrialContext, TrialSetup
from pgstrata.trial.program import Program, folder_steps, memory_steps, plan_built, standing_steps
from pgstrata.trial.steps.cluster import admission_steps, attest_cluster, join_steps, start_commands, start_servers
from pgstrata.trial.steps.collect import run_outputs
from pgstrata.trial.steps.load import fill_step
from pgstrata.trial.steps.measure import load_failure, plan_load, prepare_folder
from pgstrata.trial.survey.host_survey import Site

LOAD_LASTS = 10
"""Length of a load in times of the ledger's: it is ended when that is complete."""
ENUMERATION_TIMEOUT_S = 1800.0
STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ChosenState:
    """A state printed by `strata-disk states`: the line that makes it, and its description for the record."""

    line: str
    id: int
    cut: int
    how: str
    volatile: int
    kept: int
    digest: str
    drawn: int | None = None
    """Its flush epoch if it was drawn by lot, as the only state of that epoch; None if it was chosen."""


@parser_of("strata-disk states")
def parse_states(text: str) -> tuple[ChosenState, ...]:
    return tuple(_parse_state(line) for line in text.splitlines())


def _parse_state(line: str) -> ChosenState:
    given = json.loads(line)
    return ChosenState(
        line=line,
        id=int(given["id"]),
        cut=int(given["cut"]),
        how=str(given["how"]),
        volatile=int(given["volatile"]),
        kept=int(given["kept"]),
        digest=str(given["digest"]),
        drawn=given.get("drawn"),
    )


@dataclass
class CrashContext(TrialContext):
    """A running crash trial."""

    request: CrashRequest = field(default_factory=CrashRequest)
    marks: tuple[Mark, ...] = ()
    flushes: int = 0
    """Number of completed flushes in which power could be lost."""
    checkpoints: int = 0
    recordings: int = 0
    chosen: tuple[ChosenState, ...] = ()
    """States of the last pass over the log, without those whose content was seen before."""
    seen: set[str] = field(default_factory=set)
    found: list[StateRecord] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    """The lines that make the states found in the transactions' log."""
    panicked: bool = False
    """True if the server panicked while the ledger was written."""
    problem: str = ""
    """Reason why a worker could not continue: its leftovers would obstruct further states. Empty while all can."""
    explored: bool = False
    """True once the search for states is complete."""
    packed_log: bytes = b""
    """The condensed event log, if remote workers check its states."""

    @property
    def size(self) -> LedgerSize:
        return ledger_size(self.request)


@dataclass(frozen=True)
class Batch:
    """States of one pass over an event log that are checked in one step; `seconds` ends it early, between two."""

    name: str
    """Prefix of its states' ids: the number of the pass, or the state whose recovery they interrupt."""
    log: str
    states: tuple[ChosenState, ...]
    seconds: float | None = None
    examined: frozenset[int] = frozenset()
    """States whose files and filesystems are read completely."""
    interrupts: ChosenState | None = None
    """The state whose recovery they interrupt: the acknowledgements at its cut apply."""

    def id_of(self, state: ChosenState) -> str:
        return f"{self.name}.{state.id}"


def crash_program(site: Site, trial: Trial, request: CrashRequest) -> Program:
    """The part that is known beforehand: build, record, take down, and a daemon for the states."""

    def record(setup: TrialSetup) -> tuple[Step, ...]:
        return (_record_step(setup, request), *_down_steps(setup), *serve_steps(setup, request))

    return ledger_program(site, trial, ledger_size(request), record)


def ledger_program(
    site: Site, trial: Trial, size: LedgerSize, further: Callable[[TrialSetup], tuple[Step, ...]]
) -> Program:
    """Build the stack, make the ledger on it and start all of its servers; `further` returns the steps after that."""
    plan = plan_built(site, trial)
    setup = TrialSetup.of(site, trial, plan)
    return Program(
        setup=setup,
        stack_plan=plan,
        before=(),
        build=(*folder_steps(setup), *plan.steps, *memory_steps(setup)),
        prepare=(*standing_steps(setup), *ledger_steps(setup, size), *cluster_steps(setup)),
        measure=(*start_cluster_steps(setup), *further(setup)),
        keeps=frozenset(),
    )


def planned_record(program: Program, further: Sequence[Step]) -> PlannedRecord:
    """The program with the steps added since."""
    return replace(program, measure=(*program.measure, *further)).planned


def ledger_steps(setup: TrialSetup, size: LedgerSize) -> tuple[Step, ...]:
    """A running server with an empty ledger, or with pgbench's tables."""
    server, postgres = setup.server, setup.stack.postgresql
    settings = tuple(f"{name} = {value}" for name, value in setup.site.settings_of(setup.stack).items())
    mount_points = [volume.mount_point for volume in setup.plan.volumes]
    write_back = (command for stage in plan_stages(setup.plan.volumes) for command in stage.write_back)
    schema = server.plan_execute(render_schema(size, extensions_of(setup)))
    return (
        Step("initdb", server.planned(*server.plan_init(postgres.data_checksums, postgres.initdb)), act=_initdb),
        Step(
            "settings of the server",
            server.planned(*server.plan_configure()),
            act=CrashContext.configure_server,
            tells=settings,
        ),
        Step("start the server", server.planned(server.plan_start()), act=_start),
        *((*admission_steps(setup), fill_step(setup)) if size.spread_s else ()),
        Step(
            "make the ledger" if size.script is LEDGER else f"make the tables of {size.script.shown}",
            (*server.planned(schema), planned("sync", "--file-system", *mount_points), *write_back),
        ),
    )


def _record_step(setup: TrialSetup, request: CrashRequest) -> Step:
    size = ledger_size(request)
    seed, fault = setup.trial.workload_seed, render_fault(request.fault, setup.plan, size)
    client = plan_client(f"{CrashPlaces.of(setup).recorded}/control", setup.server, size, seed, fault)
    tells = [f"{size.sessions} sessions of {size.transactions} transactions, each marked once it is acknowledged"]
    tells += [f"halfway: {FAULTS[request.fault].about}"] if request.fault else []
    load = [plan_load(setup, setup.workload.cells[0], 0, LOAD_LASTS * size.spread_s, logged=False)] * (
        size.spread_s > 0
    )
    tells += ["the load is ended after them"] if load else []
    return Step(
        f"record {SHOWN[request.script]}", (*load, *setup.server.planned(client)), act=_record, tells=tuple(tells)
    )


def _down_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Takes down the recorded stack before a state of it comes up: both have the same identity."""
    nodes = [node for volume in setup.plan.volumes for node in volume.media]
    recorded = CrashPlaces.of(setup).recorded
    down = (
        *plan_take_down(plan_stages(setup.plan.volumes)),
        call("detach", recorded, *nodes),
        call("stop", recorded),
    )
    return (
        Step(
            f"stop the server{'s' * (len(setup.servers) > 1)} at once",
            tuple(c for one in setup.servers.values() for c in one.planned(one.plan_stop("immediate", STOP_TIMEOUT_S))),
            act=_stop,
        ),
        Step("take the recorded disks down", down, act=_take_down),
    )


def serve_steps(setup: TrialSetup, request: CrashRequest) -> tuple[Step, ...]:
    """A daemon for each worker; it reads the event log once."""
    return tuple(_serve_step(setup, worker) for worker in range(fitting_workers(setup, request.workers)))


def _serve_step(setup: TrialSetup, worker: int) -> Step:
    folder = CrashPlaces.of(setup).states(worker)
    files = tuple(f"{folder}/disks/{disk.name}" for disk in recorded_disks(setup.plan.volumes))
    return Step(
        f"daemon for the states of worker {worker + 1}",
        (plan_serve(folder),),
        undo=(*undos_of(folder, files), *undos_of_stages(plan_stages(setup.plan.volumes))),
    )


def choose_step(setup: TrialSetup, request: CrashRequest, number: int, most: int) -> Step:
    """One pass over the event log; another number yields other states."""
    log = CrashPlaces.of(setup).log
    states = plan_states(request, log, most, setup.trial.workload_seed + number, FAULT if request.fault else BEGIN)
    return Step(f"choose states, pass {number + 1}", (states, call("marks", log)), act=_choose)


def plan_states(request: CrashRequest, log: str, most: int, seed: int, after: str) -> PlannedCommand:
    """Prints states of an event log with power lost after this mark."""
    states = call(
        "states", log, "--states", str(most), "--seed", str(seed),
        "--after", after, "--until", END, "--ignore-flushes", request.ignore_flushes,
    )  # fmt: skip
    return replace(states, timeout_s=ENUMERATION_TIMEOUT_S)


def states_step(setup: TrialSetup, request: CrashRequest, batch: Batch) -> Step:
    """Every worker attaches, mounts, recovers and reads its states one after the other, and takes each down again."""
    portions = portions_of(setup, batch.states, request.workers)
    first, last = (batch.id_of(batch.states[at]) for at in (0, -1))
    cuts = ", ".join(str(state.cut) for state in batch.states)
    tells = (*describe_states(setup, SCRIPTS[request.script], request.gone), f"power is lost after the events {cuts}")
    act = partial(_look, batch=batch, portions=portions)
    return Step(f"states {first} to {last}", plan_workers(setup, portions), act=act, tells=tells)


# ---------------------------------------------------------------- what the steps do


def _initdb(context: CrashContext) -> None:
    asked = context.plan.stack.postgresql
    context.server.init(data_checksums=asked.data_checksums, options=asked.initdb)


def _start(context: CrashContext) -> None:
    context.server.start()
    if not context.setup.standbys:  # of a cluster all servers are, once they run
        context.attest_server("built")


def _record(context: CrashContext) -> None:
    with _loading(context) if context.size.spread_s else nullcontext():
        done = context.executor.run_next(check=False)
    context.recorder.write_text("raw/ledger.json", done.stdout)
    if done.exit_code != 0:
        why = done.stdout.strip() or done.stderr.strip()[-500:]
        raise TrialError(f"{context.size.script.shown} could not be written: {why}")


@contextmanager
def _loading(context: CrashContext) -> Iterator[None]:
    """Runs the load meanwhile. TrialError if it failed before it was ended; a fault of the disk may end it."""
    cell = context.setup.workload.cells[0]
    prepare_folder(context, cell)
    out, err = (f"{context.setup.cell_folder(cell)}/{name}" for name in run_outputs(context.setup.driver))
    process, _ = context.executor.start_next(stdout=out, stderr=err)
    yield
    code = process.poll()
    if code is None:
        process.stop()
    elif code != 0 and context.request.fault is None:
        raise load_failure(context, err, code)
    context.recorder.write_text("raw/load-beside.err", context.host.read_text(err))


def _runs(server: Server) -> bool:
    """Return False also for a server whose disk is gone with the file that names its process: what is left of it is
    ended by its mark."""
    try:
        return server.running()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return False


def _stop(context: CrashContext) -> None:
    for server in context.setup.servers.values():
        if _runs(server):
            server.crash_stop(STOP_TIMEOUT_S)
        else:  # a fault ended it before
            context.executor.run_next(check=False)
    # children may outlive a postmaster by a moment, and keep the filesystem busy
    context.host.stop_marked(context.server.marker)
    context.panicked = "PANIC:" in context.server.read_log()


def _take_down(context: CrashContext) -> None:
    """Retries while another program, such as a scan for btrfs, keeps a device busy."""
    while context.executor.has_next:
        again = partial(_again, context, context.executor.next_command())
        ended = again_while_busy(context.executor.run_next(check=False), again)
        if ended.exit_code != 0:
            raise CommandFailed(context.host.name, ended)


def _again(context: CrashContext, command: Command) -> Completed:
    with context.host.looking():  # the plan has it once
        return context.host.run(command, check=False)


def _choose(context: CrashContext) -> None:
    take_new(context)
    marks = context.executor.run_next().stdout
    context.marks = parse_marks(marks)
    context.flushes = count_flushes(marks, FAULT if context.request.fault else BEGIN, END)
    context.checkpoints, context.recordings = (count_marks(marks, of) for of in (CHECKPOINT, RECORDING))
    wanted = context.size.sessions * context.size.transactions
    if len(context.marks) != wanted and context.request.fault is None:
        raise TrialError(f"the event log has {len(context.marks)} of {wanted} acknowledgements")


def take_new(context: CrashContext) -> None:
    """Runs the command that prints states, and takes those with new content."""
    states = parse_states(context.executor.run_next().stdout)
    context.chosen = tuple(state for state in states if state.digest not in context.seen)
    context.seen.update(state.digest for state in context.chosen)


def _look(context: CrashContext, *, batch: Batch, portions: Sequence[Sequence[ChosenState]]) -> None:
    def told(daemon: str, lines: list[str]) -> Portion:
        script, gone = context.size.script, context.request.gone
        return Portion(daemon, batch.log, lines, script, batch.seconds, gone=gone, examined=batch.examined)

    take_told(context, batch, list(zip(portions, look(context, portions, told), strict=True)))


def take_told(context: CrashContext, batch: Batch, told: Sequence[tuple[Sequence[ChosenState], WorkerOutput]]) -> None:
    """Judges and records the workers' reports on their portions."""
    found: list[StateRecord] = []
    for portion, worker in told:
        seen = seen_by(worker)
        context.problem = context.problem or next((one.problem for one in seen if one.problem), "")
        found += [_judge(context, batch, state, one) for state, one in zip(portion, seen, strict=False)]
    for record in sorted(found, key=lambda record: (record.cut, record.digest)):
        context.found.append(record)
        context.recorder.append("states.jsonl", record)


def _judge(context: CrashContext, batch: Batch, state: ChosenState, seen: Seen) -> StateRecord:
    cut = (batch.interrupts or state).cut
    found = judged(context, cut, seen)
    promoted = parse_answers(seen.stdout, seen.stderr).values.get("promoted", "")
    record = StateRecord(
        id=batch.id_of(state),
        interrupts=batch.name if batch.interrupts else None,
        cut=state.cut,
        how=state.how,
        volatile=state.volatile,
        kept=state.kept,
        digest=state.digest,
        drawn=state.drawn,
        acknowledged=sum(acknowledged_by(context.marks, cut).values()),
        verdict=found.verdict,
        reason=found.reason,
        lost=found.lost,
        lost_s=lost_time_s(context.marks, found.entries, cut) if found.lost else None,
        promoted=promoted,
        examined=tuple(tool for tool, _, _ in seen.examined),
        duration_s=round(sum(seen.parts_s.values()), 6),
        parts_s=dict(seen.parts_s),
        memory_bytes=seen.memory_bytes,
    )
    if batch.interrupts is None:
        context.choices.append(state.line)
    if record.verdict != "held":
        context.recorder.write_text(state_file(record.id), state.line + "\n")
    return record


def judged(context: CrashContext, cut: int, seen: Seen) -> Judged:
    """Judges a worker's report on a state against the acknowledgements by its cut."""
    answers = parse_answers(seen.stdout, seen.stderr)
    examined = tuple(Examination(*one) for one in seen.examined)
    recovery = Recovery(seen.mounted, seen.mount_error, seen.server, answers, seen.problem, examined, seen.mended)
    asked = asked_checks(context.setup, deep=seen.deep)
    return judge_state(recovery, acknowledged_by(context.marks, cut), context.size, asked)


BACKUP_TIMEOUT_S = 600.0


def cluster_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Steps from a primary with an empty ledger to a stopped cluster, with the program that brings up the remaining
    servers."""
    if setup.stack.topology is None:
        return ()
    return (
        Step("stop the server", setup.server.planned(setup.server.plan_stop()), act=_stop_primary),
        *join_steps(setup),
        *_base_steps(setup),
        *failover_steps(setup, CrashPlaces.of(setup)),
    )


def _base_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Stores a base backup next to the archive, which cannot be restored without one."""
    base = base_backup(setup.plan)
    if base is None:
        return ()
    copy = planned("cp", "--archive", "--dereference", setup.plan.data_directory, base, timeout_s=BACKUP_TIMEOUT_S)
    flush = planned("sync", "--file-system", base, timeout_s=BACKUP_TIMEOUT_S)
    return (Step("base backup beside the archive", (copy, flush)),)


def start_cluster_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Starts the servers of a cluster and waits until its standbys follow."""
    if setup.stack.topology is None:
        return ()
    return (Step("start the servers", start_commands(setup), act=_start_cluster),)


def _stop_primary(context: TrialContext) -> None:
    context.server.stop()


def _start_cluster(context: TrialContext) -> None:
    start_servers(context)
    context.attest_server("built")
    attest_cluster(context, "built")
