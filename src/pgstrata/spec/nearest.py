"""The nearest valid name for one that was mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `name` was probably meant to be, or None."""
    found = difflib.get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.6)
    return found[0] if found else None


def render_nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean noatime?`, or the list of what is valid where nothing is near."""
    names = sorted(known)
    found = nearest(name, names)
    if found is not None:
        return f"did you mean {found}?"
    return f"valid here: {', '.join(names)}" if names else ""
