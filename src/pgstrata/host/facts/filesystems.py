"""What the kernel can do: filesystems and drivers, loaded or loadable.

A module that is on disk but not loaded counts as available, because mount and the tools load it.
"""

from __future__ import annotations

from pgstrata.host.facts.source import read_file
from pgstrata.host.protocol import Host, command


def parse_filesystems(text: str) -> frozenset[str]:
    """Names from /proc/filesystems."""
    return frozenset(line.split()[-1] for line in text.splitlines() if line.strip())


def parse_block_drivers(text: str) -> frozenset[str]:
    """Names of block drivers from /proc/devices."""
    _, _, block = text.partition("Block devices:")
    return frozenset(line.split()[-1] for line in block.splitlines() if line.strip())


def parse_personalities(text: str) -> frozenset[str]:
    """RAID levels from the first line of /proc/mdstat: `Personalities : [raid1] [raid10]`."""
    for line in text.splitlines():
        if line.startswith("Personalities"):
            return frozenset(word.strip("[]") for word in line.partition(":")[2].split())
    return frozenset()


def module_available(host: Host, module: str) -> bool:
    """Loaded, built in, or loadable by modprobe."""
    if host.status(f"/sys/module/{module.replace('-', '_')}") is not None:
        return True
    # -n does everything but load; also knows what is built in (modules.builtin).
    return host.run(command("modprobe", "-n", "-q", module), check=False).exit_code == 0


def filesystem_available(host: Host, name: str) -> bool:
    if name in parse_filesystems(read_file(host, "/proc/filesystems") or ""):
        return True
    return module_available(host, name)


def driver_available(host: Host, driver: str, module: str) -> bool:
    """A block driver (`loop`, `device-mapper`, `md`)."""
    if driver in parse_block_drivers(read_file(host, "/proc/devices") or ""):
        return True
    return module_available(host, module)


def raid_available(host: Host, level: str) -> bool:
    """An md level: raid0, raid1, raid10, raid456."""
    found = parse_personalities(read_file(host, "/proc/mdstat") or "")
    names = {"raid456": {"raid4", "raid5", "raid6"}}.get(level, {level})
    return names <= found or module_available(host, level)
