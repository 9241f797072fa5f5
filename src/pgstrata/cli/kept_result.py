"""Keeps what `run` printed last, to print it again while nothing has changed.

The result of a finished campaign follows from its request, this program and the files of its record. Judging thousands
of trials and writing the page again takes longer than comparing the state of each file. A result with a failure is not
kept: what could not be undone may have been undone since.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pgstrata.record.recorder import LOCK, write_atomically
from pgstrata.spec.campaign import Campaign
from pgstrata.trial.fake import are_made_up

KEPT = "printed.json"

_PROGRAM = Path(__file__).parents[1]
_TERMINAL = ("TERM", "COLORTERM", "NO_COLOR")


@dataclass
class KeptResult:
    """The result of a campaign in its directory."""

    directory: Path
    campaign: Campaign
    """The campaign as requested now."""
    _printed: io.StringIO = field(default_factory=io.StringIO)

    def again(self) -> bool:
        """Print the kept result; False if there is none, or anything has changed since."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            value = json.loads((self.directory / KEPT).read_bytes())
            if value["of"] == self._digest():
                sys.stdout.write(value["text"])
                sys.stdout.flush()
                return True
        return False

    @contextmanager
    def printing(self) -> Iterator[None]:
        """Note what is printed on stdout."""
        with redirect_stdout(cast("Any", _Both(sys.stdout, self._printed))):
            yield

    def keep(self) -> None:
        """Keep what was printed. A directory that cannot be written keeps nothing."""
        value = {"of": self._digest(), "text": self._printed.getvalue()}
        with suppress(OSError):
            write_atomically(self.directory / KEPT, json.dumps(value))

    def _digest(self) -> str:
        """Return the digest of everything that the result follows from.

        The change time of a file stands for its content: no program can set it, so the result in a directory that was
        copied from elsewhere is never printed.
        """
        terminal = (sys.stdout.isatty(), shutil.get_terminal_size(), *map(os.environ.get, _TERMINAL))
        asked = (str(self.directory), sys.argv[0], are_made_up(), self.campaign.model_dump_json(), terminal)
        digest = hashlib.sha256(repr(asked).encode(errors="surrogateescape"))
        for folder in (str(_PROGRAM), str(self.directory)):
            for line in _files(folder, ""):
                digest.update(line.encode(errors="surrogateescape"))
        return digest.hexdigest()


class _Both:
    """A text stream that notes what passes, and is otherwise the shown one."""

    def __init__(self, shown: Any, noted: io.StringIO) -> None:
        self._shown, self._noted = shown, noted

    def write(self, text: str) -> int:
        self._noted.write(text)
        return int(self._shown.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)


def _files(folder: str, path: str) -> Iterator[str]:
    """Yield a line for each file below the folder: its path, number, size in bytes and change time in ns."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = f"{path}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _files(entry.path, name)
            elif name not in (f"/{KEPT}", f"/{LOCK}"):
                status = entry.stat(follow_symlinks=False)
                yield f"{name} {status.st_ino} {status.st_size} {status.st_ctime_ns}\n"
