"""A state of a record made again, on disks in memory, and left mounted until `pgstrata clean`.

What is mounted is an overlay over the event log: whatever is done to it, the record stays as it is. The digest of its
content is compared with that of the record before anything is attached.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pgstrata.crash.job import CrashPlaces, plan_mounts, recorded_disks
from pgstrata.crash.named_state import NamedState
from pgstrata.crash.program import parse_states
from pgstrata.errors import PreflightError, UsageError, writing
from pgstrata.host.delivery import deliver
from pgstrata.host.protocol import Host
from pgstrata.record.bundle import add_members, write_record
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.crash import LEDGER
from pgstrata.spec.stack import Volume
from pgstrata.stack.block.loop import plan_attach
from pgstrata.stack.block.media import call, recorded_disk, undos_of
from pgstrata.stack.build import build
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import plan_folders, plan_stack
from pgstrata.stack.step import OnHost, PlannedCommand, Ref, Step, planned
from pgstrata.stack.undo import RemovePath, Unmount
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.scratch import check_scratch, make_scratch
from pgstrata.trial.site import Site
from pgstrata.trial.survey import open_site, survey

TIMEOUT_S = 1800.0
ANOTHER = "log and state of one crash trial belong together: copy the record again, whole"


@dataclass(frozen=True)
class Replayed:
    """Where a state was left."""

    mount_points: tuple[str, ...]
    data_directory: str
    server: str
    """The program that recovers it."""
    user: str


def replay_campaign(named: NamedState, scratch: Path) -> Campaign:
    """The one stack of a state, to be built here."""
    stack = named.planned.stack
    return Campaign(name="replay", stacks=(stack,), workload=LEDGER, scratch=str(scratch))


def open_replay_site(host: Host, named: NamedState, campaign: Campaign, by: Interruption) -> Site:
    """The site where a state is mounted: at the places that the recorded stack had, as links between volumes lead
    there."""
    host.interruptible(by.waiting)
    site = survey(host, campaign, Path(named.data.source.text))
    if not site.as_root:
        raise PreflightError("states of disks are mounted, which only root may do", hint="run it as root")
    found = named.trial.found
    if len(campaign.stacks[0].volumes) > 1 and found.mount_root != (site.mount_root or ""):
        raise PreflightError(
            f"links between the volumes of {named.title} lead to {found.mount_root}, and mounts are made in "
            f"{site.mount_root} here",
            hint=f"PGSTRATA_STATE_DIRECTORY={Path(found.mount_root).parent}",
        )
    check_scratch(site)
    deliver(host)
    return open_site(replace(site, token=found.token or site.token))


def replay_setup(site: Site, named: NamedState) -> TrialSetup:
    trial = named.planned.trial
    return TrialSetup.of(site, trial, plan_stack(site.campaign.stacks[0], site.context(trial)))


def replay(site: Site, named: NamedState) -> Replayed:
    """Makes the state and mounts it; what is left is journaled. PreflightError where the log has another state."""
    setup = replay_setup(site, named)
    journal = Journal.create(site.host, setup.plan.context.trial_id)
    make_scratch(site.host, site.scratch, journal)
    with unpacked(named) as packed:
        steps = (*log_steps(setup, named, packed), *_serve_steps(setup, named), *_mount_steps(setup))
        build(site.host, replace(setup.plan, steps=steps), journal)
    server = setup.server
    return Replayed(
        tuple(volume.mount_point for volume in setup.plan.volumes),
        setup.plan.data_directory,
        server.installation.program("postgres"),
        server.user,
    )


@contextmanager
def unpacked(named: NamedState) -> Iterator[Path]:
    """The packed event log as a file; it may lie in a zip."""
    with tempfile.TemporaryDirectory(prefix="pgstrata-replay-") as folder:
        path = Path(folder) / "events.log.gz"
        with named.open_log() as log, path.open("wb") as file:
            shutil.copyfileobj(log, file)
        yield path


def log_steps(setup: TrialSetup, named: NamedState, packed: Path) -> tuple[Step, ...]:
    """Folders, the event log, and the proof that it has the state."""
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
    """PreflightError unless what was made of the log has the digest of the state, and that is the record's."""
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


def _serve_steps(setup: TrialSetup, named: NamedState) -> tuple[Step, ...]:
    """A daemon with the disks of the state, and a loop device for each."""
    folder, log = CrashPlaces.of(setup).states(0), CrashPlaces.of(setup).log
    disks = recorded_disks(setup.plan.volumes)
    files = [f"{folder}/disks/{disk.name}" for disk in disks]
    add = (
        replace(
            call("add", folder, disk.name, "--log", log, "--of", disk.name), stdin=named.state.line, timeout_s=TIMEOUT_S
        )
        for disk in disks
    )
    return (
        Step("disks of the state", (call("serve", folder, "--background"), *add), undo=undos_of(folder, tuple(files))),
        *(plan_attach(file, Ref(disk.node)) for file, disk in zip(files, disks, strict=True)),
    )


def _mount_steps(setup: TrialSetup) -> tuple[Step, ...]:
    return tuple(
        Step(
            f"mount {mount.mount_point}",
            (planned("mkdir", "--parents", mount.mount_point), *mount.commands),
            undo=(RemovePath(path=mount.mount_point), Unmount(target=mount.mount_point)),
        )
        for mount in plan_mounts(setup)
    )


# ---------------------------------------------------------------- to be taken elsewhere


def export_state(host: Host, named: NamedState, out: Path) -> tuple[Path, ...]:
    """The disks of a state in the format of dm-log-writes, each in a file: of several, with the disk's name behind."""
    disks = [name for volume in named.planned.stack.volumes.items() for name in _disk_names(*volume)]
    files = [out] if len(disks) == 1 else [out.with_name(f"{out.name}.{disk}") for disk in disks]
    for file in files:
        refuse_existing(file)
    deliver(host)
    with unpacked(named) as packed:
        log = packed.with_suffix("")
        unpack = planned("gunzip", "--force", str(packed), timeout_s=TIMEOUT_S)
        measure = replace(call("measure", str(log)), stdin=f"{named.state.line}\n", timeout_s=TIMEOUT_S)
        host.run(unpack.resolve({}))
        (made,) = parse_states(host.run(measure.resolve({})).stdout)
        refuse_another(named, made.digest)
        for disk, file in zip(disks, files, strict=True):
            export = call("export-state", str(log), disk, str(file.resolve()))
            host.run(replace(export, stdin=named.state.line, timeout_s=TIMEOUT_S).resolve({}))
    return tuple(files)


def _disk_names(role: str, volume: Volume) -> list[str]:
    return [recorded_disk(role, number) for number in range(volume.device.count)]


def write_state(named: NamedState, out: Path, made: Mapping[str, bytes]) -> None:
    """The record of one state in one file, which can be named like a campaign directory; or of the one that was `made`
    of it, whose files these are."""
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
