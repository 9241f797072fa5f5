"""Many things in one sentence: the first by name, the others by their number."""

from __future__ import annotations

from collections.abc import Sequence


def first_named(texts: Sequence[str], most: int = 4, *, noun: str = "", joint: str = ", ") -> str:
    """`a, b, c, d and 3 more`, with a plural `noun` behind it. One that is too many is named as well: its name takes
    no more room than its number."""
    if len(texts) <= most + 1:
        return joint.join(texts)
    more = f"{len(texts) - most} more {noun}".rstrip()
    return f"{joint.join(texts[:most])} and {more}"
