"""The interface of an importer: its names, its test for a file, and its reader of one file.

Each tool has one module with an `IMPORTER`; `registry` lists them, and `tool_runs` writes what they read as a campaign.
Nothing here imports the record, so that the command line can name every tool without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgstrata.workload.tool_run import ToolRun


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
