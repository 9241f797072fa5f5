"""States that remote workers check, from the condensed event log that is sent to each worker.

A remote worker does the same as a local one: it has a daemon of its own and runs the same program with the same job. It
creates the mount points of the recorded stack in its mount namespace. What it starts is journaled on its machine. If it
is killed, the next worker that checks states there undoes what it left.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import pwd
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, wait
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pgstrata.crash.job import (
    CrashPlaces,
    Portion,
    WorkerOutput,
    describe_states,
    plan_stages,
    plan_worker,
    render_job,
    shares,
)
from pgstrata.crash.ledger import BEGIN, END
from pgstrata.crash.program import Batch, ChosenState, CrashContext, take_told
from pgstrata.crash.script import Script
from pgstrata.errors import PgstrataError, PreflightError, TrialError
from pgstrata.host.agent_schema import parsed
from pgstrata.host.capabilities import NODES, node_problem
from pgstrata.host.delivery import locked
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Host, command, marked
from pgstrata.spec.model import Model
from pgstrata.stack.block.media import call, plan_serve, undos_of
from pgstrata.stack.journal import clean, journaled, temporary_folder
from pgstrata.stack.preflight import missing, required_for
from pgstrata.stack.step import Stage, Step, planned
from pgstrata.stack.undo import OURS, RemovePath, StopProcesses
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.undo_errors import note_undo_errors

TIMEOUT_S = 1800.0
MOST_LOG_BYTES = 256 << 20
"""Packed size; every worker keeps the log in memory."""
KERNEL = "/proc/sys/kernel/osrelease"
TURN = "states"
"""The lock of a machine that can have only one state of a stack up at a time."""
TURN_PAUSE_S = 0.2
NODES_HINT = "run it where both can be opened; a container needs `--device /dev/fuse --device /dev/loop-control`"
HERE = "leave out --on: --workers N looks at them on the host of the trial"


@dataclass(frozen=True)
class RemoteWorkers:
    """Workers. `ask_each` runs a function on each of them now and returns the answers by worker name."""

    executor: Executor
    width: int
    ask_each: Callable[..., Mapping[str, str]]


class MachineAsked(Model):
    """Requirements of states on a machine, besides its disks."""

    program: str
    """Output of `strata-disk --version` at the trial."""
    postgres: str
    """The server's program."""
    version: str
    user: str
    needs: tuple[str, ...]
    """Capabilities of the stack."""
    mount_root: str


class MachineTold(Model):
    """The properties of a machine; `problem` is why states cannot be checked there."""

    problem: str = ""
    kernel: str = ""


class StatesAsked(Model):
    """A share of states for one worker; `job` is that of a local worker, without its folders."""

    machine: MachineAsked
    job: dict[str, Any]
    mount_points: tuple[str, ...]
    alone: bool = False
    """True if a machine, which workers may share, can have only one state up at a time."""


# ---------------------------------------------------------------- at the trial


def require_machines(setup: TrialSetup, remote: RemoteWorkers, tell: Tell) -> None:
    """Queries all workers. Raises PreflightError if they cannot check states of a stack."""
    stack, kernel = setup.stack.name, setup.site.host.read_text(KERNEL).strip()
    refuse_lasting(stack, plan_stages(setup.plan.volumes))
    answers = remote.ask_each(look_over, machine_asked(setup).model_dump_json())
    told = {name: parsed(MachineTold, text, name) for name, text in answers.items()}
    refuse_problems(stack, told)
    for name, one in told.items():
        if one.kernel != kernel:
            tell(Notice(f"{name} has Linux {one.kernel}: what {kernel} wrote is recovered by another kernel there"))


def refuse_lasting(stack: str, stages: Sequence[Stage]) -> None:
    """Raises PreflightError if a part of a state would outlive the worker that brought it up, or be visible to its
    machine.
    """
    if lasting := [stage.name for stage in stages if stage.in_sight or stage.undo or stage.readies]:
        raise PreflightError(
            f"states of {stack} cannot be checked remotely: {lasting[0]} concerns the whole machine",
            hint=HERE,
        )


def refuse_problems(stack: str, told: Mapping[str, MachineTold]) -> None:
    """Raises PreflightError that names every worker that cannot check states, and why."""
    problems = [f"{name}: {one.problem}" for name, one in told.items() if one.problem]
    if problems:
        raise PreflightError(
            f"states of {stack} cannot be looked at by every worker: {'; '.join(problems)}",
            hint="mend it there, or take the worker out of the cluster",
        )


def machine_asked(setup: TrialSetup) -> MachineAsked:
    host, postgres = setup.site.host, setup.server.installation.program("postgres")
    return MachineAsked(
        program=host.run(call("--version").resolve({})).stdout.strip(),
        postgres=postgres,
        version=host.run(command(postgres, "--version")).stdout.strip(),
        user=setup.site.user,
        needs=required_for(setup.stack),
        mount_root=setup.site.mount_root or "",
    )


def send_log_step(setup: TrialSetup) -> Step:
    """Fetches the event log, condensed and packed, for the workers."""
    file = f"{setup.outputs}/sent.log"
    condense = call("condense", CrashPlaces.of(setup).log, file, "--after", BEGIN, "--until", END)
    commands = (replace(condense, timeout_s=TIMEOUT_S), planned("gzip", "--fast", file, timeout_s=TIMEOUT_S))
    return Step("condense the event log for the workers", commands, act=partial(_fetch_log, file=f"{file}.gz"))


def _fetch_log(context: CrashContext, *, file: str) -> None:
    context.executor.run_rest()
    with temporary_folder("log") as folder:
        to = folder / "log.gz"
        try:
            context.host.fetch(file, str(to), most_bytes=MOST_LOG_BYTES)
        except OSError as error:
            raise TrialError(
                f"the event log cannot be sent to workers, at most {MOST_LOG_BYTES >> 20} MiB of it packed: {error}",
                hint=f"fewer --transactions; or {HERE}",
            ) from None
        context.packed_log = to.read_bytes()
    context.host.remove(file)


def remote_states_step(setup: TrialSetup, script: Script, batch: Batch, remote: RemoteWorkers) -> Step:
    """Each worker checks a share, as in `program.states_step` for local workers."""
    portions = [portion for portion in shares(batch.states, remote.width) if portion]
    first, last = (batch.id_of(batch.states[at]) for at in (0, -1))
    cuts = ", ".join(str(state.cut) for state in batch.states)
    tells = (f"by {remote.width} workers", *describe_states(setup, script), f"power is lost after the events {cuts}")
    act = partial(_look, script=script, batch=batch, portions=portions, executor=remote.executor)
    return Step(f"states {first} to {last}", (), act=act, tells=tells)


def _look(
    context: CrashContext,
    *,
    script: Script,
    batch: Batch,
    portions: Sequence[Sequence[ChosenState]],
    executor: Executor,
) -> None:
    with context.host.looking():
        machine = machine_asked(context.setup)
    asked = [states_asked(context.setup, machine, script, batch, portion).model_dump_json() for portion in portions]
    futures = [executor.submit(look_at_states, one, context.packed_log) for one in asked]
    try:
        with context.executor.interruption.waiting():
            wait(futures)
    finally:
        wait(futures)  # what workers have begun they undo
    told = []
    for portion, future in zip(portions, futures, strict=True):
        try:
            one = parsed(WorkerOutput, future.result(), "a worker")
        except PgstrataError as error:
            raise TrialError(error.message, hint=error.hint) from None
        for line in one.left:
            context.executor.tell(Notice(f"could not be undone: {line}; run `pgstrata clean` there"))
        note_undo_errors(context.recorder.final.parents[1], one.left)
        told.append((portion, one))
    take_told(context, batch, told)


def states_asked(
    setup: TrialSetup, machine: MachineAsked, script: Script, batch: Batch, portion: Sequence[ChosenState]
) -> StatesAsked:
    told = Portion("", "", [state.line for state in portion], script, batch.seconds, examined=batch.examined)
    return StatesAsked(
        machine=machine,
        job=json.loads(render_job(setup, told)),
        mount_points=tuple(volume.mount_point for volume in setup.plan.volumes),
        alone=any(stage.alone for stage in plan_stages(setup.plan.volumes)),
    )


# ---------------------------------------------------------------- at a worker


def look_over(text: str) -> str:
    """The report of this machine for `MachineAsked`, as JSON."""
    with closing(LocalHost()) as host:
        problem = problem_of(host, MachineAsked.model_validate_json(text))
        return MachineTold(problem=problem, kernel=host.read_text(KERNEL).strip()).model_dump_json()


def problem_of(host: Host, asked: MachineAsked) -> str:
    """Reason why states cannot be checked on this machine; empty if they can."""
    if os.geteuid() != 0:
        return f"it runs as {pwd.getpwuid(os.geteuid()).pw_name}: only root may mount states of disks"
    root = f"{host.state_directory()}/mount"
    if root != asked.mount_root:
        return f"it mounts below {root}, and the trial below {asked.mount_root}: set PGSTRATA_STATE_DIRECTORY alike"
    for what, command_of_it, wanted in (
        ("strata-disk", call("--version").resolve({}), asked.program),
        ("PostgreSQL", command(asked.postgres, "--version"), asked.version),
    ):
        said = host.run(command_of_it, check=False)
        if said.exit_code != 0 or said.stdout.strip() != wanted:
            there = said.stdout.strip() or said.stderr.strip() or f"exit code {said.exit_code}"
            return f"{what} is {wanted} at the trial, and there: {there}"
    if not any(entry.pw_name == asked.user for entry in pwd.getpwall()):
        return f"there is no user {asked.user}"
    lacking = missing(host, asked.needs)
    return "; ".join(one.text for one in lacking) or disks_problem(host)


def disks_problem(host: Host) -> str:
    """The reason why the disks of a state cannot be attached on a host; empty if they can."""
    return next(filter(None, (node_problem(host, node) for node in NODES)), "")


def look_at_states(text: str, packed_log: bytes) -> str:
    """The report on each state, as `state_worker` prints it, as JSON with its exit status. Raises PreflightError, with
    nothing started, if this machine cannot check states."""
    asked = StatesAsked.model_validate_json(text)
    with closing(LocalHost()) as host:
        clean(host)  # what one that was killed left
        if problem := problem_of(host, asked.machine):
            raise PreflightError(f"{os.uname().nodename}: {problem}")
        with _turn(host, asked), _place(host, asked) as (place, left):
            told = _looked(host, asked, place, packed_log)
        return json.dumps({**told, "left": left})


def _turn(host: Host, asked: StatesAsked) -> AbstractContextManager[None]:
    """Serialises the workers of a machine that can have only one state up at a time."""
    if not asked.alone:
        return nullcontext()
    return locked(host, TURN, f"{os.getpid()}", what="turns", wait_s=math.inf, pause_s=TURN_PAUSE_S)


@dataclass(frozen=True)
class _Place:
    """The locations of a worker's daemon, log and job."""

    folder: str
    marker: str

    @property
    def daemon(self) -> str:
        return f"{self.folder}/states.media"


@contextmanager
def _place(host: Host, asked: StatesAsked) -> Iterator[tuple[_Place, list[str]]]:
    """A folder, journaled with its future content. Afterwards the list contains what could not be undone."""
    name, left = f"states-{secrets.token_hex(6)}", list[str]()
    place = _Place(f"{host.state_directory()}/{OURS}{name}", name)
    files = tuple(f"{place.daemon}/disks/{disk['of']}" for disk in asked.job["disks"])
    undos = (RemovePath(path=place.folder), *undos_of(place.daemon, files), StopProcesses(marker=name))
    with journaled(host, name, *undos, told=lambda lines: left.extend(f"{name}: {line}" for line in lines)):
        host.make_directory(place.folder, mode=0o700)
        yield place, left


def _looked(host: Host, asked: StatesAsked, place: _Place, packed_log: bytes) -> dict[str, Any]:
    log, job = f"{place.folder}/events.log", f"{place.folder}/job.json"
    with gzip.open(io.BytesIO(packed_log)) as packed, open(log, "xb") as file:
        shutil.copyfileobj(packed, file)
    host.make_directory(asked.machine.mount_root, mode=0o755)
    places = {"root": asked.machine.mount_root, "folders": asked.mount_points}
    host.write_text(job, json.dumps({**asked.job, "daemon": place.daemon, "log": log, "places": places}), mode=0o600)
    host.run(plan_serve(place.daemon).resolve({}))
    worker = plan_worker(job, len(asked.job["states"]), marked(place.marker))
    done = host.run(worker.resolve({}), check=False)
    return {"code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}
