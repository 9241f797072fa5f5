"""What a stack promises about acknowledged commits, told from its configuration and from what it was found to lie on.

Pure; power cuts (crash trials) say whether the promise holds. References: PostgreSQL documentation, "Reliability and
the Write-Ahead Log" (fsync, synchronous_commit); ext4(5) and btrfs(5) (barrier); zfsprops(7) (sync); zfs(4)
(zfs_nocacheflush); exports(5) (async); the kernel's documentation of overlayfs (volatile) and of md (raid5-ppl,
raid5-cache: the write hole); btrfs(5), "RAID56 status and recommended practices".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgstrata.spec.checks import PAGE_BYTES
from pgstrata.spec.stack import Btrfs, Existing, Ext4, Imported, LoopDevice, Md, Nfs, Stack, Tmpfs, Volume, Xfs, Zfs

SURVIVES = "survives power loss"
LOSES_RECENT = "loses recent commits"
LOSES = "loses on power loss"
UNKNOWN = "unknown"

_RANK = {SURVIVES: 0, LOSES_RECENT: 1, UNKNOWN: 2, LOSES: 3}
_LINE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.]*)\s*(?:=|\s)\s*('(?:[^']|'')*'|[^\s#]+)")


_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs"})
_FLUSHES = frozenset({"ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "nilfs2", "bcachefs"})
"""Filesystems with a journal or copy on write that pass fsync on to the device, unless an option says otherwise."""
_IN_PLACE = frozenset({"ext3", "ext4", "xfs", "jfs"})
_PARITY = ("raid5", "raid6")
_WRITE_HOLE = "a power cut can make blocks wrong that nobody was writing (write hole)"
_NO_BARRIER = frozenset({"nobarrier", "barrier=0", "barrier=none", "nobarriers"})


@dataclass(frozen=True)
class Ground:
    """The filesystem that a directory or a loop file was found to lie on, with its mount options."""

    filesystem: str
    options: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Durability:
    """The class of a stack and every setting that put it there."""

    class_: str
    reason: str


def durability_class(
    stack: Stack, configuration: str | None = None, grounds: Mapping[str, Ground] | None = None
) -> Durability:
    """The weakest promise of PostgreSQL's settings and of every volume of the stack.

    `configuration` is the text of the stack's own postgresql.conf, where it has one and the caller has read it.
    `grounds` are what volumes that are directories or loop files were found to lie on, by role: a directory whose
    ground was not looked at promises nothing that is known.
    """
    known = grounds or {}
    settings = parse_configuration(configuration or "") | _lower(stack.postgresql.settings)
    findings = [
        *_of_postgres(stack, settings, known, read=configuration is not None),
        *(f for role, v in stack.volumes.items() for f in _of_volume(role, v, known.get(role))),
        *(f for role, v in stack.volumes.items() for f in _of_parity(role, v)),
    ]
    findings += _of_kernel(stack)
    if not findings:
        flushed = "every commit is flushed to the medium before it is acknowledged"
        return Durability(SURVIVES, "; ".join([flushed, *_write_holes(stack)]))
    worst = max((class_ for class_, _ in findings), key=_RANK.__getitem__)
    return Durability(worst, "; ".join(dict.fromkeys(reason for class_, reason in findings if class_ == worst)))


def parse_configuration(text: str) -> dict[str, str]:
    """Settings of a postgresql.conf, names in lower case, quotes removed; the last of a name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None:
            found[match[1].lower()] = match[2].strip("'").lower()
    return found


def is_off(value: str | None) -> bool:
    """Whether PostgreSQL reads a boolean setting as false: `off`, `false`, `no`, `0`, or a prefix that says as much.

    Of any case, and `o` alone says nothing (parse_bool of PostgreSQL's bool.c). `synchronous_commit` is no boolean: it
    takes these words in full, and the server refuses their prefixes.
    """
    text = (value or "").lower()
    if text.startswith("o"):
        return len(text) > 1 and "off".startswith(text)
    return text == "0" or (text != "" and ("false".startswith(text) or "no".startswith(text)))


def _lower(settings: dict[str, str]) -> dict[str, str]:
    return {k.lower(): v.strip().strip("'\"").lower() for k, v in settings.items()}


def _of_postgres(
    stack: Stack, settings: dict[str, str], grounds: Mapping[str, Ground], *, read: bool
) -> Iterator[tuple[str, str]]:
    if is_off(settings.get("fsync")):
        yield LOSES, "fsync=off: PostgreSQL never waits for the medium"
    if is_off(settings.get("synchronous_commit")):
        yield LOSES_RECENT, "synchronous_commit=off: commits are acknowledged before they are flushed"
    if is_off(settings.get("full_page_writes")):
        for role, volume in stack.volumes.items():
            if role != "wal" and _overwrites_in_place(volume, grounds.get(role)):
                yield LOSES, f"full_page_writes=off over {volume.fs.kind}, which overwrites in place: torn pages"
    if stack.postgresql.postgresql_conf is not None and not read:
        yield UNKNOWN, "fsync and synchronous_commit are whatever the given postgresql.conf says"


def _overwrites_in_place(volume: Volume, ground: Ground | None) -> bool:
    """A filesystem on which a power cut can leave half of an 8k page old and half new."""
    if isinstance(volume.fs, Existing):
        return ground is not None and ground.filesystem in _IN_PLACE and "data=journal" not in ground.options
    fs = volume.fs.export if isinstance(volume.fs, Nfs) and volume.fs.export is not None else volume.fs
    if isinstance(fs, Ext4):
        return fs.data != "journal"
    if isinstance(fs, Zfs):
        return fs.recordsize is not None and fs.recordsize < PAGE_BYTES
    return isinstance(fs, Xfs) or (isinstance(fs, Btrfs) and fs.nodatacow)


def _of_volume(role: str, volume: Volume, ground: Ground | None) -> Iterator[tuple[str, str]]:
    where = _place(role)
    fs = volume.fs.export if isinstance(volume.fs, Nfs) and volume.fs.export is not None else volume.fs
    if isinstance(fs, Tmpfs):
        yield LOSES, f"{where} is on tmpfs: memory"
    if isinstance(fs, Ext4 | Btrfs) and not fs.barrier:
        yield LOSES, f"barrier=0 on {where}: no flush reaches the device"
    if isinstance(fs, Zfs):
        yield from _of_zfs(fs, where)
    if isinstance(volume.fs, Nfs) and volume.fs.server is None and not volume.fs.export_sync:
        yield LOSES, f"NFS export async below {where}: the server acknowledges before it has written"
    if isinstance(volume.fs, Nfs) and volume.fs.server is not None:
        yield UNKNOWN, f"{where} is on an export of {volume.fs.server}, whose server may be set to async"
    if isinstance(volume.fs, Existing):
        yield from _of_ground(ground, where)
    if volume.needs_device and isinstance(volume.device, LoopDevice) and ground is not None:
        yield from _of_loop_file(ground, where)
    if isinstance(fs, Imported):
        yield UNKNOWN, "imported figures: the configuration is not known"


def _of_ground(ground: Ground | None, where: str) -> Iterator[tuple[str, str]]:
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


def _of_loop_file(ground: Ground, where: str) -> Iterator[tuple[str, str]]:
    """Of a loop file, what is known to lose; a file on a disk carries the filesystem above it as a disk does."""
    yield from (
        (class_, reason) for class_, reason in _of_ground(ground, f"the loop file of {where}") if class_ == LOSES
    )


def _place(role: str) -> str:
    return {"data": "the data directory", "wal": "pg_wal"}.get(role, role.replace(".", " "))


def _parity(volume: Volume) -> Iterator[tuple[str, bool]]:
    """Layers of a volume that keep parity without a journal, and whether a disk of them is missing."""
    for layer in volume.layers:
        if isinstance(layer, Md) and layer.level in _PARITY:
            yield f"md {layer.level}", layer.state != "clean"
    profiles = (volume.fs.data, volume.fs.metadata) if isinstance(volume.fs, Btrfs) else ()
    for profile in dict.fromkeys(p for p in profiles if p in _PARITY):
        yield f"btrfs {profile}", False


def _of_parity(role: str, volume: Volume) -> Iterator[tuple[str, str]]:
    for layer, degraded in _parity(volume):
        if degraded:
            yield LOSES, f"{layer} below {_place(role)} lacks a disk and has no journal: {_WRITE_HOLE}"


def _write_holes(stack: Stack) -> Iterator[str]:
    """What a power cut can do to parity that nothing journals: harmless until a disk is missing, too."""
    for role, volume in stack.volumes.items():
        for layer, _ in _parity(volume):
            yield f"while a disk of {layer} below {_place(role)} is missing, {_WRITE_HOLE}"


def _of_zfs(fs: Zfs, where: str) -> Iterator[tuple[str, str]]:
    datasets = [fs.sync or "", (fs.wal_dataset or {}).get("sync", "")]
    if "disabled" in datasets:
        yield LOSES, f"zfs sync=disabled below {where}: fsync returns without writing"
    if fs.module.get("zfs_nocacheflush", 0):
        yield LOSES, f"zfs_nocacheflush=1 below {where}: flushes are not sent to the device"
    if fs.module.get("zil_nocacheflush", 0):
        yield LOSES, f"zil_nocacheflush=1 below {where}: the intent log is written without flushes"


def _of_kernel(stack: Stack) -> Iterator[tuple[str, str]]:
    if stack.kernel.queue.write_cache == "write through":
        yield LOSES, "queue write_cache set to write through: the kernel sends no flushes to a device that may cache"
