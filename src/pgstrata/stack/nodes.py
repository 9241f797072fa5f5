"""sysfs facts on a block device, read as files: starting a program costs far more, above all in emulation."""

from __future__ import annotations

from pgstrata.host.protocol import Host

SECTOR_BYTES = 512
"""The kernel's counting unit, whatever the device's own sectors are."""


def sysfs_folder(node: str) -> str:
    """Return the folder of a node such as /dev/sda1, which must not be a link."""
    return f"/sys/class/block/{node.rsplit('/', 1)[-1]}"


def read_size_bytes(host: Host, node: str) -> int:
    """Read the size of a device; FileNotFoundError when the kernel has no such node, or is taking it away."""
    return int(host.read_text(f"{sysfs_folder(node)}/size")) * SECTOR_BYTES


def list_partitions(host: Host, node: str) -> tuple[str, ...]:
    """List kernel names of a disk's partitions: they begin with the disk's own (sda1, nvme0n1p1)."""
    folder = sysfs_folder(node)
    name = folder.rsplit("/", 1)[-1]
    entries = [entry for entry in host.list_directory(folder) if entry.startswith(name)]
    return tuple(entry for entry in entries if host.status(f"{folder}/{entry}/partition") is not None)
