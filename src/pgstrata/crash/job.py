"""A worker's job: the disks of a state, how they are mounted, and how the server recovers on them.

Workers are functions of their jobs: the log, the states that are their share, and these commands. All of it is pure but
`look`, which runs the local workers of a step, each with a portion of the states.

Faults beyond a power cut (errors, delays and a full disk) come into force in the middle of the transactions, and the
ledger continues as far as the server does. Refused requests are not in the event log. Its states are therefore those
that a power cut after it could have left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pgstrata.crash.ledger import (
    AMCHECK,
    BEGIN,
    END,
    LAST_ANSWER,
    VISIBILITY,
    Check,
    LedgerSize,
    checks_of,
    render_check,
)
from pgstrata.crash.script import SCRIPTS, Script
from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command, marked
from pgstrata.postgres.server import IDENT_MAP, SUPERUSER
from pgstrata.record.crash import ARCHIVE
from pgstrata.spec.crash import nodes_left
from pgstrata.spec.crash_request import BESIDE, OF_PAGES, CrashRequest, FaultName
from pgstrata.spec.stack import PRIMARY
from pgstrata.stack.block.media import log_path, recorded_disk, recorded_folder, recorded_names
from pgstrata.stack.mounts import MOUNT_TIMEOUT_S
from pgstrata.stack.plan import StackPlan, VolumePlan
from pgstrata.stack.step import PlannedCommand, Stage, Step, planned
from pgstrata.stack.undo import RemovePath, Undo, Unmount
from pgstrata.trial.context import TrialContext, TrialSetup, trial_directory

RELATION = "ledger.account"
"""Table whose pages are rewritten repeatedly."""
REFUSED_ACCOUNTS = 120_000
"""Accounts when pages are refused: 650 pages, so that transactions after the failed checkpoint (half a ledger of 100 a
session touches 800 times a page) leave some of those alone that it was to write: what is touched is whole again."""
SLOW_FLUSH_MS = 20
LOAD_S = 5.0
"""Time of a load beside the ledger."""
FILLER = "pgstrata-filler"


@dataclass(frozen=True)
class Fault:
    """The request to the daemon for each disk of the volume with the WAL, or another action on the host."""

    about: str
    request: Mapping[str, Any] | None = None
    fills: bool = False


def _on_flush(effect: object, **more: int) -> dict[str, Any]:
    return {"op": "fault", "fault": {"on": "flush", "effect": effect, **more}}


FAULTS: Mapping[FaultName, Fault] = {
    "flush-error": Fault("the disk with the WAL refuses one flush", _on_flush("error", count=1)),
    OF_PAGES: Fault("the disk refuses a table's pages until a checkpoint has failed"),
    "gone": Fault("the disk with the WAL is gone", {"op": "pull"}),
    "slow-flush": Fault("every flush takes longer", _on_flush({"delay_ms": SLOW_FLUSH_MS})),
    "full": Fault("the filesystem with the WAL is full", fills=True),
}


def ledger_size(request: CrashRequest) -> LedgerSize:
    """A ledger large enough to show the fault, the size of pgbench's, or one that lasts as long as a load beside it."""
    spread_s = LOAD_S if request.script == BESIDE else 0.0
    size = LedgerSize(
        transactions=request.recorded,
        recordings=request.recordings,
        script=SCRIPTS[request.script],
        spread_s=spread_s,
    )
    return replace(size, accounts=REFUSED_ACCOUNTS) if request.fault == OF_PAGES else size


def filler(plan: StackPlan) -> str:
    """The file that fills the filesystem with the WAL."""
    return f"{plan.wal_directory or plan.data_directory}/{FILLER}"


def render_fault(name: FaultName | None, plan: StackPlan, size: LedgerSize) -> str:
    """The fault as passed to the ledger's client; empty if there is none."""
    if name is None:
        return ""
    fault = FAULTS[name]
    with_wal = next((v for v in plan.volumes if v.role == "wal"), plan.volumes[0])
    disks = recorded_names(with_wal.media).values()
    requests = [{**fault.request, "disk": disk} for disk in disks] if fault.request else []
    told: dict[str, Any] = {"after": (size.transactions + 1) // 2, "requests": requests}
    if name == OF_PAGES:
        refuse = {"on": "write", "effect": "error"}
        told |= {"relation": RELATION, "data": plan.data_directory, "disk": recorded_disk("data", 0), "refuse": refuse}
    if fault.fills:
        told |= {"filler": filler(plan)}
    return json.dumps(told)


RECOVERY_TIMEOUT_S = 300.0
FAILOVER_TIMEOUT_S = 60.0
"""Seconds for starting a standby, and for promoting it."""
KILLED_AT_THE_END = ("-c", "dynamic_shared_memory_type=sysv")
"""This kind of shared memory is released with the worker's namespace."""
MOUNT_AND_BACK_S = 60.0
"""Seconds for the parts of a state besides recovery."""

_WORKER = Path(__file__).with_name("state_worker.py")
_FAILOVER, _REJOIN = (Path(__file__).with_name(name) for name in ("failover.py", "rejoin.py"))


@dataclass(frozen=True)
class CrashPlaces:
    """Locations of the parts of a crash trial on the host."""

    work: str
    programs: str
    """Folder of programs that the server's user runs; that user may not have access to `work`."""

    @classmethod
    def of(cls, setup: TrialSetup) -> CrashPlaces:
        return cls(setup.plan.context.work_directory, trial_directory(setup.plan.context))

    @classmethod
    def of_replay(cls, setup: TrialSetup) -> CrashPlaces:
        """Places all of it below the scratch folder, as a replay has no folder next to the stack."""
        return cls(setup.plan.context.work_directory, setup.plan.context.work_directory)

    @property
    def recorded(self) -> str:
        """The folder of the daemon with the recorded disks."""
        return recorded_folder(self.work)

    @property
    def log(self) -> str:
        return log_path(self.recorded)

    def states(self, worker: int) -> str:
        """The folder of a worker's daemon."""
        return f"{self.work}/states{worker}.media"

    @property
    def failover(self) -> str:
        """The program that brings up the remaining servers of a cluster."""
        return f"{self.programs}/failover.py"

    @property
    def failover_job(self) -> str:
        """Its job, if it starts a server."""
        return f"{self.programs}/failover.json"

    @property
    def rejoin(self) -> str:
        """The program that has a lost primary follow the one that was promoted."""
        return f"{self.programs}/rejoin.py"

    def recovery(self, of: str) -> str:
        """The folder of the daemon that records the recovery of a state."""
        return f"{self.work}/recovery-{of}.media"


@dataclass(frozen=True)
class StateDisk:
    """A disk of the recorded stack: its name in the log, and what its node is bound to."""

    name: str
    node: str


def recorded_disks(volumes: Sequence[VolumePlan]) -> tuple[StateDisk, ...]:
    """Every disk of every volume in order, with those of a pool's log, cache and special devices."""
    return tuple(StateDisk(name, node) for volume in volumes for node, name in recorded_names(volume.media).items())


def plan_stages(volumes: Sequence[VolumePlan]) -> tuple[Stage, ...]:
    """Stages that bring up every volume of a state at the recorded location, in the same order: from the bottom up."""
    return tuple(stage for volume in volumes for stage in volume.stages)


def plan_take_down(stages: Sequence[Stage]) -> tuple[PlannedCommand, ...]:
    """Unmounts the filesystems of stages and releases their devices."""
    return tuple(c for stage in reversed(stages) for c in (*_plan_unmount(stage), *stage.down))


def _plan_unmount(stage: Stage) -> tuple[PlannedCommand, ...]:
    return () if stage.mount_point is None else (planned("umount", stage.mount_point, timeout_s=MOUNT_TIMEOUT_S),)


def undos_of_stages(stages: Sequence[Stage]) -> tuple[Undo, ...]:
    """Undoes what a killed worker leaves; mounts in its own namespace are already gone."""
    in_sight = any(stage.in_sight for stage in stages)
    undos: list[Undo] = []
    for stage in stages:
        undos += stage.undo
        if in_sight and stage.mount_point:
            undos.append(Unmount(target=stage.mount_point))
    return tuple(undos)


def tells_files(volumes: Sequence[VolumePlan]) -> bool:
    """True if the filesystem's file positions are positions on the recorded disks: no layer lies between."""
    return all(len(volume.stages) == 1 and volume.stages[0].mount_point for volume in volumes)


def plan_recovery(
    setup: TrialSetup, script: Script, *, gone: Sequence[str] = (), recorded: bool = False, deep: bool = False
) -> Command:
    """The server by itself, which recovers and then reads its statements from standard input. It does not wait for the
    disk, unless its writes are `recorded`. For a cluster, the server that continues among those that are not `gone`."""
    server = setup.server
    check = render_check(asked_checks(setup, deep=deep), script, setup.driver.state_conditions)
    if setup.stack.topology is not None:
        job = render_failover(setup, gone)
        argv = ("python3", "-I", CrashPlaces.of(setup).failover, job)
        return Command(argv, RECOVERY_TIMEOUT_S, check, user=server.user)
    postgres = server.installation.program("postgres")
    data = setup.plan.data_directory
    hasty = () if recorded else ("-c", "fsync=off")
    return Command(
        (postgres, "--single", "-D", data, *hasty, *KILLED_AT_THE_END, "postgres"),
        RECOVERY_TIMEOUT_S,
        check,
        user=server.user,
    )


def render_failover(setup: TrialSetup, gone: Sequence[str]) -> str:
    """The job of the program that brings up the remaining servers, for a cluster whose nodes all lost power."""
    left = tuple(left_servers(setup, nodes_left(setup.stack, gone)))
    return json.dumps({**failover_job(setup), "servers": left})


def failover_job(setup: TrialSetup) -> dict[str, Any]:
    """The job of the program that brings up the remaining servers of a cluster, without these servers."""
    program = setup.server.installation.program
    programs = {name: program(name) for name in ("pg_ctl", "postgres", "pg_controldata", "pg_waldump")}
    return {**programs, "timeout_s": FAILOVER_TIMEOUT_S}


def left_servers(setup: TrialSetup, nodes: Sequence[str]) -> Iterator[dict[str, str]]:
    """The data of these nodes at their usual locations; without nodes, the archive with the base backup next to it."""
    for name in nodes:
        layout, role = setup.servers[name].layout, "primary" if name == PRIMARY else "standby"
        yield {"name": name, "role": role, "data": layout.data_directory, "wal": layout.wal_directory or ""}
    archive, base = setup.plan.archive_directory, base_backup(setup.plan)
    if not nodes and archive and base:
        yield {"name": ARCHIVE, "role": ARCHIVE, "data": base, "wal": "", "archive": archive}


def base_backup(plan: StackPlan) -> str | None:
    """The base backup next to the archive, on which the archive builds; None without an archive."""
    return None if plan.archive_directory is None else f"{plan.mounts[ARCHIVE]}/base"


def rejoin_job(setup: TrialSetup, how: str) -> dict[str, Any]:
    """The job of the program that has a lost primary follow, without the locations of both servers."""
    program = setup.server.installation.program
    return {
        "how": how,
        "sockets": setup.server.run_directory,
        "user": SUPERUSER,
        "map": IDENT_MAP,
        "timeout_s": FAILOVER_TIMEOUT_S,
        **{name: program(name) for name in ("pg_ctl", "pg_rewind", "pg_basebackup", "psql")},
    }


def failover_steps(setup: TrialSetup, places: CrashPlaces) -> tuple[Step, ...]:
    """Installs the programs that bring up the remaining servers of a cluster, readable by the servers' user."""
    if setup.stack.topology is None:
        return ()
    programs = ((_FAILOVER, places.failover), (_REJOIN, places.rejoin))
    make = (
        Command(("install", "--mode", "0644", "/dev/stdin", path), stdin=source.read_text(encoding="utf-8"))
        for source, path in programs
    )
    undo = tuple(RemovePath(path=path) for _, path in programs)
    return (Step("programs that bring up what is left", tuple(map(PlannedCommand.of, make)), undo=undo),)


def has_amcheck(setup: TrialSetup) -> bool:
    return AMCHECK in setup.server.installation.contrib


def extensions_of(setup: TrialSetup) -> tuple[str, ...]:
    """The extensions for checks that the server has."""
    return tuple(name for name in (AMCHECK, VISIBILITY) if name in setup.server.installation.contrib)


def asked_checks(setup: TrialSetup, *, deep: bool = False) -> tuple[Check, ...]:
    """The checks in each state; their answers are needed for the verdict."""
    return checks_of(extensions_of(setup), major=setup.server.installation.major, deep=deep)


def plan_checksums(setup: TrialSetup) -> tuple[Command, ...]:
    """Reads every page of a server that was shut down, where pages have checksums."""
    server, asked = setup.server, setup.stack.postgresql
    if not asked.data_checksums or "--no-data-checksums" in asked.initdb:
        return ()
    program = f"{server.installation.bin_directory}/pg_checksums"
    argv = (program, "--check", "--pgdata", setup.plan.data_directory)
    return (Command(argv, RECOVERY_TIMEOUT_S, user=server.user),)


def fitting_workers(setup: TrialSetup, asked: int | None) -> int:
    """The requested number of workers, else one for each processor; one if the kernel cannot have two copies of a
    volume up at once."""
    facts = setup.site.facts.checked
    wanted = asked or int(facts.get("CPUs", "1"))
    return 1 if any(stage.alone for stage in plan_stages(setup.plan.volumes)) else wanted


def shares(states: Sequence[Any], workers: int) -> list[list[Any]]:
    """Each worker's states, in order; each worker reads the log once."""
    return [list(states[worker::workers]) for worker in range(workers)]


@dataclass(frozen=True)
class Portion:
    """States of an event log that one worker checks. `states` are lines of `strata-disk states`; `daemon` is the folder
    of the daemon that provides their disks. After `seconds` it ends early, between two states."""

    daemon: str
    log: str
    states: Sequence[str]
    script: Script
    """The script that was written and is read back."""
    seconds: float | None = None
    recorded: bool = False
    """True if the daemon logs the writes of mounting and recovery, so that power can be lost again meanwhile."""
    gone: tuple[str, ...] = ()
    """Nodes of a cluster that are lost forever."""
    look: Command | None = None
    """Command run in each mounted state instead of the server that recovers it."""
    examined: frozenset[int] = frozenset()
    """Ids of states in which the server is shut down after its answers, and its files and filesystems are read."""
    left_up: bool = False
    """True if the only state is left mounted and visible to all. It is not recovered, and not repaired if it does not
    come up."""


def render_job(setup: TrialSetup, portion: Portion) -> str:
    """The job of one worker."""
    stages = plan_stages(setup.plan.volumes)
    job = {
        "daemon": portion.daemon,
        "log": portion.log,
        "disks": [{"of": disk.name, "node": disk.node} for disk in recorded_disks(setup.plan.volumes)],
        "marks": [BEGIN, END],
        "stages": [_render_stage(stage, mend=not portion.left_up) for stage in stages],
        "in_sight": any(stage.in_sight for stage in stages),
        "places": None,
        "server": None if portion.left_up else _render_server(setup, portion),
        "examined": sorted(portion.examined),
        "examiner": _render_examiner(setup, portion.script) if portion.examined else None,
        "seconds": portion.seconds,
        "states": [json.loads(state) for state in portion.states],
    }
    return json.dumps(job)


def _render_server(setup: TrialSetup, portion: Portion) -> dict[str, Any]:
    recovery = portion.look or plan_recovery(setup, portion.script, gone=portion.gone, recorded=portion.recorded)
    return {
        "user": recovery.user,
        "argv": recovery.argv,
        "data": setup.plan.data_directory,
        "remove": [f"{setup.plan.data_directory}/postmaster.pid", filler(setup.plan)],
        "stdin": recovery.stdin,
        "until": LAST_ANSWER,
        "timeout_s": recovery.timeout_s,
    }


def _render_examiner(setup: TrialSetup, script: Script) -> dict[str, Any]:
    recovery = plan_recovery(setup, script, deep=True)
    return {"stdin": recovery.stdin, "after": [command.argv for command in plan_checksums(setup)]}


def _render_stage(stage: Stage, *, mend: bool) -> dict[str, Any]:
    return {
        "up": [_shown(command) for command in stage.up],
        "mend": [_shown(command) for command in stage.mend if mend],
        "examine": [_shown(command) for command in stage.examine],
        "down": [_shown(command) for command in stage.down],
        "frees": [_shown(command) for command in stage.frees],
        "binds": stage.binds,
        "mount_point": stage.mount_point,
    }


def _shown(command: PlannedCommand) -> list[str]:
    return [word if isinstance(word, str) else word.shown for word in command.argv]


def describe_states(setup: TrialSetup, script: Script, gone: Sequence[str] = ()) -> tuple[str, ...]:
    """The actions of a worker in each state, in words."""
    disks = ", ".join(f"<{disk.node}>" for disk in recorded_disks(setup.plan.volumes))
    recovery, stages = plan_recovery(setup, script, gone=gone), plan_stages(setup.plan.volumes)
    where = "in sight of a server" if any(stage.in_sight for stage in stages) else "in a mount namespace of its own"
    return (
        f"in each state: attach {disks} with what the power cut left, {where}",
        *(command.shown for stage in stages for command in stage.up),
        *(f"where that fails: {command.shown}" for stage in stages for command in stage.mend),
        f"as {recovery.user}: remove postmaster.pid and what filled a disk; {recovery.text}",
        *(command.shown for command in plan_take_down(stages)),
        *(f"of some states, shut down after its answers: {command.text}" for command in plan_checksums(setup)),
        *(f"of these once it is unmounted: {command.shown}" for stage in stages for command in stage.examine),
    )


def plan_worker(job: str, states: int, marker: tuple[tuple[str, str], ...]) -> PlannedCommand:
    """The worker, with its job in a file."""
    command = Command(
        ("python3", "-I", "-", job),
        timeout_s=states * (RECOVERY_TIMEOUT_S + MOUNT_AND_BACK_S),
        stdin=_WORKER.read_text(encoding="utf-8"),
        env=marker,
        cwd="/",
    )
    return PlannedCommand.of(command)


@dataclass(frozen=True)
class Seen:
    """A worker's report on one state. `problem` is an error of the worker itself."""

    mounted: int
    mount_error: str
    server: int | None
    stdout: str
    stderr: str
    problem: str
    mended: str = ""
    """The commands needed before it could be mounted; `mounted` and `mount_error` describe the attempt without them."""
    deep: bool = False
    """True if the server was shut down after its answers, and its files and filesystems were read."""
    examined: Sequence[tuple[str, int | None, str]] = ()
    """The tools that read them: name, exit code and last output of each."""
    parts_s: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: int | None = None


@dataclass(frozen=True)
class WorkerOutput:
    """A worker's exit status and output; `left` is what could not be undone after it."""

    code: int | None
    stdout: str
    stderr: str
    left: Sequence[str] = ()


NOT_LOOKED_AT = "the worker ended before it"


@parser_of("the worker of states")
def parse_seen(text: str) -> tuple[Seen, ...]:
    """The reports of a worker so far, without an incomplete last line."""
    lines = text.split("\n")[:-1]
    return tuple(Seen(**json.loads(line)) for line in lines)


class State(Protocol):
    """A state as `strata-disk states` printed it."""

    @property
    def line(self) -> str: ...


S = TypeVar("S", bound=State)
Told = Callable[[str, list[str]], Portion]
"""Creates a worker's job, given the folder of its daemon and the lines of its states."""


def portions_of(setup: TrialSetup, states: Sequence[S], workers: int | None) -> list[list[S]]:
    """The states of each worker, as many workers as fit; empty without states."""
    return [portion for portion in shares(states, fitting_workers(setup, workers)) if portion]


def job_file(setup: TrialSetup, worker: int) -> str:
    return f"{setup.outputs}/worker{worker}.json"


def plan_workers(setup: TrialSetup, portions: Sequence[Sequence[S]]) -> tuple[PlannedCommand, ...]:
    """The commands of a step, executed by `look`."""
    return tuple(
        plan_worker(job_file(setup, worker), len(portion), marked(setup.server.marker))
        for worker, portion in enumerate(portions)
    )


def look(context: TrialContext, portions: Sequence[Sequence[S]], told: Told) -> list[WorkerOutput]:
    """Exit status of each worker of the step; all work at once."""
    host, setup, started = context.host, context.setup, []
    for worker, portion in enumerate(portions):
        job = job_file(setup, worker)
        asked = told(CrashPlaces.of(setup).states(worker), [state.line for state in portion])
        host.write_text(job, render_job(setup, asked), mode=0o600)
        outputs = (f"{job}.out", f"{job}.err")
        started.append((outputs, *context.executor.start_next(stdout=outputs[0], stderr=outputs[1])))
    ended = []
    for outputs, process, command in started:
        code = process.wait(command.timeout_s)
        ended.append(WorkerOutput(code, *(host.read_text(path) for path in outputs)))
        for path in outputs:
            host.remove(path)
    return ended


def seen_by(worker: WorkerOutput) -> tuple[Seen, ...]:
    """A worker's reports on its states, in order; if it died, the reason comes last."""
    seen = parse_seen(worker.stdout)
    if worker.code != 0 and not any(one.problem for one in seen):
        why = f"the worker ended with {worker.code}: {worker.stderr.strip()[-300:]}"
        return (*seen, Seen(-1, "", None, "", "", why))
    return seen
