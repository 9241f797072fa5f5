"""Location and names of a volume's layers on the host, and facts on block devices from sysfs.

These are read as files: starting a program costs far more, above all in emulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pgstrata.host.facts.modelled import ModelledDisk
from pgstrata.host.protocol import Host

SECTOR_BYTES = 512
"""The kernel's counting unit, whatever the device's own sectors are."""


@dataclass(frozen=True)
class Place:
    """Location and names of one volume's layers on the host.

    `role` is `data`, `wal` or `tablespace.NAME` and begins the names of bindings; an additional layer (a log device,
    the filesystem below an export) has a longer one.
    """

    trial: str
    role: str
    work_directory: str
    mount_directory: str
    loop_size_bytes: int
    owner: str | None = None
    modelled: Mapping[str, ModelledDisk] = field(default_factory=dict)
    """Disks of the host that have the timing of a modelled medium, by stable id."""
    recorder: str = "data"
    """The role of the first volume on recorded disks, which starts the daemon for those of all volumes."""

    @property
    def mount_point(self) -> str:
        return f"{self.mount_directory}/{self.role}"

    @property
    def name(self) -> str:
        """Return a name for a volume group, an array or a pool: `pgstrata-<trial>-<role>`, dots as dashes."""
        return f"pgstrata-{self.trial}-{self.role}".replace(".", "-")

    @property
    def backing_folder(self) -> str:
        return f"{self.work_directory}/{self.role}.disks"

    def backing_file(self, index: int) -> str:
        return f"{self.backing_folder}/{index}.img"

    def beside(self, name: str) -> Place:
        """Return the place of another layer of the same volume: `data` -> `data.log`."""
        return replace(self, role=f"{self.role}.{name}")


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
