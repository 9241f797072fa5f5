"""The interface of an importer: its names, its test for a file, and its reader of one file.

Each tool has one module with an `IMPORTER`; `registry` lists them, and `tool_runs` writes what they read as a campaign.
Nothing here imports the record, so that the command line can name every tool without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True)
class ToolFile:
    """The runs of one file, the number of left out items by reason, and what a reader of the report has to know."""

    runs: tuple[ToolRun, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recogniser:
    """A verb of `pgstrata import`, and its test for the text of a file."""

    name: str
    recognises: Callable[[str], bool]


@dataclass(frozen=True)
class Importer(Recogniser):
    """An importer of a tool whose files hold whole runs."""

    tool: str
    argument: str
    """Help for the argument."""
    read: Callable[[Path, str], ToolFile]
    """Reads the text of a file; UsageError for a text that holds no run, or a run that is not understood."""
    folders: bool = False
    """True for a tool whose result is a folder: `read` gets it with an empty text."""
