"""The standbys that a commit waits for: `synchronous_standby_names`, parsed and rendered as PostgreSQL does.

Reference: PostgreSQL documentation, "synchronous_standby_names" (`[FIRST] k (NAME, ...)`, `ANY k (NAME, ...)`,
`NAME, ...`). Beyond it `ANY 1` alone stands for `ANY 1 (*)`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EVERYONE = "*"
_COUNTED = re.compile(r"(?:(any|first)\s+)?(\d+)\s*(?:\((.*)\))?", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[a-z_][a-z0-9_]*|\*")
_FORMS = "ANY 1 (*), FIRST 2 (standby1, standby2), standby1, or *"


@dataclass(frozen=True)
class Quorum:
    """`count` standbys among `names` acknowledge a commit: any of them, or the first in that order."""

    method: Literal["any", "first"]
    count: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The value of `synchronous_standby_names`."""
        return f"{self.method.upper()} {self.count} ({', '.join(self.names)})"

    def candidates(self, standbys: Sequence[str]) -> tuple[str, ...]:
        """The standbys that may acknowledge."""
        return tuple(s for s in standbys if s in self.names or EVERYONE in self.names)

    def in_order(self, standbys: Sequence[str]) -> bool:
        """True if it is certain which standbys a commit waits for: with `FIRST k (*)` all have one priority."""
        return self.method == "any" or EVERYONE not in self.names or self.count == len(self.candidates(standbys))

    def problem(self, standbys: Sequence[str]) -> str | None:
        """The reason why it does not fit the standbys that follow the primary; None if it does."""
        unknown = [name for name in self.names if name != EVERYONE and name not in standbys]
        if unknown:
            there = ", ".join(standbys) if standbys else "none"
            return (
                f"synchronous_standby_names has {unknown[0]!r}, which is no standby of the primary (there are: {there})"
            )
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            return f"synchronous_standby_names has {twice[0]!r} twice"
        able = len(self.candidates(standbys))
        if self.count > able:
            return (
                f"synchronous_standby_names waits for {self.count} standbys, but only {able} could acknowledge: "
                "no commit would ever end"
            )
        return None

    def states(self, standbys: Sequence[str]) -> dict[str, str]:
        """`sync_state` of each standby in pg_stat_replication, when all of them stream. With `FIRST k (*)` all have one
        priority: only the counts of states are certain, and those standbys are left out."""
        able = self.candidates(standbys)
        states = {name: "async" for name in standbys if name not in able}
        if self.method == "any":
            return states | dict.fromkeys(able, "quorum")
        if self.count == len(able):
            return states | dict.fromkeys(able, "sync")
        if not self.in_order(standbys):
            return states
        in_order = [name for name in self.names if name in able]
        return states | {name: "sync" if at < self.count else "potential" for at, name in enumerate(in_order)}


def parse_quorum(text: str) -> Quorum | None:
    """None for an empty text: no commit waits. ValueError for text that PostgreSQL would refuse."""
    text = text.strip()
    if not text:
        return None
    counted = _COUNTED.fullmatch(text)
    if counted is None:
        return Quorum("first", 1, _names(text))
    method, count, inside = counted.groups()
    if method is None and inside is None:
        raise ValueError(f"{text!r} says how many standbys, but not which (write {_FORMS})")
    if int(count) == 0:
        raise ValueError("a commit waits for at least one standby; leave synchronous_standby_names out if for none")
    return Quorum(
        "any" if (method or "first").lower() == "any" else "first",
        int(count),
        _names(EVERYONE if inside is None else inside),
    )


def _names(text: str) -> tuple[str, ...]:
    names = tuple(word.strip().strip('"') for word in text.split(","))
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name of a standby (write {_FORMS})")
    return names
