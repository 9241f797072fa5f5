"""A crash trial as a program: the ledger is recorded, states are chosen from the log, each is mounted and recovered.

The first part is known beforehand. Which states there are is known when the log has been gone through; their steps are
made then, all with the same commands: a state goes to `strata-disk` by standard input. `trial.executor` holds
both to what was planned.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pgstrata.crash.ledger import (
    AMCHECK,
    BEGIN,
    END,
    Answers,
    LedgerSize,
    Mark,
    acknowledged_by,
    parse_answers,
    parse_marks,
    plan_client,
    render_check,
    render_schema,
)
from pgstrata.crash.verdict import Recovery, judge_state
from pgstrata.errors import TrialError, parser_of
from pgstrata.host.protocol import Command, CommandFailed
from pgstrata.record.schema import PlannedRecord, StateRecord
from pgstrata.spec.campaign import Trial
from pgstrata.stack.block.loop import DetachLoops
from pgstrata.stack.block.media import StopMedia, call, log_path
from pgstrata.stack.kind import Below, plan_filesystem
from pgstrata.stack.mounts import MOUNT_TIMEOUT_S
from pgstrata.stack.plan import DIRECTORY_NAMES, VolumePlan
from pgstrata.stack.step import PlannedCommand, Ref, Step, planned
from pgstrata.stack.undo import RemovePath, Unmount
from pgstrata.trial.context import TrialContext, TrialSetup
from pgstrata.trial.facts import record_facts
from pgstrata.trial.program import Program, attest_built, folder_steps, plan_built
from pgstrata.trial.site import Site

DISK = "disk0"
"""The recorded disk's name."""
STATE = "state"
"""The name of the disk that has a state, of its place and of its loop device."""
ENUMERATION_TIMEOUT_S = 1800.0
RECOVERY_TIMEOUT_S = 300.0
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


@dataclass(frozen=True)
class CrashPlaces:
    """Where on the host the parts of a crash trial lie."""

    recorded: str
    """The folder of the daemon with the recorded disk."""
    states: str
    """The folder of the daemon with a state."""

    @classmethod
    def of(cls, setup: TrialSetup) -> CrashPlaces:
        work = setup.plan.context.work_directory
        return cls(f"{work}/data.media", f"{work}/{STATE}.media")

    @property
    def log(self) -> str:
        return log_path(self.recorded)

    @property
    def state_file(self) -> str:
        return f"{self.states}/disks/{STATE}"


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
            *_cluster_steps(setup, asked),
        ),
        measure=(_record_step(setup, asked), *_down_steps(setup), _serve_step(setup)),
        keeps=frozenset(),
    )


def planned_record(program: Program, further: Sequence[Step]) -> PlannedRecord:
    """The program with the steps that were made since."""
    return replace(program, measure=(*program.measure, *further)).planned


def has_amcheck(setup: TrialSetup) -> bool:
    return AMCHECK in setup.server.installation.contrib


def _cluster_steps(setup: TrialSetup, asked: CrashAsked) -> tuple[Step, ...]:
    server, postgres = setup.server, setup.stack.postgresql
    settings = tuple(f"{name} = {value}" for name, value in setup.site.settings_of(setup.stack).items())
    schema = server.plan_execute(render_schema(asked.size, amcheck=has_amcheck(setup)))
    return (
        Step("initdb", _planned(*server.plan_init(postgres.data_checksums, postgres.initdb)), act=_initdb),
        Step("settings of the server", _planned(*server.plan_configure()), act=_configure, tells=settings),
        Step("start the server", _planned(server.plan_start()), act=_start),
        Step("make the ledger", (*_planned(schema), planned("sync", "--file-system", _volume(setup).mount_point))),
    )


def _volume(setup: TrialSetup) -> VolumePlan:
    """The only one: others have no crash trials (`spec.crash`)."""
    (volume,) = setup.plan.volumes
    return volume


def _record_step(setup: TrialSetup, asked: CrashAsked) -> Step:
    client = plan_client(f"{CrashPlaces.of(setup).recorded}/control", setup.server, asked.size, asked.seed)
    size = asked.size
    tells = (f"{size.sessions} sessions of {size.transactions} transactions, each marked once it is acknowledged",)
    return Step("record the ledger", _planned(client), act=_record, tells=tells)


def _down_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """The recorded filesystem must be gone before a state of it is mounted: both have the same identity."""
    volume = _volume(setup)
    return (
        Step("stop the server at once", _planned(setup.server.plan_stop("immediate", STOP_TIMEOUT_S)), act=_stop),
        Step(
            "take the recorded disk down",
            (
                planned("umount", volume.mount_point, timeout_s=MOUNT_TIMEOUT_S),
                planned("losetup", "--detach", volume.nodes[0]),
                call("stop", CrashPlaces.of(setup).recorded),
            ),
        ),
    )


def _serve_step(setup: TrialSetup) -> Step:
    places, mount = CrashPlaces.of(setup), _mount_point(setup)
    return Step(
        "daemon for the states",
        (call("serve", places.states, "--background"),),
        undo=(
            RemovePath(path=places.states),
            StopMedia(folder=places.states),
            DetachLoops(backing_files=(places.state_file,)),
            RemovePath(path=mount),
            Unmount(target=mount),
        ),
    )


def _planned(*commands: Command) -> tuple[PlannedCommand, ...]:
    return tuple(PlannedCommand.of(c) for c in commands)


def choose_step(setup: TrialSetup, asked: CrashAsked, number: int, most: int) -> Step:
    """One pass over the event log; another number gives other states."""
    log = CrashPlaces.of(setup).log
    states = call(
        "states", log, "--states", str(most), "--seed", str(asked.seed + number),
        "--after", BEGIN, "--until", END, "--ignore-flushes", asked.ignored_flushes,
    )  # fmt: skip
    commands = (replace(states, timeout_s=ENUMERATION_TIMEOUT_S), call("marks", log))
    return Step(f"choose states, pass {number + 1}", commands, act=_choose)


def state_step(setup: TrialSetup, number: int, state: ChosenState) -> Step:
    """Attach, mount, recover and read, and all of it back; the same commands for every state."""
    places, server = CrashPlaces.of(setup), setup.server
    volume, node = _volume(setup), Ref(STATE)
    filesystem = plan_filesystem(volume.volume.fs, Below(nodes=(node,)), setup.plan.context.place(STATE))
    data = f"{filesystem.mount_point}/{DIRECTORY_NAMES['data']}"
    single = server.as_user(
        server.installation.program("postgres"), "--single", "-D", data, "-c", "fsync=off", "postgres",
        timeout_s=RECOVERY_TIMEOUT_S,
    )  # fmt: skip
    commands = (
        call("add", places.states, STATE, "--log", places.log, "--of", DISK),
        planned("losetup", "--find", "--show", "--direct-io=on", places.state_file),
        *filesystem.steps[-1].commands,
        *_planned(server.as_user("rm", "--force", f"{data}/postmaster.pid"), single),
        planned("umount", filesystem.mount_point, timeout_s=MOUNT_TIMEOUT_S),
        planned("losetup", "--detach", node),
        call("remove", places.states, STATE, "--force"),
    )
    tells = (f"state {state.id} of pass {number + 1}: {state.how}, power lost after event {state.cut}",)
    act = partial(_look, state=state, number=number)
    return Step(f"state {number + 1}.{state.id}", commands, act=act, tells=tells)


def _mount_point(setup: TrialSetup) -> str:
    return setup.plan.context.place(STATE).mount_point


# ---------------------------------------------------------------- what the steps do


def _initdb(context: CrashContext) -> None:
    asked = context.plan.stack.postgresql
    context.server.init(data_checksums=asked.data_checksums, options=asked.initdb)


def _configure(context: CrashContext) -> None:
    postgres = context.plan.stack.postgresql
    given = context.site.given_conf.get(context.plan.stack.name)
    context.server.configure(
        postgres.settings, given.settings if given else None, data_checksums=postgres.data_checksums
    )


def _start(context: CrashContext) -> None:
    context.server.start()
    context.attest_server("built")


def _record(context: CrashContext) -> None:
    done = context.executor.run_next(check=False)
    context.recorder.write_text("raw/ledger.json", done.stdout)
    if done.exit_code != 0:
        raise TrialError(f"the ledger could not be written: {done.stdout.strip() or done.stderr.strip()[-500:]}")


def _stop(context: CrashContext) -> None:
    context.server.crash_stop(STOP_TIMEOUT_S)


def _choose(context: CrashContext) -> None:
    states = parse_states(context.executor.run_next().stdout)
    context.marks = parse_marks(context.executor.run_next().stdout)
    wanted = context.asked.size.sessions * context.asked.size.transactions
    if len(context.marks) != wanted:
        raise TrialError(f"the event log has {len(context.marks)} of {wanted} acknowledgements")
    context.chosen = tuple(state for state in states if state.digest not in context.seen)
    context.seen.update(state.digest for state in context.chosen)


def _look(context: CrashContext, *, state: ChosenState, number: int) -> None:
    began_s = time.monotonic()
    run = context.executor.run_next
    run(stdin=state.line)
    context.bindings[STATE] = run().stdout.strip()
    run()
    mounted = run(check=False)
    run(check=False)
    server, answers = _recover(context)
    recovery = Recovery(mounted.exit_code, mounted.stderr.strip(), server, answers)
    for _ in range(3):  # not mounted, or held a moment longer: the next state or the undo shows what is left
        run(check=False)
    acknowledged = acknowledged_by(context.marks, state.cut)
    judged = judge_state(recovery, acknowledged, context.asked.size)
    record = StateRecord(
        id=f"{number + 1}.{state.id}",
        cut=state.cut,
        how=state.how,
        volatile=state.volatile,
        kept=state.kept,
        digest=state.digest,
        acknowledged=sum(acknowledged.values()),
        verdict=judged.verdict,
        reason=judged.reason,
        lost=judged.lost,
        duration_s=round(time.monotonic() - began_s, 6),
    )
    context.found.append(record)
    context.recorder.append("states.jsonl", record)
    if judged.verdict != "held":
        context.recorder.write_text(f"raw/states/{record.id}.json", state.line + "\n")


def _recover(context: CrashContext) -> tuple[int | None, Answers]:
    """The server's exit code and answers; nothing where it did not end in time."""
    check = render_check(amcheck=has_amcheck(context.setup), major=context.server.installation.major)
    try:
        done = context.executor.run_next(stdin=check, check=False)
    except CommandFailed:
        return None, Answers({}, ())
    return done.exit_code, parse_answers(done.stdout, done.stderr)
