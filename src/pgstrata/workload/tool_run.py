"""One run of a load as its tool reports it: what drivers read after a run, and importers in files that people keep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = tuple[float | None, ...]


@dataclass(frozen=True)
class ToolRun:
    """One run as its tool reports it. `figures` are metrics by name; the first one is what the tool compares by."""

    where: str
    """File and line, for messages."""
    script: str
    figures: Mapping[str, float] = field(default_factory=dict)
    scale: int = 0
    clients: int = 0
    rate_tps: float | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `CellResult`."""
    progress: Sequence[Row] = ()
    traits: Mapping[str, str] = field(default_factory=dict)
    """Settings that make runs of one script different measurements."""
    told: Mapping[str, str] = field(default_factory=dict)
    """Settings that are reported, and named where runs differ in them."""
    stack: str = ""
    """The stack's name within the file, where the file has several stacks."""
    raw: Sequence[Path] = ()
    """Other files that the run was read from."""
    source: int = 0
    """Position on the command line of the file or folder that the run was read from."""
    incomplete: str = ""
    """The reason why the run does not count; empty for a complete run."""
    messages: Sequence[str] = ()
    """Lines of server and script in between that are neither progress nor result."""


def known(**figures: float | None) -> dict[str, float]:
    """Return the figures that a tool reported."""
    return {name: value for name, value in figures.items() if value is not None}


def number(value: Any) -> float | None:
    """Return a finite number, which may be written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int:
    """Return a count; 0 if it is no whole number that is positive."""
    found = number(value)
    return int(found) if found is not None and 0 < found < 1e15 and found == int(found) else 0
