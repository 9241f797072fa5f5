"""The campaign of crash trials: stacks on recorded disks, with a server that produces many states in a short time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.durability import NO_WAL, role_words
from pgstrata.spec.file.files import resolve_stack_files
from pgstrata.spec.layers.kind import Device, Kind
from pgstrata.spec.layers.media import UNTIMED, MediaDevice
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.stack import Stack, Volume
from pgstrata.spec.workload import Workload

MIB = 1 << 20
DISK_BYTES = 512 * MIB
LOAD_ROOM, DUMP_RATIO = 3, 8
"""Bytes of a disk for each byte of a load's data, and of data for each byte of a dump."""
SETTINGS = {"shared_buffers": "1MB", "max_wal_size": "64MB"}
"""Defaults below the stack's own settings: few buffers, so that pages are written while transactions run; a small
disk."""
INITDB = ("--wal-segsize=1",)
"""Defaults where the stack has no initdb options: small segments, so that many of them are started and recycled."""
LEDGER = Workload(scale=(1,), clients=(8,))
"""The workload for preflight's estimate: the ledger is smaller than pgbench's tables of scale 1."""


def named_stacks(texts: Sequence[str]) -> Campaign:
    """A campaign of unchanged stacks in short notation; UsageError for an invalid or duplicate stack."""
    stacks = tuple(_named(text) for text in texts)
    names = [stack.name for stack in stacks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"stack {twice[0]!r} is named twice", hint="name each stack once")
    return Campaign(name="stacks", stacks=stacks)


def _named(text: str) -> Stack:
    problems, stack = resolve_stack_files(parse_stack(text), Path.cwd())
    if problems:
        raise UsageError(f"{text!r}: {problems[0].text}", hint=problems[0].hint)
    if not stack.is_attested:
        raise UsageError(f"{text!r} is a running server: its power is not cut", hint="name a stack that is built")
    return stack


def crash_campaign(campaign: Campaign, *, loaded: bool = False) -> Campaign:
    """The same stacks on recorded disks, `loaded` with room for the campaign's workload, which then runs on their host.
    UsageError names the first stack without crash trials."""
    shown = " ".join(stack.name for stack in campaign.stacks)
    workload = campaign.workload.model_copy(update={"client": None}) if loaded else LEDGER
    size_bytes = DISK_BYTES + (LOAD_ROOM * _data_bytes(workload) if loaded else 0)
    stacks = tuple(_recorded(stack, size_bytes) for stack in campaign.stacks)
    return campaign.model_copy(update={"name": f"crash {shown}"[:120], "stacks": stacks, "workload": workload})


def _data_bytes(workload: Workload) -> int:
    """An estimate of the data in whole MiB; dumps are compressed."""
    if own := workload.sql or workload.pg_restore:
        return DUMP_RATIO * (Path(own).stat().st_size // MIB + 1) * MIB
    return workload.driver.bytes_per_scale * workload.scale[0]


def _recorded(stack: Stack, size_bytes: int) -> Stack:
    problem = crash_problem(stack)
    if problem:
        raise UsageError(
            f"there are no crash trials for stack {stack.name}: {problem}",
            hint="for example: pgstrata crash ext4 'ext4@wal=xfs' 'btrfs(raid1)' 'lvm/xfs' 'zfs(mirror)' nfs",
        )
    postgres = stack.postgresql
    made = {
        "settings": {**SETTINGS, **postgres.settings},
        "initdb": postgres.initdb or INITDB,
        "data_checksums": True if postgres.data_checksums is None else postgres.data_checksums,
    }
    volumes = {"data": on_recorded_disks(stack.data, size_bytes)}
    if stack.wal is not None:
        volumes["wal"] = on_recorded_disks(stack.wal, size_bytes)
    return stack.model_copy(update={**volumes, "postgresql": postgres.model_copy(update=made)})


def on_recorded_disks(volume: Volume, size_bytes: int = DISK_BYTES) -> Volume:
    """Put every disk of a volume, with log, cache and special devices, on a recorded disk, of `size_bytes` if no size
    is given."""
    made = {
        "device": _recorded_disk(volume.device, size_bytes),
        "layers": tuple(_recorded_own(layer.on_recorded(), size_bytes) for layer in volume.layers),
        "fs": _recorded_own(volume.fs.on_recorded(), size_bytes),
    }
    return volume.model_copy(update=made)


def _recorded_own(part: Kind, size_bytes: int) -> Kind:
    return part.model_copy(update={n: _recorded_disk(device, size_bytes) for n, device in part.own_devices.items()})


def _recorded_disk(asked: Device, size_bytes: int) -> MediaDevice:
    device = asked if isinstance(asked, MediaDevice) else MediaDevice(model=UNTIMED, count=asked.count)
    return device.model_copy(update={"recorded": True, "size": device.size or size_bytes})


def crash_problem(stack: Stack) -> str:
    """The reason why a stack has no crash trials; empty if it has."""
    if stack.topology is not None:
        return "it is a cluster"
    for role, volume in stack.volumes.items():
        if volume.fs.stores.in_memory:
            return (
                NO_WAL if role == "wal" else f"{role_words(role)} is in memory: nothing of it is left after a power cut"
            )
        if problem := recording_problem(volume):
            return problem
    return "tablespaces lie on volumes of their own, which the ledger does not use" if stack.tablespaces else ""


def recording_problem(volume: Volume) -> str:
    """The reason why a volume cannot be put on recorded disks; empty if it can."""
    strange = next((part.kind for part in (*volume.layers, volume.fs) if not part.assembles), "")
    if strange:
        return f"crash trials do not take {strange}"
    if not volume.needs_device:
        return f"the disks below this {volume.fs.kind} are not of this host, so nobody records them"
    return ""
