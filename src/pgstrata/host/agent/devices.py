"""Block devices held by a descriptor: what was looked at and what is written to are then the same device."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
from typing import Any

from pgstrata.host.agent.occupancy import Occupancy

BLKGETSIZE64 = 0x80081272
BLKGETDISKSEQ = 0x80081280
BLKFLSBUF = 0x1261
BLKZEROOUT = 0x127F
BLKRRPART = 0x125F

CHUNK_BYTES = 1 << 20
WHOLE_BYTES = 1 << 30
"""A device up to this size is read in full."""
EDGE_BYTES = (64 << 20) + (1 << 16)
"""Bytes that are read at either end of a larger one; behind 64 MiB is the first copy of the superblock of btrfs."""
SAMPLES = 1024
SAMPLE_BYTES = 1 << 16
_EXT_GROUPS_BYTES = (32 << 20, 128 << 20)
"""Groups of ext2, ext3 and ext4 with blocks of 2 and 4 KiB; those with smaller blocks have copies near the start."""
_BTRFS_COPY_BYTES = 256 << 30


class Devices:
    """Operations on block devices."""

    def __init__(self) -> None:
        self._devices: dict[int, str] = {}

    def open_device(self, path: str, write: bool, exclusive: bool) -> dict[str, Any]:
        """Opens a device and says which one it is, and who uses it. It stays open until `close_device`.

        `uses` go on until somebody ends them, `passing` may be over in a moment. One that cannot be had exclusively
        is opened all the same, with that among its uses. Only with `write` it is held exclusively as long as it is
        open: whoever just reads keeps nobody from mounting it.
        """
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
        refused = []
        try:
            fd = os.open(path, flags | (os.O_EXCL if exclusive else 0))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            refused = ["it cannot be opened exclusively, so something uses it"]
        try:
            found = os.fstat(fd)
            if not stat.S_ISBLK(found.st_mode):
                raise OSError(errno.ENOTBLK, os.strerror(errno.ENOTBLK), path)
            number = os.major(found.st_rdev), os.minor(found.st_rdev)
            uses, passing = [], []
            if exclusive:
                occupancy = Occupancy(number)
                uses, passing = occupancy.lasting(), occupancy.passing()
            if exclusive and not write and not refused:
                fd = _let_others_in(fd)
            size, sequence = _ask(fd, BLKGETSIZE64), _ask_sequence(fd)
        except BaseException:
            os.close(fd)
            raise
        self._devices[fd] = f"{number[0]}:{number[1]} {sequence}"
        return {
            "handle": fd,
            "path": f"/proc/{os.getpid()}/fd/{fd}",
            "numbers": list(number),
            "size_bytes": size,
            "sequence": sequence,
            "uses": uses,
            "passing": [*passing, *refused],
        }

    def close_device(self, handle: int) -> None:
        if self._devices.pop(handle, None) is not None:
            os.close(handle)

    def other_handles(self, handle: int) -> list[int]:
        """Further handles of the same device: whoever opened them has had it open ever since."""
        return [other for other, device in self._devices.items() if device == self._devices[handle] and other != handle]

    def first_content(self, handle: int) -> int | None:
        """Offset of the first byte that is not zero, of all places that are looked at; None when there is none.

        Reads the device itself: what the page cache holds may not be what is on it, and would cost the host its own.
        """
        fcntl.ioctl(handle, BLKFLSBUF)
        direct = _opened_again(handle, os.O_DIRECT)
        try:
            with mmap.mmap(-1, CHUNK_BYTES) as buffer:  # aligned, as O_DIRECT wants it
                return _first_content(direct, places(_ask(handle, BLKGETSIZE64)), buffer)
        finally:
            os.close(direct)

    def zero(self, handle: int) -> None:
        """Zeroes every place that `first_content` looks at, the start of the device last: a label that says whose it
        is stays readable until all the rest is gone. Then the kernel forgets its partitions."""
        for start, length in reversed(places(_ask(handle, BLKGETSIZE64))):
            for offset in reversed(range(start, start + length, CHUNK_BYTES)):
                part = struct.pack("=QQ", offset, min(CHUNK_BYTES, start + length - offset))
                fcntl.ioctl(handle, BLKZEROOUT, part)
        os.fsync(handle)
        try:
            fcntl.ioctl(handle, BLKRRPART)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a device that cannot have partitions
                raise


def places(size: int) -> list[tuple[int, int]]:
    """(offset, length) of everything that is looked at on a device of that size, in order and without overlap."""
    if size <= WHOLE_BYTES:
        return [(0, size)]
    wanted = {index * size // SAMPLES for index in range(SAMPLES)} | set(_copies(size))
    inner = {offset // SAMPLE_BYTES * SAMPLE_BYTES for offset in wanted}
    last = (size - EDGE_BYTES) // SAMPLE_BYTES * SAMPLE_BYTES
    between = sorted(offset for offset in inner if offset >= EDGE_BYTES and offset + SAMPLE_BYTES <= last)
    return [(0, EDGE_BYTES), *((offset, SAMPLE_BYTES) for offset in between), (last, size - last)]


def _copies(size: int) -> list[int]:
    """Offsets of copies of filesystems' superblocks: groups 1 and powers of 3, 5 and 7 of ext, a copy of btrfs."""
    found = [_BTRFS_COPY_BYTES]
    for group in _EXT_GROUPS_BYTES:
        for base in (3, 5, 7):
            index = 1
            while index * group < size:
                found.append(index * group)
                index *= base
    return found


def _first_content(fd: int, wanted: list[tuple[int, int]], buffer: mmap.mmap) -> int | None:
    """OSError where the device gives less than its size."""
    zeroes = bytes(CHUNK_BYTES)
    for start, length in wanted:
        for offset in range(start, start + length, CHUNK_BYTES):
            part = min(CHUNK_BYTES, start + length - offset)
            with memoryview(buffer)[:part] as room:
                given = os.preadv(fd, [room], offset)
            if given != part:
                raise OSError(errno.EIO, f"{given} of {part} bytes were read at byte {offset}")
            data = buffer[:part]
            if data != zeroes[:part]:  # a comparison of memory; to count zeroes takes a step for each byte
                return offset + part - len(data.lstrip(b"\0"))
    return None


def _opened_again(fd: int, flags: int = 0) -> int:
    """A further handle of the same device, to read."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | flags)


def _let_others_in(fd: int) -> int:
    """A handle of the same device that does not hold it exclusively; the given one is closed."""
    shared = _opened_again(fd)
    os.close(fd)
    return shared


def _ask(fd: int, request: int) -> int:
    return int(struct.unpack("=Q", fcntl.ioctl(fd, request, b"\0" * 8))[0])


def _ask_sequence(fd: int) -> int:
    """Counts up whenever a device or its medium comes new; 0 before Linux 5.15."""
    try:
        return _ask(fd, BLKGETDISKSEQ)
    except OSError:
        return 0
