"""Space that a campaign takes, before it is started: pure estimates, on the large side.

What a run adds to the loaded database (history, bloat) is taken as 30 %.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgstrata.errors import PreflightError
from pgstrata.host.facts.system import parse_meminfo
from pgstrata.host.protocol import Host
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.stack import Stack, Volume
from pgstrata.spec.units import render_size
from pgstrata.stack.tuning import setting

MIB, GIB = 2**20, 2**30
GROWTH = 1.3
CLUSTER_BYTES = 64 * MIB
"""A cluster with nothing in it."""

DEFAULT_MAX_WAL_BYTES = GIB
WAL_OVERSHOOT = 1.5
"""max_wal_size is a soft limit: WAL grows beyond it while a checkpoint runs."""

ARCHIVED_SHARES = 4
"""Multiple of max_wal_size taken for an archive: it keeps what pg_wal gives back. Nobody knows what a run writes."""

FILESYSTEM_OVERHEAD = 1.15
"""Journal, inode tables, reserved blocks (5 % on ext4)."""
LEAST_DEVICE_BYTES = 2 * GIB

_UNITS = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}


def parse_setting_bytes(text: str, unit_bytes: int) -> int:
    """Bytes of a setting of PostgreSQL; `unit_bytes` counts where none is written. ValueError for anything else."""
    match = re.fullmatch(r"\s*'?(\d+)\s*([a-zA-Z]*)'?\s*", text)
    units = {"": unit_bytes, **_UNITS}
    if match is None or match[2].lower() not in units:
        raise ValueError(f"not a size of PostgreSQL: {text!r}")
    return int(match[1]) * units[match[2].lower()]


def _setting_bytes(stack: Stack, name: str, unit_bytes: int, default_bytes: int) -> int:
    """A setting as the stack gives it. (One that PostgreSQL would refuse is the server's to report, with its line.)"""
    for given, text in stack.postgresql.settings.items():
        if given.lower() == name:
            try:
                return parse_setting_bytes(text, unit_bytes)
            except ValueError:
                return default_bytes
    return default_bytes


def shared_buffers_bytes(stack: Stack) -> int:
    """Return the bytes that the server of a stack commits at once."""
    return _setting_bytes(stack, "shared_buffers", 8192, 128 * MIB)


@dataclass(frozen=True)
class Content:
    """Content that a trial puts into a stack at most: the database, and everything else of a cluster."""

    database_bytes: int
    wal_bytes: int

    @property
    def total_bytes(self) -> int:
        return CLUSTER_BYTES + self.database_bytes + self.wal_bytes


def content_of(campaign: Campaign, stack: Stack, loaded_bytes: int | None = None) -> Content:
    """At the largest scale. `loaded_bytes` is the size of the user's own database, where the campaign loads one."""
    per_scale = campaign.workload.driver.bytes_per_scale
    database_bytes = max(campaign.workload.scale) * per_scale if loaded_bytes is None else loaded_bytes
    wal_bytes = _setting_bytes(stack, "max_wal_size", MIB, DEFAULT_MAX_WAL_BYTES)
    return Content(int(database_bytes * GROWTH), int(wal_bytes * WAL_OVERSHOOT))


def bytes_by_role(campaign: Campaign, stack: Stack, content: Content) -> dict[str, int]:
    """Logical bytes on each volume of a stack."""
    found = dict.fromkeys(stack.volumes, CLUSTER_BYTES)
    tablespace = f"tablespace.{campaign.workload.tablespace}"
    found[tablespace if tablespace in found else "data"] += content.database_bytes
    found["wal" if "wal" in found else "data"] += content.wal_bytes
    for node in stack.nodes[1:]:
        found[node.roles["data"]] += content.database_bytes
        found[node.roles.get("wal", node.roles["data"])] += content.wal_bytes
    if "archive" in found:
        found["archive"] += ARCHIVED_SHARES * content.wal_bytes
    return found


def copies(volume: Volume) -> float:
    """Bytes on the devices for each byte written to the filesystem: mirrors, parity, snapshots that diverge."""
    factor = volume.fs.copies(volume.count_on_top)
    for layer in volume.layers:
        factor *= layer.copies(volume.device.count)
    return factor


AGED_SHARE = 0.8
"""Share that ageing leaves filled; the database has to fit into the rest."""


def room_share(campaign: Campaign) -> float:
    """Share of a device that is free when the data is loaded."""
    return 1 - AGED_SHARE if campaign.runs.aged else 1.0


def device_bytes(volume: Volume, logical_bytes: int) -> int:
    """Return the bytes that each device below a volume must hold at least."""
    return int(logical_bytes * copies(volume) * FILESYSTEM_OVERHEAD / volume.device.count)


def loop_size_bytes(campaign: Campaign, loaded_bytes: int | None = None) -> int:
    """Size of each loop file for which the campaign names none: enough for every stack, in whole GiB.

    Twice the estimate, since the files are sparse and copy-on-write filesystems slow down when they are nearly full.
    """
    wanted = LEAST_DEVICE_BYTES
    for stack in campaign.stacks:
        roles = bytes_by_role(campaign, stack, content_of(campaign, stack, loaded_bytes))
        for role, volume in stack.volumes.items():
            if volume.needs_device:
                wanted = max(wanted, int(2 * device_bytes(volume, roles[role]) / room_share(campaign)))
    return -(-wanted // GIB) * GIB


def scratch_bytes(
    campaign: Campaign, loop_bytes: int, loaded_bytes: int | None = None, *, side_by_side: bool = False
) -> int:
    """The most that the campaign's files in the scratch folder take at one time: loop files and golden copies. With
    `side_by_side` all stacks stand at once."""
    stacks = [_loop_files_bytes(campaign, stack, loop_bytes, loaded_bytes) for stack in campaign.stacks]
    # kept stacks stand side by side, each at every scale
    scales = len(campaign.workload.scale) if campaign.runs.load == "keep" else 1
    standing = sum(stacks) * scales if side_by_side or campaign.runs.load == "keep" else max(stacks)
    return standing + _golden_bytes(campaign, loaded_bytes)


def memory_bytes(campaign: Campaign, stack: Stack, loaded_bytes: int | None = None) -> int:
    """Memory of a standing stack: shared buffers, the page cache of its database, and volumes in memory."""
    content = content_of(campaign, stack, loaded_bytes)
    roles = bytes_by_role(campaign, stack, content)
    volumes = stack.volumes.items()
    held = sum(roles[role] for role, v in volumes if v.fs.in_memory)
    held += sum(device_bytes(v, roles[r]) * v.device.count for r, v in volumes if v.needs_device and v.device.in_memory)
    return shared_buffers_bytes(stack) + content.database_bytes + held


def _loop_files_bytes(campaign: Campaign, stack: Stack, loop_bytes: int, loaded_bytes: int | None) -> int:
    roles = bytes_by_role(campaign, stack, content_of(campaign, stack, loaded_bytes))
    total = 0
    for role, volume in stack.volumes.items():
        capacity = volume.device.scratch_bytes(loop_bytes) if volume.needs_device else None
        if capacity is not None:
            filled = device_bytes(volume, roles[role]) * volume.device.count
            aged = int(capacity * AGED_SHARE) if campaign.runs.aged else 0
            total += max(filled + aged, capacity if campaign.runs.precondition == "steady" else 0)
    return total


def _golden_bytes(campaign: Campaign, loaded_bytes: int | None) -> int:
    """One copy for each way to make a cluster, set of tablespaces, and scale (see `trial.load.golden_path`)."""
    if campaign.runs.load != "copy":
        return 0
    ways = {
        (p.major, p.source, p.installation, p.initdb, p.data_checksums, tuple(sorted(s.tablespaces)))
        for s, p in ((s, s.postgresql) for s in campaign.stacks)
    }
    scales = campaign.workload.scale if loaded_bytes is None else ()
    databases = [scale * campaign.workload.driver.bytes_per_scale for scale in scales] or [loaded_bytes or 0]
    return len(ways) * sum(CLUSTER_BYTES + database for database in databases)


LEAST_FREE_SHARE = 0.10
"""A fuller filesystem slows down and would distort the measurement."""


@dataclass(frozen=True)
class Wanted:
    """Required size of a stack's volume, and the OS user that must reach it (None: the user of pgstrata)."""

    stack: str
    size_bytes: int
    user: str | None = None
    alike_bytes: int = 0
    """Required size of all volumes of the stack on that kind of filesystem: those in memory share it."""


def require_free(host: Host, path: str, needed_bytes: int, free_bytes: int, total_bytes: int) -> None:
    """Raise PreflightError when a filesystem would keep too little free space."""
    left = free_bytes - needed_bytes
    if left < LEAST_FREE_SHARE * total_bytes:
        raise PreflightError(
            f"too little space in {path} on {host.name}: up to {render_size(needed_bytes)} are needed, "
            f"{render_size(free_bytes)} are free, and {LEAST_FREE_SHARE:.0%} must stay free",
            hint="lower workload.scale, name another scratch folder, or free some space",
        )


def require_memory(host: Host, stack: str, what: str, needed_bytes: int) -> None:
    """Raise PreflightError when data in memory would leave too little for programs."""
    available = parse_meminfo(host.read_text("/proc/meminfo"))["MemAvailable"]
    if needed_bytes + setting.ROOM_BYTES > available:
        raise PreflightError(
            f"too little memory on {host.name} for {what} of stack {stack}: about {render_size(needed_bytes)} and "
            f"{render_size(setting.ROOM_BYTES)} for programs are needed, {render_size(available)} are available",
            hint="lower workload.scale or max_wal_size",
        )


def require_size(wanted: Wanted, name: str, size_bytes: int, needed_bytes: int) -> None:
    """Raise PreflightError when a device, or its substitute, is too small."""
    if size_bytes < needed_bytes:
        raise PreflightError(
            f"{name} of stack {wanted.stack} is too small: it has {render_size(size_bytes)}, "
            f"about {render_size(needed_bytes)} are needed",
            hint="lower workload.scale or max_wal_size, or give it more space",
        )
