"""Devices that a layer or filesystem has beside those below it, in short notation: `+log`, `+log(2G)`,
`+cache(media(nvme))`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pgstrata.errors import UsageError
from pgstrata.spec.layers.kind import Device, Kind, LocalFilesystem
from pgstrata.spec.notation.term import Call, render_call
from pgstrata.spec.notation.tokens import split_call, split_top

_PLAIN = "loop"
"""The kind where nothing else is said."""
LOG = "log"


def parse_own_device(words: Sequence[str], **usual: str) -> dict[str, Any]:
    """Return the field values: a count and a size of loop files, `usual` where they are not given, or a device in
    full."""
    device: dict[str, Any] = {"kind": _PLAIN, **usual}
    for word in words:
        if word.startswith(tuple(Device.kinds)):
            device = Device.parse(word)
        else:
            device["count" if word.isdigit() else "size"] = word.removeprefix("size=")
    return device


def render_own_device(device: Device, usual_count: int = 1) -> str:
    """Return short notation; empty for what is taken where nothing is said."""
    plain = device.kind == _PLAIN and not device.says_more and device.count == usual_count
    return "" if plain else device.render()


def parse_own_devices(model: type[Kind], call: Call) -> dict[str, Any]:
    """Return the field values behind the parentheses: options, then `+NAME(DEVICE)` of `model.own_names`."""
    rest, *own = split_top(call.rest, "+")
    found = call.options(model, rest)
    names = " or ".join(f"+{name}" for name in model.own_names)
    for text in own:
        name, arguments, more = split_call(text)
        if name not in model.own_names or more:
            raise UsageError(
                f"+{text} in {call.text!r} is not taken: {model.name()} has one device of its own, {names}",
                hint=f"options stand before it: {model.name()}:OPTION+{model.own_names[0]}(DEVICE)",
            )
        found[name] = parse_own_device(split_top(arguments, ",") if arguments else ())
    return found


def render_own_devices(kind: Kind) -> str:
    """Return short notation of all devices of a layer or filesystem; empty without any."""
    return "".join(f"+{render_call(name, [render_own_device(device)])}" for name, device in kind.own_devices.items())


class LoggingFilesystem(LocalFilesystem):
    """One with `log`, a device beside the one below: `xfs+log`, `ext4:noatime+log(media(nvme))`.

    What the log is called, and how it is made: mke2fs(8), `-J device`; mkfs.xfs(8), `-l logdev`.
    """

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
