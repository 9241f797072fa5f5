"""Archives in cpio's `newc` format: what the kernel unpacks as its first root filesystem.

Format: https://docs.kernel.org/driver-api/early-userspace/buffer-format.html. Archives may follow one another, so a
machine's own files are appended to the initrd that all machines of an image share.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass

_ALIGN_BYTES = 4
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True)
class Entry:
    """A file or a directory of the archive; `path` without a leading slash."""

    path: str
    content: bytes = b""
    permissions: int = 0o644
    directory: bool = False

    @property
    def mode(self) -> int:
        return (stat.S_IFDIR if self.directory else stat.S_IFREG) | self.permissions


def directory(path: str, permissions: int = 0o755) -> Entry:
    """An entry for a directory."""
    return Entry(path, permissions=permissions, directory=True)


def with_parents(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries with every directory they lie in, parents first: the kernel makes none by itself."""
    found: dict[str, Entry] = {}
    for entry in entries:
        parts = entry.path.split("/")
        for depth in range(1, len(parts)):
            path = "/".join(parts[:depth])
            found.setdefault(path, directory(path))
        found[entry.path] = entry
    return tuple(found.values())


def render_cpio(entries: Iterable[Entry]) -> bytes:
    """One archive, owned by root, with no timestamps, so that equal content gives equal bytes."""
    everything = (*entries, Entry(_TRAILER, permissions=0))
    return b"".join(_render_entry(number, entry) for number, entry in enumerate(everything, start=1))


def _render_entry(number: int, entry: Entry) -> bytes:
    name = entry.path.encode() + b"\0"
    mode = 0 if entry.path == _TRAILER else entry.mode
    links = 2 if entry.directory else 1
    # ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
    fields = (number, mode, 0, 0, links, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGN_BYTES)
