"""What a campaign could not undo, noted in its directory until the next run finds everything taken back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pgstrata.errors import writing

FILE = "undo-errors.txt"


def note_undo_errors(directory: Path, lines: Sequence[str]) -> None:
    """Adds a line to the note for each error."""
    if lines:
        path = directory / FILE
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.writelines(f"{' '.join(line.split())}\n" for line in lines)


def undo_errors(directory: Path) -> tuple[str, ...]:
    """What could not be undone when the campaign was last run; empty when all was."""
    try:
        return tuple((directory / FILE).read_text(encoding="utf-8").splitlines())
    except (FileNotFoundError, NotADirectoryError):
        return ()


def forget_undo_errors(directory: Path) -> None:
    """Nothing of the campaign is left on its host any more."""
    path = directory / FILE
    with writing(path):
        path.unlink(missing_ok=True)
