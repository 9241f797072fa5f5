"""How much space a stack takes on its medium: asked from the filesystem, which knows of compression and copies."""

from __future__ import annotations

import re
from collections.abc import Callable

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Host, command
from pgstrata.record.schema import SpaceRecord
from pgstrata.stack.plan import StackPlan, VolumePlan

SPACE_TIMEOUT_S = 600.0
_BTRFS_USED = re.compile(r"^\s+Used:\s+(\d+)\s*$", re.MULTILINE)


def run_space(host: Host, plan: StackPlan, moment: str) -> SpaceRecord:
    """Physical bytes of every volume after a sync. The server is stopped: all it has is in its files."""
    places = [v.mount_point for v in plan.volumes]
    host.run(command("sync", "--file-system", places, timeout_s=SPACE_TIMEOUT_S))
    by_role = {v.role: _PHYSICAL.get(v.volume.fs.kind, _used)(host, v) for v in plan.volumes}
    return SpaceRecord(moment=moment, physical_bytes=sum(by_role.values()), database_bytes=None, by_role=by_role)


def _used(host: Host, volume: VolumePlan) -> int:
    """What df calls used, the filesystem's own metadata with it."""
    asked = host.run(command("df", ["--block-size", "1"], "--output=used", volume.mount_point))
    return parse_df_used(asked.stdout)


def _of_directory(host: Host, volume: VolumePlan) -> int:
    """An existing directory shares its filesystem with others, so its files are counted."""
    asked = host.run(command("du", "--summarize", ["--block-size", "1"], volume.directory, timeout_s=SPACE_TIMEOUT_S))
    return int(asked.stdout.split()[0])


def _of_btrfs(host: Host, volume: VolumePlan) -> int:
    """All copies on all devices, which df divides out."""
    asked = host.run(command("btrfs", "filesystem", "usage", "--raw", volume.mount_point))
    return parse_btrfs_used(asked.stdout)


def _of_zfs(host: Host, volume: VolumePlan) -> int:
    """Allocated in the pool, parity and copies with it; the pool carries the name of the mounted dataset."""
    source = host.run(command("findmnt", "--noheadings", ["--output", "SOURCE"], ["--mountpoint", volume.mount_point]))
    pool = source.stdout.strip().split("/", 1)[0]
    return int(host.run(command("zpool", "list", "-Hp", ["-o", "allocated"], pool)).stdout)


_PHYSICAL: dict[str, Callable[[Host, VolumePlan], int]] = {"dir": _of_directory, "btrfs": _of_btrfs, "zfs": _of_zfs}


def parse_df_used(text: str) -> int:
    """Bytes of `df --output=used`: a headline and a number; TrialError for anything else."""
    lines = text.split()
    if len(lines) != 2 or not lines[1].isdigit():
        raise TrialError(f"df printed something else than the used space: {text.strip()!r}")
    return int(lines[1])


def parse_btrfs_used(text: str) -> int:
    """The overall `Used:` of `btrfs filesystem usage --raw`; TrialError when it is not there."""
    match = _BTRFS_USED.search(text)
    if match is None:
        raise TrialError("btrfs filesystem usage printed no overall `Used:`")
    return int(match[1])
