"""Summarises many names in one sentence: the first by name, the others by their number."""

from __future__ import annotations

from collections.abc import Sequence


def summarise_names(texts: Sequence[str], most: int = 4, *, noun: str = "", joint: str = ", ") -> str:
    """`a, b, c, d and 3 more`, followed by a plural `noun`. A single name over the limit is written out: it is as short
    as its number."""
    if len(texts) <= most + 1:
        return joint.join(texts)
    more = f"{len(texts) - most} more {noun}".rstrip()
    return f"{joint.join(texts[:most])} and {more}"
