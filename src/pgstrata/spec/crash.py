"""The campaign of crash trials: stacks on recorded disks, with a server that brings many states about in short time."""

from __future__ import annotations

from collections.abc import Sequence

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.media import UNTIMED, MediaDevice
from pgstrata.spec.notation import parse_stack
from pgstrata.spec.stack import Stack, Volume
from pgstrata.spec.workload import Workload

DISK_BYTES = 512 << 20
SETTINGS = {"shared_buffers": "1MB", "max_wal_size": "64MB"}
"""Unless the stack sets them: few buffers, so that pages are written while transactions run, and a small disk."""
INITDB = ("--wal-segsize=1",)
"""Unless the stack has options of its own: small segments, so that many of them are begun and recycled."""
LEDGER = Workload(scale=(1,), clients=(8,))
"""What preflight reckons with: the ledger is smaller than pgbench's tables of scale 1."""


def named_stacks(texts: Sequence[str]) -> Campaign:
    """A campaign of stacks in short notation, as they are; UsageError for one that is none or is there twice."""
    stacks = tuple(parse_stack(text) for text in texts)
    names = [stack.name for stack in stacks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"stack {twice[0]!r} is named twice", hint="name each stack once")
    return Campaign(name="stacks", stacks=stacks)


def crash_campaign(campaign: Campaign) -> Campaign:
    """The same stacks on recorded disks. UsageError names the first stack that no crash trials exist for."""
    shown = " ".join(stack.name for stack in campaign.stacks)
    stacks = tuple(_recorded(stack) for stack in campaign.stacks)
    return campaign.model_copy(update={"name": f"crash {shown}"[:120], "stacks": stacks, "workload": LEDGER})


def _recorded(stack: Stack) -> Stack:
    problem = crash_problem(stack)
    if problem:
        raise UsageError(
            f"there are no crash trials for stack {stack.name}: {problem}",
            hint="name stacks of ext4, xfs and btrfs, for example: pgstrata crash ext4 'ext4@wal=xfs' 'btrfs(raid1)'",
        )
    postgres = stack.postgresql
    made = {
        "settings": {**SETTINGS, **postgres.settings},
        "initdb": postgres.initdb or INITDB,
        "data_checksums": True if postgres.data_checksums is None else postgres.data_checksums,
    }
    volumes = {"data": _on_recorded_disks(stack.data)}
    if stack.wal is not None:
        volumes["wal"] = _on_recorded_disks(stack.wal)
    return stack.model_copy(update={**volumes, "postgresql": postgres.model_copy(update=made)})


def _on_recorded_disks(volume: Volume) -> Volume:
    asked = volume.device
    if isinstance(asked, MediaDevice):
        device = asked
    else:
        device = MediaDevice(model=UNTIMED, count=int(getattr(asked, "count", 1)))
    made = device.model_copy(update={"recorded": True, "size": device.size or DISK_BYTES})
    return volume.model_copy(update={"device": made})


def crash_problem(stack: Stack) -> str:
    """Why there are no crash trials for a stack; empty where there are."""
    if stack.topology is not None:
        return "it is a cluster"
    for volume in stack.volumes.values():
        if not volume.fs.mounts_alone:
            return f"crash trials do not take {volume.fs.kind}"
        if volume.layers or volume.fs.own_devices:
            return "there are layers or further devices between disk and filesystem"
    return "tablespaces lie on volumes of their own, which the ledger does not use" if stack.tablespaces else ""
