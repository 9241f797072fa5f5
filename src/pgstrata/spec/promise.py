"""The classes of durability, and the promise of what a directory or a loop file was found to lie on.

References: ext4(5), btrfs(5) (barrier); the kernel's documentation of overlayfs (volatile).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SURVIVES = "survives power loss"
LOSES_RECENT = "loses recent commits"
LOSES = "loses on power loss"
UNKNOWN = "unknown"

PAGE_BYTES = 8192
"""A page of PostgreSQL."""
WRITE_HOLE = "a power cut can make blocks wrong that nobody was writing (write hole)"

_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs"})
_FLUSHES = frozenset({"ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "nilfs2", "bcachefs"})
"""Filesystems with a journal or copy on write that pass fsync on to the device, unless an option says otherwise."""
_IN_PLACE = frozenset({"ext3", "ext4", "xfs", "jfs"})
_NO_BARRIER = frozenset({"nobarrier", "barrier=0", "barrier=none", "nobarriers"})

Promises = Iterator[tuple[str, str]]
"""Classes of durability below the strongest one, each with the setting that leads to it."""


@dataclass(frozen=True)
class Ground:
    """The filesystem that a directory or a loop file was found to lie on, with its mount options."""

    filesystem: str
    options: frozenset[str] = frozenset()

    @property
    def tears_pages(self) -> bool:
        """Whether a power cut can leave half of a page old and half new."""
        return self.filesystem in _IN_PLACE


@dataclass(frozen=True)
class Parity:
    """A layer that keeps parity without a journal, and whether a disk of it is missing."""

    layer: str
    degraded: bool = False


def ground_promises(ground: Ground | None, where: str) -> Promises:
    """Of a directory that was there: only a filesystem that is known to pass flushes on keeps the promise."""
    if ground is None:
        yield UNKNOWN, f"{where} is a directory, and what it lies on was not looked at"
    elif ground.filesystem in _MEMORY:
        yield LOSES, f"{where} lies on {ground.filesystem}: memory"
    elif ground.options & _NO_BARRIER:
        yield LOSES, f"{where} lies on {ground.filesystem} mounted without barriers: no flush reaches the device"
    elif ground.filesystem == "overlay" and "volatile" in ground.options:
        yield LOSES, f"{where} lies on an overlay mounted volatile: fsync does nothing"
    elif ground.filesystem not in _FLUSHES:
        yield UNKNOWN, f"{where} lies on {ground.filesystem}, and whether it passes flushes on to a medium is not known"
