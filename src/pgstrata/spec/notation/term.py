"""One layer of short notation, `name(arguments):options`, taken apart and put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.spec.notation.options import Spelled, parse_options
from pgstrata.spec.notation.tokens import split_top


@dataclass(frozen=True)
class Call:
    """`name(arguments)rest`; `volume` is the mapping that a count of devices goes to."""

    text: str
    name: str
    arguments: str | None
    rest: str
    volume: dict[str, Any]

    @property
    def words(self) -> list[str]:
        """Words in the parentheses, between commas."""
        return split_top(self.arguments, ",") if self.arguments else []

    def set_count(self, count: str) -> None:
        """Asks for so many devices below."""
        device = self.volume.setdefault("device", {})
        if device.get("count", count) != count:
            raise UsageError(
                f"{self.text!r} asks for {count} devices, but {device['count']} are given below it",
                hint="write the number once",
            )
        device["count"] = count

    def options(self, model: type[Spelled], rest: str | None = None) -> dict[str, Any]:
        """Field values of the options behind the colon; `rest` where something else stands behind them."""
        rest = self.rest if rest is None else rest
        if rest.startswith(":"):
            return parse_options(model, rest[1:])
        if rest.startswith("/"):
            raise UsageError(
                f"{rest!r} in {self.text!r}: nothing stands on {self.name}",
                hint="layers are read from the device upwards, the filesystem last: md(raid1)/ext4",
            )
        if rest:
            several = "; several stacks are words of their own" if rest.startswith(" ") else ""
            raise UsageError(
                f"{rest.strip()!r} in {self.text!r} is not understood",
                hint=f"options follow a colon: {self.name}:OPTION{several}",
            )
        return {}


def render_call(name: str, words: Sequence[str], options: str = "") -> str:
    """`name(words):options` without what is empty."""
    shown = [w for w in words if w]
    return name + (f"({','.join(shown)})" if shown else "") + (f":{options}" if options else "")
