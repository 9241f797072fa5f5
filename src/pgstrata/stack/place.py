"""Location and names of a volume's layers on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pgstrata.host.facts.modelled import ModelledDisk


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
