"""Reads the growth of a file in bounded pieces, whatever the length of the file or of a line."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FIRST_BYTES = 256 << 10
"""Bytes read at the end of a file that already existed: its last events tell the current state."""
PIECE_BYTES = 1 << 20
"""Maximum bytes per read, and the longest line."""


def last_bytes(path: Path, most: int) -> bytes:
    """Return the end of a regular file; empty for other files, or if it cannot be read. Never waits."""
    with suppress(OSError):
        descriptor = _open(path)
        try:
            size = _regular_size(descriptor)
            return b"" if size is None else os.pread(descriptor, most, max(0, size - most))
        finally:
            os.close(descriptor)
    return b""


@dataclass
class Tail:
    """The whole lines added since the last read."""

    path: Path
    _at: int = -1
    _torn: bool = False
    """True if the next line began before the bytes read, and is omitted."""

    def lines(self) -> list[bytes]:
        with suppress(OSError):
            descriptor = _open(self.path)
            try:
                return self._read(descriptor)
            finally:
                os.close(descriptor)
        return []

    def _read(self, descriptor: int) -> list[bytes]:
        size = _regular_size(descriptor)
        if size is None:
            return []
        if self._at < 0 or size < self._at:  # started, or started again
            self._at = max(0, size - FIRST_BYTES)
            self._torn = self._at > 0
        piece = os.pread(descriptor, PIECE_BYTES, self._at)
        whole = piece.rfind(b"\n") + 1
        if whole == 0:
            if len(piece) == PIECE_BYTES:  # longer than a line may be
                self._at, self._torn = self._at + len(piece), True
            return []
        self._at += whole
        lines = piece[: whole - 1].split(b"\n")
        if self._torn:
            self._torn, lines = False, lines[1:]
        return lines


def _open(path: Path) -> int:
    """Open a path that may come from a record: no link is followed, and a pipe does not block."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def _regular_size(descriptor: int) -> int | None:
    found = os.fstat(descriptor)
    return found.st_size if stat.S_ISREG(found.st_mode) else None
