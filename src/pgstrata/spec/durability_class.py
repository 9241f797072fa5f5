"""The classes of durability, and the promise of the detected filesystem below a directory or a loop file.

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
"""Size of a PostgreSQL page."""
WRITE_HOLE = "a power cut can make blocks wrong that nobody was writing (write hole)"

_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs"})
_FLUSHES = frozenset({"ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "nilfs2", "bcachefs"})
"""Filesystems with a journal or copy on write that pass fsync to the device, unless an option disables it."""
_TEARS_PAGES = frozenset({"btrfs", "ext3", "ext4", "xfs", "jfs"})
_NO_BARRIER = frozenset({"nobarrier", "barrier=0", "barrier=none", "nobarriers"})

LOSES_CACHE = "loses what a volatile cache holds"
"""The class of a setting that keeps flushes from a device: LOSES, unless the device keeps its cache at a power cut."""
Promises = Iterator[tuple[str, str]]
"""Classes of durability below the strongest one, each with the setting that causes it."""


@dataclass(frozen=True)
class BackingFs:
    """The detected filesystem below a directory or a loop file, with its mount options."""

    filesystem: str
    options: frozenset[str] = frozenset()

    @property
    def in_memory(self) -> bool:
        """True if a power cut leaves nothing of it."""
        return self.filesystem in _MEMORY

    @property
    def tears_pages(self) -> bool:
        """True if a power cut can leave half of a page old and half new."""
        return self.filesystem in _TEARS_PAGES


@dataclass(frozen=True)
class Parity:
    """A layer with parity and no journal; says whether one of its disks is missing."""

    layer: str
    degraded: bool = False


def ground_promises(ground: BackingFs | None, where: str) -> Promises:
    """Promises of an existing directory: safe only on a filesystem that is known to pass on flushes."""
    if ground is None:
        yield UNKNOWN, f"{where} is a directory, and what it lies on was not looked at"
    elif ground.in_memory:
        yield LOSES, f"{where} lies on {ground.filesystem}: memory"
    elif ground.options & _NO_BARRIER:
        yield LOSES, f"{where} lies on {ground.filesystem} mounted without barriers: no flush reaches the device"
    elif ground.filesystem == "overlay" and "volatile" in ground.options:
        yield LOSES, f"{where} lies on an overlay mounted volatile: fsync does nothing"
    elif ground.filesystem not in _FLUSHES:
        yield UNKNOWN, f"{where} lies on {ground.filesystem}, and whether it passes flushes on to a medium is not known"
