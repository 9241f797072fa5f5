"""The nearest valid name for one that was mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LIKE = 0.75
"""Least likeness of a suggestion (difflib's ratio); lower ones are other words."""
LIKE_SHORT, SHORT = 0.6, 3
"""Least likeness of names with so few letters, one of which is wrong."""
OPPOSITES = (
    {"sync", "async", "nosync", "noasync", "wsync"},
    {"hard", "soft", "softerr"},
    {"barrier", "nobarrier"},
    {"noatime", "atime", "relatime", "strictatime", "lazytime"},
    {"ro", "rw"},
    {"inode32", "inode64"},
)
"""Words that stand for one another's contrary, or for one of several choices."""
ALIKE = 0.8
"""Likeness of two words, one without its `no`, that makes them opposites."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `name` was probably meant to be, or None; never its opposite."""
    typed = name.lower()
    cutoff = LIKE_SHORT if len(typed) <= SHORT else LIKE
    found = difflib.get_close_matches(typed, sorted(known), n=3, cutoff=cutoff)
    longer = sorted(one for one in known if len(typed) > SHORT and one.startswith(typed))
    return next((one for one in (*found, *longer) if not _are_opposite(typed, one)), None)


def _are_opposite(typed: str, suggested: str) -> bool:
    if f"no{typed}" == suggested or typed == f"no{suggested}":
        return True
    if typed.startswith("no") != suggested.startswith("no"):
        stems = typed.removeprefix("no"), suggested.removeprefix("no")
        if difflib.SequenceMatcher(None, *stems).ratio() >= ALIKE:
            return True
    return any({typed, suggested} <= words for words in OPPOSITES)


def render_nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean noatime?`, or the list of what is valid where nothing is near."""
    names = sorted(known)
    found = nearest(name, names)
    if found is not None:
        return f"did you mean {found}?"
    return f"valid here: {', '.join(names)}" if names else ""
