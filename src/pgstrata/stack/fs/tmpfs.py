"""tmpfs: the filesystem in memory. Nothing survives a reboot, and fsync costs nothing."""

from __future__ import annotations

from pgstrata.host.capabilities import Capability, filesystem
from pgstrata.host.facts.system import parse_meminfo
from pgstrata.host.protocol import Host
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.stack import mounts
from pgstrata.stack.kind import Below, FilesystemKind, PlannedFilesystem, release_problem
from pgstrata.stack.mounts import MountCheck, MountOption, plan_mount
from pgstrata.stack.place import Place
from pgstrata.stack.sizing import Wanted, require_memory, require_size

SOURCE = "pgstrata"
"""Source shown in lists of mounts, as tmpfs has no device."""

PAGE_BYTES = 4096


def plan_tmpfs(fs: Tmpfs, below: Below, place: Place) -> PlannedFilesystem:
    """Plan mounting an empty tmpfs."""
    options = _mount_options(fs)
    return PlannedFilesystem(
        steps=(plan_mount("tmpfs", options, SOURCE, place),),
        mount_point=place.mount_point,
        checks=(MountCheck(place.role, place.mount_point, "tmpfs", SOURCE, options),),
    )


def _mount_options(fs: Tmpfs) -> tuple[MountOption, ...]:
    # the kernel rounds up to whole pages and shows KiB; half of the memory is the default, which it does not show
    size = f"{-(-fs.size // PAGE_BYTES) * PAGE_BYTES // 1024}k" if fs.size else None
    return (
        mounts.setting("size", fs.size, "half of the memory", shown=size, always=True),
        mounts.setting("huge", fs.huge, "never", always=True),
        mounts.setting("nr_inodes", fs.nr_inodes, "half of the pages"),
        *mounts.switched_on(fs, ("noswap",)),
        *mounts.access_times(fs),
    )


def _require_room(host: Host, fs: Tmpfs, wanted: Wanted) -> None:
    """Require that data in tmpfs fits into free memory, with room for the server."""
    meminfo = parse_meminfo(host.read_text("/proc/meminfo"))
    size_bytes = fs.size or meminfo["MemTotal"] // 2
    require_size(wanted, "tmpfs", size_bytes, wanted.size_bytes)
    require_memory(host, wanted.stack, "tmpfs", max(wanted.size_bytes, wanted.alike_bytes))


NOSWAP = (6, 4)
"""The first Linux that keeps a tmpfs out of swap."""

KIND = FilesystemKind(
    Tmpfs,
    plan_tmpfs,
    capabilities=(Capability("fs.tmpfs", "mount tmpfs", (filesystem("tmpfs"),)),),
    kernel_problem=lambda host, fs: release_problem(host, "tmpfs noswap", NOSWAP) if fs.noswap else "",
    require_room=_require_room,
)
