"""The tools that pgstrata drives, and their versions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgstrata.host.protocol import Host, command


@dataclass(frozen=True)
class Tool:
    """How a tool is asked for its version; `pattern` has one group."""

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
