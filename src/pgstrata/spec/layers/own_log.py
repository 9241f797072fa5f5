"""Filesystems whose log may have a device of its own: `xfs+log`, `ext4:noatime+log(media(nvme))`.

What the log is called, and how it is made: mke2fs(8), `-J device`; mkfs.xfs(8), `-l logdev`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pgstrata.spec.layers.kind import Device, LocalFilesystem
from pgstrata.spec.layers.own_device import parse_own_devices, render_own_devices
from pgstrata.spec.notation.term import Call

LOG = "log"


class LoggingFilesystem(LocalFilesystem):
    """One with `log`, a device beside the one below."""

    own_names: ClassVar[tuple[str, ...]] = (LOG,)
    not_options: ClassVar[frozenset[str]] = frozenset({LOG})

    if TYPE_CHECKING:

        @property
        def log(self) -> Device | None: ...

    def count_problem(self, count: int) -> str | None:
        if self.log is not None and self.log.count != 1:
            return f"the log of {self.kind} takes one device, and {self.log.count} are given"
        return super().count_problem(count)

    @classmethod
    def parse_call(cls, call: Call) -> dict[str, Any]:
        return cls.parse_words(call) | parse_own_devices(cls, call)

    def render(self, count: str = "") -> str:
        return super().render(count) + render_own_devices(self)
