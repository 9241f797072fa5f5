"""tmpfs: the filesystem in memory. Nothing survives a reboot, and fsync costs nothing."""

from __future__ import annotations

from pgstrata.host.capabilities import Capability, filesystem
from pgstrata.host.facts.system import parse_meminfo
from pgstrata.host.protocol import Host
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.stack.kind import Below, FilesystemKind, PlannedFilesystem, release_problem
from pgstrata.stack.mounts import (
    Expectation,
    MountCheck,
    atime_expectations,
    atime_options,
    flag,
    plan_mount,
    value,
)
from pgstrata.stack.place import Place
from pgstrata.stack.sizing import Wanted, require_memory, require_size

SOURCE = "pgstrata"
"""Source shown in lists of mounts, as tmpfs has no device."""

PAGE_BYTES = 4096


def plan_tmpfs(fs: Tmpfs, below: Below, place: Place) -> PlannedFilesystem:
    """Plan mounting an empty tmpfs."""
    return PlannedFilesystem(
        steps=(plan_mount("tmpfs", _options(fs), SOURCE, place),),
        mount_point=place.mount_point,
        checks=(MountCheck(place.role, place.mount_point, "tmpfs", SOURCE, _expectations(fs)),),
    )


def _options(fs: Tmpfs) -> tuple[str, ...]:
    options = [f"size={fs.size}"] if fs.size else []
    options += [f"huge={fs.huge}"] if fs.huge else []
    options += [f"nr_inodes={fs.nr_inodes}"] if fs.nr_inodes else []
    options += ["noswap"] if fs.noswap else []
    return (*options, *atime_options(noatime=fs.noatime, nodiratime=fs.nodiratime, strictatime=fs.strictatime))


def _expectations(fs: Tmpfs) -> tuple[Expectation, ...]:
    # the kernel rounds up to whole pages and shows KiB; half of the memory is the default, which it does not show
    size = f"{-(-fs.size // PAGE_BYTES) * PAGE_BYTES // 1024}k" if fs.size else None
    return (
        *atime_expectations(noatime=fs.noatime, nodiratime=fs.nodiratime, strictatime=fs.strictatime),
        value("size", size, "half of the memory"),
        value("huge", fs.huge, "never"),
        *((value("nr_inodes", str(fs.nr_inodes), "half of the pages"),) if fs.nr_inodes else ()),
        *((flag("noswap", True, on="noswap"),) if fs.noswap else ()),
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
