"""Abilities of a host: the tools that pgstrata drives, with their versions, and filesystems and drivers of the kernel.

A module that is on disk but not loaded counts as available, because mount and the tools load it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgstrata.host.facts.system import read_file
from pgstrata.host.protocol import Host, command


@dataclass(frozen=True)
class Tool:
    """Command that asks a tool for its version; `pattern` has one group."""

    name: str
    argv: tuple[str, ...]
    pattern: str


TOOLS = (
    Tool("mkfs.ext4", ("mkfs.ext4", "-V"), r"mke2fs (\S+)"),
    Tool("mkfs.xfs", ("mkfs.xfs", "-V"), r"mkfs\.xfs version (\S+)"),
    Tool("mkfs.btrfs", ("mkfs.btrfs", "--version"), r"btrfs-progs v?(\S+)"),
    Tool("zpool", ("zpool", "version"), r"zfs-(\S+)"),
    Tool("lvm", ("lvm", "version"), r"LVM version:\s+(\S+)"),
    Tool("mdadm", ("mdadm", "--version"), r"mdadm - v(\S+)"),
    Tool("mount.nfs", ("mount.nfs", "-V"), r"nfs-utils ([^\s)]+)"),
    Tool("exportfs", ("exportfs", "-s"), r"()"),
    Tool("losetup", ("losetup", "--version"), r"util-linux (\S+)"),
    Tool("wipefs", ("wipefs", "--version"), r"util-linux (\S+)"),
    Tool("blkid", ("blkid", "-V"), r"util-linux (\S+)"),
    Tool("lsblk", ("lsblk", "--version"), r"util-linux (\S+)"),
    Tool("findmnt", ("findmnt", "--version"), r"util-linux (\S+)"),
    Tool("fio", ("fio", "--version"), r"fio-(\S+)"),
)
BY_NAME = {tool.name: tool for tool in TOOLS}

_MISSING = 127


def parse_version(tool: Tool, text: str) -> str:
    """The version in what a tool printed; `unknown` when it says it in another way than known."""
    found = re.search(tool.pattern, text)
    return (found[1].rstrip(",") or "unknown") if found else "unknown"


def read_tool(host: Host, name: str) -> str | None:
    """Its version; None when it is not installed. Some tools print it on standard error or with another exit code."""
    tool = BY_NAME[name]
    done = host.run(command(*tool.argv), check=False)
    return None if done.exit_code == _MISSING else parse_version(tool, f"{done.stdout}\n{done.stderr}")


def read_tools(host: Host) -> dict[str, str]:
    """Versions of those that are installed."""
    found = {tool.name: read_tool(host, tool.name) for tool in TOOLS}
    return {name: version for name, version in found.items() if version is not None}


# ---------------------------------------------------------------- filesystems and drivers


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
