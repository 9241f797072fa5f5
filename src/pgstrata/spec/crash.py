"""The campaign of crash trials: stacks on recorded disks, with a server that brings many states about in short time."""

from __future__ import annotations

from collections.abc import Sequence

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.media import UNTIMED, MediaDevice
from pgstrata.spec.notation import parse_stack
from pgstrata.spec.stack import Stack
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
            hint="name stacks of one filesystem on one disk, for example: pgstrata crash ext4 xfs:noatime btrfs",
        )
    asked = stack.data.device
    device = asked if isinstance(asked, MediaDevice) else MediaDevice(model=UNTIMED, count=1)
    device = device.model_copy(update={"recorded": True, "size": device.size or DISK_BYTES})
    postgres = stack.postgresql
    made = {
        "settings": {**SETTINGS, **postgres.settings},
        "initdb": postgres.initdb or INITDB,
        "data_checksums": True if postgres.data_checksums is None else postgres.data_checksums,
    }
    data = stack.data.model_copy(update={"device": device})
    return stack.model_copy(update={"data": data, "postgresql": postgres.model_copy(update=made)})


def crash_problem(stack: Stack) -> str:
    """Why there are no crash trials for a stack; empty where there are."""
    data = stack.data
    if not data.fs.mounts_alone:
        return f"{data.fs.kind} is not among their filesystems"
    if len(stack.volumes) > 1:
        return "parts of its data lie on a volume of their own"
    if data.layers or data.fs.own_devices:
        return "there are layers or further devices between disk and filesystem"
    return "it has several disks" if _disks(data.devices) > 1 else ""


def _disks(devices: Sequence[object]) -> int:
    return sum(int(getattr(device, "count", 1)) for device in devices)
