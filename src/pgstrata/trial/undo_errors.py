"""Undo errors of a campaign, noted in its directory until the next run finds everything undone.

With several hosts each line begins with its host and a tab, so that leftovers on an absent host stay noted.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from pgstrata.errors import writing

FILE = "undo-errors.txt"

_CHANGING = threading.Lock()
"""Hosts are opened, and end, side by side."""


def note_undo_errors(directory: Path, lines: Sequence[str], host: str = "") -> None:
    """Adds a line to the note for each error; `host` is empty where a campaign has one alone."""
    if lines:
        path = directory / FILE
        begin = f"{host}\t" if host else ""
        with _CHANGING, writing(path), path.open("a", encoding="utf-8") as file:
            file.writelines(f"{begin}{' '.join(line.split())}\n" for line in lines)


def undo_errors(directory: Path) -> tuple[str, ...]:
    """Undo errors of the campaign's last run; empty if everything was undone."""
    return tuple(f"{host}: {line}" if host else line for host, line in _noted(directory))


def undo_errors_of(directory: Path, host: str) -> tuple[str, ...]:
    """The same for one host, without its name."""
    return tuple(line for name, line in _noted(directory) if name == host)


def forget_undo_errors(directory: Path, host: str = "") -> None:
    """Nothing of the campaign is left on that host any more. Lines without a host are of it, too."""
    path = directory / FILE
    with _CHANGING, writing(path):
        others = [f"{name}\t{line}\n" for name, line in _noted(directory) if name and name != host]
        if others:
            path.write_text("".join(others), encoding="utf-8")
        else:
            path.unlink(missing_ok=True)


def _noted(directory: Path) -> list[tuple[str, str]]:
    """Host and error of each line."""
    try:
        lines = (directory / FILE).read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    parts = [line.rpartition("\t") for line in lines]
    return [(host, error) for host, _, error in parts]
