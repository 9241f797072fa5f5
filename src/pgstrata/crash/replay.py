"""Recreates a recorded state on disks in memory, and leaves it mounted until `pgstrata clean`.

The mount is an overlay over the event log: changes never reach the record. The digest of its content is compared with
that of the record before anything is attached. `verify_trial` compares the digests of all kept states.

A state from someone else is refused unless allowed, as its database would run its author's settings, libraries and
functions here. Nothing in a record proves who made it: it counts as one's own if it was recorded on this machine, lies
in a directory, and belongs to a user who may become root anyway.
"""

from __future__ import annotations

import gzip
import os
import shlex
import shutil
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

from pgstrata.crash.event_log_archive import CHOICES, LOG
from pgstrata.crash.job import (
    CrashPlaces,
    Portion,
    base_backup,
    failover_steps,
    parse_seen,
    plan_stages,
    plan_worker,
    recorded_disks,
    render_failover,
    render_job,
)
from pgstrata.crash.ledger import acknowledged_by, parse_marks
from pgstrata.crash.named_state import NamedState, chosen_states, recorded_states
from pgstrata.crash.program import ChosenState, parse_states
from pgstrata.crash.script import SCRIPTS
from pgstrata.errors import PreflightError, TrialError, UsageError, writing
from pgstrata.host.delivery import deliver, trusted
from pgstrata.host.facts.gather import machine_id
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command, Host, marked
from pgstrata.postgres.server import SUPERUSER
from pgstrata.record.crash import ARCHIVE, StateRecord
from pgstrata.record.reader import CrashData
from pgstrata.record.redact import MACHINE_ID, add_members, write_record
from pgstrata.record.source import FolderSource, Source
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.crash import LEDGER, nodes_in_memory
from pgstrata.spec.crash_request import BESIDE
from pgstrata.spec.stack import PRIMARY, Volume
from pgstrata.spec.units import render_size
from pgstrata.stack.block.media import call, plan_serve, recorded_disk, undos_of
from pgstrata.stack.build import build
from pgstrata.stack.journal import Journal, temporary_folder
from pgstrata.stack.plan import StackPlan, plan_folders, plan_stack
from pgstrata.stack.sizing import LEAST_FREE_SHARE
from pgstrata.stack.step import OnHost, PlannedCommand, Stage, Step, planned
from pgstrata.stack.undo import RemovePath, StopProcesses, Undo, Unmount
from pgstrata.trial.context import TrialSetup, trial_directory
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.survey.host_survey import Site, check_scratch, make_scratch
from pgstrata.trial.survey.survey import open_site, survey

TIMEOUT_S = 1800.0
PIECE_BYTES = 1 << 20
ANOTHER = "log and state of one crash trial belong together: copy the record again, whole"


Fate = Literal["came back", "did not come back", "nothing is left"]
"""Fate of a node whose power was cut: as its disks are, the same but not used, or a part of it was in memory."""


@dataclass(frozen=True)
class ReplayedNode:
    """The data of a node of a cluster in a state; or the archive, with the base backup next to it."""

    name: str
    fate: Fate
    mount_points: tuple[str, ...]
    """Mount points of its disks."""
    data_directory: str | None
    """None if nothing remains."""
    went_on: bool
    """True if it continued when the trial checked the state."""


@dataclass(frozen=True)
class Replayed:
    """Locations of a recreated state."""

    mount_points: tuple[str, ...]
    data_directory: str | None
    """The command for a single server."""
    nodes: tuple[ReplayedNode, ...]
    """Nodes of a cluster; empty for a single server."""
    recovery: str
    """The command that recovers it."""
    start: str
    """The command that starts the server of a single server's state; empty for a cluster."""
    look: str
    """The command that connects to it."""
    strange: str
    """Reason why it may come from someone else; empty if it does not."""


def replay_campaign(named: NamedState, scratch: Path) -> Campaign:
    """The one stack of a state, to be built here. Its server's settings lie in the state. A settings file named by the
    record is not opened: on this machine it may be another file."""
    stack = named.planned.stack
    postgres = stack.postgresql.model_copy(update={"postgresql_conf": None})
    stack = stack.model_copy(update={"postgresql": postgres})
    workload = named.data.campaign.workload if named.trial.found.request.script == BESIDE else LEDGER
    return Campaign(name="replay", stacks=(stack,), workload=workload, scratch=str(scratch))


def open_replay_site(host: Host, named: NamedState, campaign: Campaign, by: Interruption) -> tuple[Site, str]:
    """The site where a state is mounted, at the places of the recorded stack, where links between volumes lead and a
    pool mounts its datasets; and why the state may come from someone else."""
    host.interruptible(by.waiting)
    site = survey(host, campaign, Path(named.data.source.text))
    if not site.as_root:
        raise PreflightError("states of disks are mounted, which only root may do", hint="run it as root")
    found = named.trial.found
    volumes = campaign.stacks[0].volumes.values()
    placed = len(volumes) > 1 or any(volume.fs.pools_disks for volume in volumes)
    if placed and found.mount_root != (site.mount_root or ""):
        raise PreflightError(
            f"{named.title} can only be mounted in {found.mount_root}, where its links lead to or its pool mounts it, "
            f"and mounts are made in {site.mount_root} here",
            hint=f"PGSTRATA_STATE_DIRECTORY={Path(found.mount_root).parent}",
        )
    check_scratch(site)
    with closing(LocalHost()) as here:
        machines = {site.facts.checked[MACHINE_ID], machine_id(here)}
        strange = why_strange(named, machines, trusted(here, os.environ).uids)
    deliver(host)
    return open_site(replace(site, token=found.token or site.token)), strange


def replay_setup(site: Site, named: NamedState) -> TrialSetup:
    trial = named.planned.trial
    return TrialSetup.of(site, trial, plan_stack(site.campaign.stacks[0], site.context(trial)))


def replay(site: Site, named: NamedState, strange: str) -> Replayed:
    """Makes and mounts the state; what remains is journaled. Raises PreflightError if the log has another state."""
    setup = replay_setup(site, named)
    journal = Journal.create(site.host, setup.plan.context.trial_id)
    make_scratch(site.host, site.scratch, journal)
    with packed_log(named.data.source, named.log) as packed:
        own = _failover_steps(setup, named) if setup.stack.topology else (_socket_step(setup),)
        steps = (*log_steps(setup, named, packed), *_up_steps(setup, named), *own)
        build(site.host, replace(setup.plan, steps=steps), journal)
    nodes = replayed_nodes(setup.plan, named.trial.found.request.gone, named.record.promoted if named.record else "")
    points = tuple(volume.mount_point for volume in setup.plan.volumes if volume.stages)
    data = None if nodes else setup.plan.data_directory
    start, look = ("", "") if nodes else _server_commands(setup)
    return Replayed(points, data, nodes, _recovery(setup), start, look, strange)


def replayed_nodes(plan: StackPlan, gone: Sequence[str], promoted: str) -> tuple[ReplayedNode, ...]:
    """The data of each node of a cluster, in order, with the archive last; empty for a single server."""
    stack, volumes = plan.stack, {volume.role: volume for volume in plan.volumes}
    if stack.topology is None:
        return ()
    in_memory = nodes_in_memory(stack)
    directories = {PRIMARY: plan.data_directory, **{one.name: one.data_directory for one in plan.standbys}}
    told = [(node.name, tuple(node.roles.values()), directories[node.name]) for node in stack.nodes]
    if base := base_backup(plan):
        told.append((ARCHIVE, (ARCHIVE,), base))
    made = []
    for name, roles, directory in told:
        fate: Fate = "nothing is left" if name in in_memory else "did not come back" if name in gone else "came back"
        points = tuple(volumes[role].mount_point for role in roles if volumes[role].stages)
        if name == ARCHIVE and not points:
            fate = "nothing is left"
        made.append(
            ReplayedNode(name, fate, points, None if fate == "nothing is left" else directory, name == promoted)
        )
    return tuple(made)


def _recovery(setup: TrialSetup) -> str:
    """Recovery of a single server; for a cluster, as in the trial: the furthest of the remaining servers."""
    server, places = setup.server, CrashPlaces.of_replay(setup)
    if setup.stack.topology is not None:
        return f'runuser -u {server.user} -- python3 -I {places.failover} "$(cat {places.failover_job})"'
    postgres = server.installation.program("postgres")
    return f"runuser -u {server.user} -- {postgres} --single -D {setup.plan.data_directory} postgres"


def _server_commands(setup: TrialSetup) -> tuple[str, str]:
    """Commands that start the server and connect to it. `pgstrata clean` finds it by its marker."""
    data, server = setup.plan.data_directory, setup.server
    as_user = ("runuser", "-u", server.user, "--", "env", *("=".join(pair) for pair in marked(server.marker)))
    options = shlex.join(("-k", server.run_directory, "-p", str(server.port)))
    start = ("--pgdata", data, "--log", server.log_file, "--options", options, "--wait", "start")
    look = ("--host", server.run_directory, "--port", str(server.port), "--username", SUPERUSER, "postgres")
    pg_ctl, psql = (server.installation.program(name) for name in ("pg_ctl", "psql"))
    return shlex.join((*as_user, pg_ctl, *start)), shlex.join((*as_user, psql, *look))


def _socket_step(setup: TrialSetup) -> Step:
    """The folder of a single server's socket and log, as that of the recorded trial is gone."""
    folder = trial_directory(setup.plan.context)
    undo = (RemovePath(path=folder, uid=setup.site.uid),)
    return Step("folder of socket and log", (), undo=undo, act=partial(_make_socket_folder, setup=setup, folder=folder))


def _make_socket_folder(runner: OnHost, *, setup: TrialSetup, folder: str) -> None:
    runner.host.make_directory(folder, mode=0o710, group=setup.site.user, new=True)
    runner.host.make_directory(setup.server.run_directory, mode=0o700, owner=setup.server.user)


def _failover_steps(setup: TrialSetup, named: NamedState) -> tuple[Step, ...]:
    """The program that brings up the remaining servers of a cluster, and its job."""
    places = CrashPlaces.of_replay(setup)
    told = places.failover_job
    write = planned("install", "--mode", "0600", "/dev/stdin", told)
    job = replace(write, stdin=render_failover(setup, named.trial.found.request.gone))
    return (*failover_steps(setup, places), Step("what is left", (job,), undo=(RemovePath(path=told),)))


@contextmanager
def packed_log(source: Source, name: str) -> Iterator[Path]:
    """A recorded event log as a file, still packed; it may lie in a zip."""
    with temporary_folder("replay") as folder:
        path = folder / "events.log.gz"
        with source.open(name) as log, path.open("wb") as file:
            shutil.copyfileobj(log, file)
        yield path


@contextmanager
def unpacked_log(host: Host, source: Source, name: str) -> Iterator[str]:
    """A recorded event log in a temporary folder. Raises PreflightError if it is damaged or too large."""
    with packed_log(source, name) as packed:
        refuse_large(host, str(packed.parent), packed)
        host.run(planned("gunzip", "--force", str(packed), timeout_s=TIMEOUT_S).resolve({}))
        yield str(packed.with_suffix(""))


def refuse_large(host: Host, folder: str, packed: Path) -> None:
    """Raises PreflightError for an event log that is damaged, or would fill the filesystem of the folder when it is
    unpacked there: a few bytes can claim to be very many."""
    space, unpacked_bytes = host.space(folder), 0
    most_bytes = int(space.free_bytes - LEAST_FREE_SHARE * space.total_bytes)
    try:
        with gzip.open(packed) as log:
            while unpacked_bytes <= most_bytes and (piece := log.read(PIECE_BYTES)):
                unpacked_bytes += len(piece)
    except (OSError, EOFError, zlib.error) as error:
        raise PreflightError(f"the event log is damaged: {error}", hint="copy the record again, whole") from None
    if unpacked_bytes > most_bytes:
        raise PreflightError(
            f"the event log of {render_size(packed.stat().st_size)} does not fit into {folder} on {host.name} when it "
            f"is unpacked: {render_size(space.free_bytes)} are free, and {LEAST_FREE_SHARE:.0%} must stay free",
            hint="name another scratch folder, if you trust whoever made the record",
        )


def log_steps(setup: TrialSetup, named: NamedState, packed: Path) -> tuple[Step, ...]:
    """Creates folders and the event log, and proves that the log has the state."""
    log = CrashPlaces.of(setup).log
    unpack = planned("gunzip", "--force", f"{log}.gz", timeout_s=TIMEOUT_S)
    measure = replace(call("measure", log), stdin=f"{named.state.line}\n", timeout_s=TIMEOUT_S)
    return (
        *plan_folders(setup.plan.context),
        Step(
            "event log",
            (unpack,),
            undo=(RemovePath(path=log), RemovePath(path=f"{log}.gz")),
            act=partial(_send, log=log, packed=packed, unpack=unpack),
        ),
        Step("compare the digest", (measure,), act=partial(_compare, named=named, measure=measure)),
    )


def _send(runner: OnHost, *, log: str, packed: Path, unpack: PlannedCommand) -> None:
    refuse_large(runner.host, str(PurePosixPath(log).parent), packed)
    runner.host.send(str(packed), f"{log}.gz", mode=0o600)
    done = runner.host.run(unpack.resolve({}), check=False)
    if done.exit_code != 0:
        raise PreflightError(f"the event log is damaged: {done.stderr.strip()}", hint="copy the record again, whole")


def _compare(runner: OnHost, *, named: NamedState, measure: PlannedCommand) -> None:
    done = runner.host.run(measure.resolve({}), check=False)
    if done.exit_code != 0:
        raise PreflightError(f"{named.title} is no state of its event log: {done.stderr.strip()}", hint=ANOTHER)
    (made,) = parse_states(done.stdout)
    refuse_another(named, made.digest)


def refuse_another(named: NamedState, made: str) -> None:
    """Raises PreflightError unless the state made from the log has the recorded digest."""
    if made != named.state.digest:
        raise PreflightError(
            f"{named.title} is another state than the one that was recorded: its digest is {made} when it is made of "
            f"this event log, and not {named.state.digest}",
            hint=ANOTHER,
        )
    if named.recorded_digest not in ("", made):
        raise PreflightError(
            f"the file of {named.title} makes another state than the one that was looked at: its digest is {made}, "
            f"and not {named.recorded_digest}",
            hint=ANOTHER,
        )


def _up_steps(setup: TrialSetup, named: NamedState) -> tuple[Step, ...]:
    """A daemon for the disks of the state, and a worker that attaches them, brings up the volumes and leaves them up. A
    worker keeps its loop devices locked until everything is up, so that udev assembles nothing before."""
    places, stages = CrashPlaces.of(setup), plan_stages(setup.plan.volumes)
    folder, job = places.states(0), f"{places.work}/state.json"
    files = tuple(f"{folder}/disks/{disk.name}" for disk in recorded_disks(setup.plan.volumes))
    points = [stage.mount_point for stage in stages if stage.mount_point]
    folders = (planned("mkdir", "--parents", points),) if points else ()
    worker = plan_worker(job, 1, marked(setup.server.marker))
    undos = (
        *(undo for stage in stages for undo in (*_undos_of_mount(stage), *stage.undo)),
        RemovePath(path=job),
        StopProcesses(marker=setup.server.marker),
    )
    told = Portion(folder, places.log, [named.state.line], SCRIPTS[named.trial.found.request.script], left_up=True)
    act = partial(_bring_up, folders=folders, worker=worker, job=(job, render_job(setup, told)), title=named.title)
    return (
        Step("daemon for the state", (plan_serve(folder),), undo=undos_of(folder, files)),
        *(step for stage in stages for step in stage.readies),
        Step("bring the state up", (*folders, worker), undo=undos, act=act),
    )


def _undos_of_mount(stage: Stage) -> tuple[Undo, ...]:
    point = stage.mount_point
    return (RemovePath(path=point), Unmount(target=point)) if point else ()


def _bring_up(
    runner: OnHost,
    *,
    folders: tuple[PlannedCommand, ...],
    worker: PlannedCommand,
    job: tuple[str, str],
    title: str,
) -> None:
    for make in folders:
        runner.host.run(make.resolve({}))
    runner.host.write_text(*job, mode=0o600)
    done = runner.host.run(worker.resolve({}), check=False)
    seen = parse_seen(done.stdout)
    if not seen or seen[0].problem:
        raise TrialError(f"{title} could not be brought up: {seen[0].problem if seen else done.stderr.strip()[-300:]}")
    if seen[0].mounted != 0:
        raise TrialError(
            f"{title} does not come up: {seen[0].mount_error}", hint="its disks as they are: --export FILE"
        )


# ---------------------------------------------------------------- to be taken elsewhere


def export_state(host: Host, named: NamedState, out: Path) -> tuple[Path, ...]:
    """The disks of a state in the format of dm-log-writes, each in a file; with several disks, the file name ends with
    the disk's name.
    """
    volumes = named.planned.stack.volumes
    disks = [name for role, one in volumes.items() if one.recorded for name in _disk_names(role, one)]
    files = [out] if len(disks) == 1 else [out.with_name(f"{out.name}.{disk}") for disk in disks]
    for file in files:
        refuse_existing(file)
    deliver(host)
    with unpacked_log(host, named.data.source, named.log) as log:
        measure = replace(call("measure", log), stdin=f"{named.state.line}\n", timeout_s=TIMEOUT_S)
        (made,) = parse_states(host.run(measure.resolve({})).stdout)
        refuse_another(named, made.digest)
        for disk, file in zip(disks, files, strict=True):
            export = call("export-state", log, disk, str(file.resolve()))
            host.run(replace(export, stdin=named.state.line, timeout_s=TIMEOUT_S).resolve({}))
    return tuple(files)


def _disk_names(role: str, volume: Volume) -> list[str]:
    own = ((f"{role}.{name}", device) for name, device in volume.own_devices.items())
    devices = ((role, volume.device), *own)
    return [recorded_disk(place, number) for place, device in devices for number in range(device.count)]


def write_state(named: NamedState, out: Path, made: Mapping[str, bytes]) -> None:
    """Writes the record of one state into one file, which can be named like a campaign directory. With `made`, these
    are the files of a state derived from it."""
    refuse_existing(out)
    folder = named.trial.folder
    new = {f"{folder}/{name}": content for name, content in made.items()}
    left_out = {*new, *((named.file,) if new else ())}
    with writing(out):
        write_record(out, named.data, only=named.files - left_out)
        add_members(out, new.items())


def refuse_existing(file: Path) -> None:
    if file.exists():
        raise UsageError(f"{file} is there already", hint="remove it, or name another file")


def why_strange(named: NamedState, machines: Collection[str], uids: Collection[int]) -> str:
    """Reason why a state may come from someone else; empty if it was recorded on one of these machines, in files of
    these users."""
    source = named.data.source
    if not isinstance(source, FolderSource):
        return "it comes in a file"
    facts = named.trial.facts
    if facts is None or facts.checked.get(MACHINE_ID) not in machines:
        return "it was recorded on another machine"
    folder = named.trial.folder
    planned = f"{folder}/planned.json"
    for name in ("", "campaign.json", folder, planned, f"{folder}/durability.json", named.log, named.file):
        path = Path(source.root) / name
        if (uid := os.lstat(path).st_uid) not in uids:
            return f"{path} belongs to user {uid}"
    return ""


def refuse_to_run(named: NamedState, strange: str, user: str) -> None:
    """Raises PreflightError if a server would be started on someone else's state."""
    if strange:
        raise PreflightError(
            f"{named.title} may be somebody else's: {strange}; to make it smaller a server is started on it, which "
            f"runs as {user} what its author put into its settings, libraries and functions",
            hint="--trust, if you trust whoever made it; on a machine of its own: --host lab",
        )


def refuse_to_mount(named: NamedState, strange: str) -> None:
    """Raises PreflightError for someone else's pool, which defines its own mount points."""
    pools = [v.fs.kind for v in named.planned.stack.volumes.values() if v.fs.pools_disks]
    if strange and pools:
        raise PreflightError(
            f"{named.title} may be somebody else's: {strange}; its {pools[0]} pool is mounted where its author said, "
            "over whatever is there",
            hint="--trust, if you trust whoever made it; on a machine of its own: --host lab",
        )


SHOWN = 5
"""Most differing states named one by one."""


@dataclass(frozen=True)
class Verified:
    """The comparison of one crash trial with its kept event log."""

    stack: str
    folder: str
    states: int
    """Number of states that the log and the choices make as recorded."""
    nested: int
    """States of interrupted recoveries, which are not compared: their logs are not kept unless one fails."""
    problems: tuple[str, ...]


def verify_trial(host: Host, source: Source, trial: CrashData) -> Verified:
    """Makes the states of a trial again and compares digests and acknowledgements."""
    records = recorded_states(source, trial)
    own = {state.digest: state for state in records.values() if state.interrupts is None}
    log, choices = (f"{trial.folder}/{name}" for name in (LOG, CHOICES))
    counted = trial.found.states
    problems = [f"{counted} states are counted, and {len(records)} are described"] if counted != len(records) else []
    same = 0
    if absent := [name for name in (log, choices) if not source.has(name)]:
        problems.append(f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not kept")
    else:
        chosen = chosen_states(source, choices)
        kept = {state.digest for state in chosen}
        missing = [state.id for digest, state in own.items() if digest not in kept]
        problems += _named("the choice of state {} is missing", missing)
        try:
            made, marks = _made(host, source, log, chosen)
        except PreflightError as error:
            problems.append(error.message)
        else:
            different = list(compare(own, made, marks))
            problems += different[:SHOWN]
            problems += [f"{len(different) - SHOWN} more states differ"] if len(different) > SHOWN else []
            same = len(own) - len(missing) - len(different)
    return Verified(trial.found.stack, trial.folder, max(same, 0), len(records) - len(own), tuple(problems))


def compare(own: Mapping[str, StateRecord], made: Sequence[tuple[ChosenState, str]], marks: str) -> Iterator[str]:
    """Differences between recorded states, by digest, and the digests of the same choices made again."""
    acknowledged = parse_marks(marks)
    for choice, digest in made:
        state = own.get(choice.digest)
        if state is None:
            yield f"the choice with digest {choice.digest} belongs to no recorded state"
        elif digest != state.digest:
            yield f"state {state.id} has digest {digest} when it is made of the event log, not {state.digest}"
        elif choice.cut != state.cut:
            yield f"state {state.id} is cut after event {choice.cut} by its choice, not {state.cut}"
        elif (count := sum(acknowledged_by(acknowledged, state.cut).values())) != state.acknowledged:
            yield f"state {state.id} has {count} acknowledged transactions in the event log, not {state.acknowledged}"


def _made(
    host: Host, source: Source, name: str, chosen: Sequence[ChosenState]
) -> tuple[list[tuple[ChosenState, str]], str]:
    """Every choice, by cut, with the digest that the log gives it; and the marks of the log."""
    ordered = sorted(chosen, key=lambda state: state.cut)
    lines = "".join(f"{state.line}\n" for state in ordered)
    with unpacked_log(host, source, name) as log:
        measure = replace(call("measure", log), stdin=lines, timeout_s=TIMEOUT_S).resolve({})
        states = parse_states(_printed(host, name, measure))
        marks = _printed(host, name, replace(call("marks", log), timeout_s=TIMEOUT_S).resolve({}))
    return [(choice, state.digest) for choice, state in zip(ordered, states, strict=True)], marks


def _printed(host: Host, name: str, command: Command) -> str:
    done = host.run(command, check=False)
    if done.exit_code != 0:
        raise PreflightError(f"{name} does not make its states: {done.stderr.strip()[-300:]}")
    return done.stdout


def _named(sentence: str, names: Sequence[str]) -> list[str]:
    told = [sentence.format(name) for name in names[:SHOWN]]
    return [*told, *([f"{len(names) - SHOWN} more choices are missing"] if len(names) > SHOWN else [])]
