"""What the modules of one kind (loop, lvm, ext4, ...) take and give: the interface of a layer.

A volume is planned from the bottom up. A device module gives block devices (`Below`), a block layer takes them and
gives its own, a filesystem takes them and gives a mount point. Each gives the steps that build it and the checks
that read it back. Adding a kind is one module with a `plan_` function and one line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from pgstrata.host.protocol import Host
from pgstrata.stack.step import Argument, Attested, Step


class Check(Protocol):
    """Reads one thing of a built stack back from the kernel and sets it beside what was asked."""

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]: ...


@dataclass(frozen=True)
class Place:
    """Where the parts of one volume go on the host, and how they are named.

    `role` is `data`, `wal` or `tablespace.NAME` and begins the names of bindings; a part beside it (a log device, the
    filesystem below an export) has a longer one.
    """

    trial: str
    role: str
    work_directory: str
    mount_directory: str
    loop_size_bytes: int
    owner: str | None = None

    @property
    def mount_point(self) -> str:
        return f"{self.mount_directory}/{self.role}"

    @property
    def name(self) -> str:
        """A name for a volume group, an array or a pool: `pgstrata-<trial>-<role>`, dots as dashes."""
        return f"pgstrata-{self.trial}-{self.role}".replace(".", "-")

    def backing_file(self, index: int) -> str:
        return f"{self.work_directory}/{self.role}.{index}.img"

    def beside(self, part: str) -> Place:
        """The place of another part of the same volume: `data` -> `data.log`."""
        return replace(self, role=f"{self.role}.{part}")


@dataclass(frozen=True)
class Geometry:
    """How a striped layer spreads data: `chunk_bytes` on each of `data_disks` (those without parity or copies)."""

    chunk_bytes: int
    data_disks: int


@dataclass(frozen=True)
class Below:
    """The block devices that the part above builds on.

    `nodes` are device nodes. `media` are the nodes at the bottom, whose queues are set and whose traffic is
    measured; block layers hand them through and add nothing.
    """

    nodes: tuple[Argument, ...] = ()
    media: tuple[Argument, ...] = ()
    geometry: Geometry | None = None
    ids: tuple[str, ...] = ()
    """Stable ids of those nodes that are real devices: what a layer writes on them has to be wiped in the end."""


@dataclass(frozen=True)
class Part:
    """A planned device or block layer."""

    steps: tuple[Step, ...]
    above: Below
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    """What a user should know, for example a stripe that does not fit the array below."""


@dataclass(frozen=True)
class FsPart:
    """A planned filesystem: mounted at `mount_point` when its steps are done.

    `wal_mount_point` is set by a pool that gives pg_wal a dataset of its own. `extra_media` are devices that
    the filesystem brought itself (log, cache).
    """

    steps: tuple[Step, ...]
    mount_point: str
    checks: tuple[Check, ...] = ()
    wal_mount_point: str | None = None
    extra_media: tuple[Argument, ...] = ()
    notes: tuple[str, ...] = ()
