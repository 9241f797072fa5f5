"""A crash trial as a program: the ledger is recorded, states are chosen from the log, each is mounted and recovered.

The first part is known beforehand. Which states there are is known when the log has been gone through; the steps that
look at them are made then: one for a batch of states, with a command for each worker, whose job lies in a file.
`trial.executor` holds both to what was planned.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pgstrata.crash.cluster_servers import cluster_steps, start_cluster_steps
from pgstrata.crash.faults import FAULTS, render_fault
from pgstrata.crash.job import (
    CrashPlaces,
    Portion,
    Seen,
    WorkerTold,
    asked_of_amcheck,
    fitting_workers,
    has_amcheck,
    parse_seen,
    plan_stages,
    plan_take_down,
    plan_worker,
    recorded_disks,
    render_job,
    shares,
    told_of_states,
    undos_of_stages,
)
from pgstrata.crash.kept import state_file
from pgstrata.crash.ledger import (
    BEGIN,
    END,
    FAULT,
    LedgerSize,
    Mark,
    acknowledged_by,
    parse_answers,
    parse_marks,
    plan_client,
    render_schema,
)
from pgstrata.crash.script import LEDGER
from pgstrata.crash.verdict import Examination, Judged, Recovery, judge_state
from pgstrata.errors import TrialError, parser_of
from pgstrata.host.protocol import Command, CommandFailed, Completed, marked
from pgstrata.record.schema import PlannedRecord, StateRecord
from pgstrata.spec.campaign import Trial
from pgstrata.stack.block.media import call, undos_of
from pgstrata.stack.step import PlannedCommand, Step, planned
from pgstrata.stack.undoing import again_while_busy
from pgstrata.trial.context import TrialContext, TrialSetup
from pgstrata.trial.facts import record_facts
from pgstrata.trial.program import Program, attest_built, folder_steps, plan_built
from pgstrata.trial.site import Site

ENUMERATION_TIMEOUT_S = 1800.0
STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class CrashAsked:
    """What is asked of a crash trial. `minutes` ends it after a time, whatever number of states that makes."""

    states: int | None = None
    minutes: float | None = None
    seed: int = 1
    ignored_flushes: str = "0"
    """`all`, or a number: as a disk that ignores all flushes, or always the last ones."""
    size: LedgerSize = field(default_factory=LedgerSize)
    fault: str = ""
    """One of `faults.FAULTS`, in the middle of the transactions."""
    workers: int | None = None
    """How many states are looked at at once; one for each processor where nothing is said."""
    nested: int | None = None
    """Of so many states the recovery is interrupted by further cuts; of a share of them where nothing is said."""
    minimise: int = 100
    """So many states are tried at most to make one that failed smaller; none with 0."""
    gone: tuple[str, ...] = ()
    """Nodes of a cluster that do not come back; those in memory have nothing either."""


def asked_of_nodes(asked: CrashAsked, gone: Sequence[str]) -> CrashAsked:
    """The same of a cluster all of whose nodes lose power: no recovery of a node is interrupted."""
    return replace(asked, nested=0, gone=tuple(dict.fromkeys(gone)))


@dataclass(frozen=True)
class ChosenState:
    """A state that `strata-disk states` printed: the line that makes it, and what the record says of it."""

    line: str
    id: int
    cut: int
    how: str
    volatile: int
    kept: int
    digest: str


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
    )


@dataclass
class CrashContext(TrialContext):
    """A crash trial that is being run."""

    asked: CrashAsked = field(default_factory=CrashAsked)
    marks: tuple[Mark, ...] = ()
    chosen: tuple[ChosenState, ...] = ()
    """Of the last pass over the log, without those whose content was seen before."""
    seen: set[str] = field(default_factory=set)
    found: list[StateRecord] = field(default_factory=list)
    panicked: bool = False
    """Whether the server did while the ledger was written."""
    broken: bool = False
    """Whether a worker could not go on: what it left would be in the way of further states."""
    packed_log: bytes = b""
    """The condensed event log, where workers elsewhere look at its states."""


@dataclass(frozen=True)
class Batch:
    """States of one pass over an event log that are looked at in one step; `seconds` ends it early, between two."""

    name: str
    """What the ids of its states begin with: the number of the pass, or the state whose recovery they interrupt."""
    log: str
    states: tuple[ChosenState, ...]
    seconds: float | None = None
    examined: frozenset[int] = frozenset()
    """Of the states, those whose files and filesystems are read to their end."""
    interrupts: ChosenState | None = None
    """The state whose recovery they interrupt: at its cut it is known what was acknowledged."""

    def id_of(self, state: ChosenState) -> str:
        return f"{self.name}.{state.id}"


def crash_program(site: Site, trial: Trial, asked: CrashAsked) -> Program:
    """The part that is known beforehand: build, record, take down, and a daemon for the states."""
    plan = plan_built(site, trial)
    setup = TrialSetup.of(site, trial, plan)
    return Program(
        setup=setup,
        stack_plan=plan,
        before=(),
        build=(*folder_steps(setup), *plan.steps),
        prepare=(
            Step("facts of the host", (), act=record_facts),
            Step("attest the stack", (), act=attest_built),
            *ledger_steps(setup, asked.size),
            *cluster_steps(setup),
        ),
        measure=(
            *start_cluster_steps(setup),
            _record_step(setup, asked),
            *_down_steps(setup),
            *serve_steps(setup, asked),
        ),
        keeps=frozenset(),
    )


def planned_record(program: Program, further: Sequence[Step]) -> PlannedRecord:
    """The program with the steps that were made since."""
    return replace(program, measure=(*program.measure, *further)).planned


def ledger_steps(setup: TrialSetup, size: LedgerSize) -> tuple[Step, ...]:
    """A running server with an empty ledger, or with pgbench's tables."""
    server, postgres = setup.server, setup.stack.postgresql
    settings = tuple(f"{name} = {value}" for name, value in setup.site.settings_of(setup.stack).items())
    mount_points = [volume.mount_point for volume in setup.plan.volumes]
    write_back = (command for stage in plan_stages(setup.plan.volumes) for command in stage.write_back)
    schema = server.plan_execute(render_schema(size, amcheck=has_amcheck(setup)))
    return (
        Step("initdb", _planned(*server.plan_init(postgres.data_checksums, postgres.initdb)), act=_initdb),
        Step("settings of the server", _planned(*server.plan_configure()), act=_configure, tells=settings),
        Step("start the server", _planned(server.plan_start()), act=_start),
        Step(
            "make the ledger" if size.script is LEDGER else f"make the tables of {size.script.shown}",
            (*_planned(schema), planned("sync", "--file-system", *mount_points), *write_back),
        ),
    )


def _record_step(setup: TrialSetup, asked: CrashAsked) -> Step:
    size, fault = asked.size, render_fault(asked.fault, setup.plan, asked.size)
    client = plan_client(f"{CrashPlaces.of(setup).recorded}/control", setup.server, size, asked.seed, fault)
    tells = [f"{size.sessions} sessions of {size.transactions} transactions, each marked once it is acknowledged"]
    tells += [f"halfway: {FAULTS[asked.fault].about}"] if asked.fault else []
    return Step(f"record {size.script.shown}", _planned(client), act=_record, tells=tuple(tells))


def _down_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """What was recorded must be gone before a state of it comes up: both have the same identity."""
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
            _planned(*(server.plan_stop("immediate", STOP_TIMEOUT_S) for server in setup.servers.values())),
            act=_stop,
        ),
        Step("take the recorded disks down", down, act=partial(_take_down, commands=len(down))),
    )


def serve_steps(setup: TrialSetup, asked: CrashAsked) -> tuple[Step, ...]:
    """A daemon for each worker: what it did not begin with, it reads from the event log once."""
    return tuple(_serve_step(setup, worker) for worker in range(fitting_workers(setup, asked.workers)))


def _serve_step(setup: TrialSetup, worker: int) -> Step:
    folder = CrashPlaces.of(setup).states(worker)
    files = tuple(f"{folder}/disks/{disk.name}" for disk in recorded_disks(setup.plan.volumes))
    return Step(
        f"daemon for the states of worker {worker + 1}",
        (call("serve", folder, "--background"),),
        undo=(*undos_of(folder, files), *undos_of_stages(plan_stages(setup.plan.volumes))),
    )


def _planned(*commands: Command) -> tuple[PlannedCommand, ...]:
    return tuple(PlannedCommand.of(c) for c in commands)


def choose_step(setup: TrialSetup, asked: CrashAsked, number: int, most: int) -> Step:
    """One pass over the event log; another number gives other states."""
    log = CrashPlaces.of(setup).log
    states = plan_states(asked, log, most, asked.seed + number, FAULT if asked.fault else BEGIN)
    return Step(f"choose states, pass {number + 1}", (states, call("marks", log)), act=_choose)


def plan_states(asked: CrashAsked, log: str, most: int, seed: int, after: str) -> PlannedCommand:
    """States of an event log, power lost after this mark."""
    states = call(
        "states", log, "--states", str(most), "--seed", str(seed),
        "--after", after, "--until", END, "--ignore-flushes", asked.ignored_flushes,
    )  # fmt: skip
    return replace(states, timeout_s=ENUMERATION_TIMEOUT_S)


def states_step(setup: TrialSetup, asked: CrashAsked, batch: Batch) -> Step:
    """Every worker attaches, mounts, recovers and reads its states, one after the other, and takes each down again."""
    workers = fitting_workers(setup, asked.workers)
    portions = [portion for portion in shares(batch.states, workers) if portion]
    commands = tuple(
        plan_worker(job_file(setup, worker), len(portion), marked(setup.server.marker))
        for worker, portion in enumerate(portions)
    )
    first, last = (batch.id_of(batch.states[at]) for at in (0, -1))
    cuts = ", ".join(str(state.cut) for state in batch.states)
    tells = (*told_of_states(setup, asked.size.script, asked.gone), f"power is lost after the events {cuts}")
    act = partial(_look, batch=batch, portions=portions)
    return Step(f"states {first} to {last}", commands, act=act, tells=tells)


def job_file(setup: TrialSetup, worker: int) -> str:
    return f"{setup.outputs}/worker{worker}.json"


# ---------------------------------------------------------------- what the steps do


def _initdb(context: CrashContext) -> None:
    asked = context.plan.stack.postgresql
    context.server.init(data_checksums=asked.data_checksums, options=asked.initdb)


def _configure(context: CrashContext) -> None:
    context.configure_server()


def _start(context: CrashContext) -> None:
    context.server.start()
    if not context.setup.standbys:  # of a cluster all servers are, once they run
        context.attest_server("built")


def _record(context: CrashContext) -> None:
    done = context.executor.run_next(check=False)
    context.recorder.write_text("raw/ledger.json", done.stdout)
    if done.exit_code != 0:
        why = done.stdout.strip() or done.stderr.strip()[-500:]
        raise TrialError(f"{context.asked.size.script.shown} could not be written: {why}")


def _stop(context: CrashContext) -> None:
    for server in context.setup.servers.values():
        if server.running():
            server.crash_stop(STOP_TIMEOUT_S)
        else:  # a fault ended it before
            context.executor.run_next(check=False)
    # children may outlive a postmaster by a moment, and keep the filesystem busy
    context.host.stop_marked(context.server.marker)
    context.panicked = "PANIC:" in context.server.read_log()


def _take_down(context: CrashContext, *, commands: int) -> None:
    """What another program looks into at this moment, as a scan for btrfs does, is busy: that is tried again."""
    for _ in range(commands):
        again = partial(_again, context, context.executor.next_command())
        ended = again_while_busy(context.executor.run_next(check=False), again)
        if ended.exit_code != 0:
            raise CommandFailed(context.host.name, ended)


def _again(context: CrashContext, command: Command) -> Completed:
    with context.host.looking():  # the plan has it once
        return context.host.run(command, check=False)


def _choose(context: CrashContext) -> None:
    take_new(context)
    context.marks = parse_marks(context.executor.run_next().stdout)
    wanted = context.asked.size.sessions * context.asked.size.transactions
    if len(context.marks) != wanted and not context.asked.fault:
        raise TrialError(f"the event log has {len(context.marks)} of {wanted} acknowledgements")


def take_new(context: CrashContext) -> None:
    """Runs the command that prints states, and takes those whose content was not seen before."""
    states = parse_states(context.executor.run_next().stdout)
    context.chosen = tuple(state for state in states if state.digest not in context.seen)
    context.seen.update(state.digest for state in context.chosen)


def _look(context: CrashContext, *, batch: Batch, portions: Sequence[Sequence[ChosenState]]) -> None:
    host, setup, asked = context.host, context.setup, context.asked
    started = []
    for worker, portion in enumerate(portions):
        job, daemon = job_file(setup, worker), CrashPlaces.of(setup).states(worker)
        lines = [state.line for state in portion]
        told = Portion(
            daemon, batch.log, lines, asked.size.script, batch.seconds, gone=asked.gone, examined=batch.examined
        )
        host.write_text(job, render_job(setup, told), mode=0o600)
        outputs = {"stdout": f"{job}.out", "stderr": f"{job}.err"}
        started.append((portion, outputs, *context.executor.start_next(**outputs)))
    ended = []
    for portion, outputs, process, command in started:
        code = process.wait(command.timeout_s)
        ended.append((portion, WorkerTold(code, host.read_text(outputs["stdout"]), host.read_text(outputs["stderr"]))))
        for path in outputs.values():
            host.remove(path)
    take_told(context, batch, ended)


def take_told(context: CrashContext, batch: Batch, told: Sequence[tuple[Sequence[ChosenState], WorkerTold]]) -> None:
    """Judges and records what workers saw in their portions."""
    found: list[StateRecord] = []
    for portion, worker in told:
        seen = parse_seen(worker.stdout)
        if worker.code != 0 and not any(one.problem for one in seen):
            why = f"the worker ended with {worker.code}: {worker.stderr.strip()[-300:]}"
            seen = (*seen, Seen(-1, "", None, "", "", why))
        context.broken |= any(one.problem for one in seen)
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
        acknowledged=sum(acknowledged_by(context.marks, cut).values()),
        verdict=found.verdict,
        reason=found.reason,
        lost=found.lost,
        promoted=promoted,
        examined=tuple(tool for tool, _, _ in seen.examined),
        duration_s=round(sum(seen.parts_s.values()), 6),
        parts_s=dict(seen.parts_s),
        memory_bytes=seen.memory_bytes,
    )
    if record.verdict != "held":
        context.recorder.write_text(state_file(record.id), state.line + "\n")
    return record


def judged(context: CrashContext, cut: int, seen: Seen) -> Judged:
    """What a worker saw in a state against what was acknowledged by its cut."""
    answers = parse_answers(seen.stdout, seen.stderr)
    examined = tuple(Examination(*one) for one in seen.examined)
    recovery = Recovery(seen.mounted, seen.mount_error, seen.server, answers, seen.problem, examined, seen.mended)
    asked = asked_of_amcheck(context.setup, deep=seen.deep)
    return judge_state(recovery, acknowledged_by(context.marks, cut), context.asked.size, asked)
