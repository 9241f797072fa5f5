"""Filesystems whose log may have a device of its own: `xfs+log`, `ext4:noatime+log(media(nvme))`.

What the log is called, and how it is made: mke2fs(8), `-J device`; mkfs.xfs(8), `-l logdev`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pgstrata.errors import UsageError
from pgstrata.spec.layers.kind import Device, LocalFilesystem
from pgstrata.spec.layers.own_device import parse_own_device, render_own_device
from pgstrata.spec.notation.term import Call, render_call
from pgstrata.spec.notation.tokens import split_call, split_top

LOG = "log"


class LoggingFilesystem(LocalFilesystem):
    """One with `log`, a device beside the one below."""

    not_options: ClassVar[frozenset[str]] = frozenset({LOG})

    if TYPE_CHECKING:

        @property
        def log(self) -> Device | None: ...

    @property
    def own_devices(self) -> dict[str, Device]:
        return {} if self.log is None else {LOG: self.log}

    def count_problem(self, count: int) -> str | None:
        if self.log is not None and self.log.count != 1:
            return f"the log of {self.kind} takes one device, and {self.log.count} are given"
        return super().count_problem(count)

    @classmethod
    def parse_call(cls, call: Call) -> dict[str, Any]:
        rest, *own = split_top(call.rest, "+")
        found = cls.parse_words(call) | call.options(cls, rest)
        for text in own:
            name, arguments, more = split_call(text)
            if name != LOG or more:
                raise UsageError(
                    f"+{text} in {call.text!r} is not taken: {cls.name()} has one device of its own, +log",
                    hint=f"options stand before it: {cls.name()}:OPTION+log(DEVICE)",
                )
            found[LOG] = parse_own_device(split_top(arguments, ",") if arguments else ())
        return found

    def render(self, count: str = "") -> str:
        if self.log is None:
            return super().render(count)
        return f"{super().render(count)}+{render_call(LOG, [render_own_device(self.log)])}"
