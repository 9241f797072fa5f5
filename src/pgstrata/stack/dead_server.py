"""Removes the shared memory of a PostgreSQL server that was killed. Run on the host as the server's user, who can
remove nobody else's; standard library only.

The server notes in its data directory, which is the only argument, the number of its process, and key and id of its
System V segment (miscadmin.h: LOCK_FILE_LINE_SHMEM_KEY). The head of the segment names the control segment of its
dynamic shared memory (pg_shmem.h), and that all others (dsm.c). These are files in /dev/shm, or System V segments whose
key is their number (dsm_impl.c). A segment that another process made, or to which one is attached, is no dead server's.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

SEGMENTS = "/proc/sysvipc/shm"
FILES = "/dev/shm/PostgreSQL."
KEY_LINE = 7
KEY_BITS = 0xFFFFFFFF
SERVER_MAGIC, CONTROL_MAGIC = 679834894, 0x9A503D32
SERVER_HEAD = struct.Struct("@iiNNI")
"""Magic number, process, two sizes, number of the control segment."""
CONTROL_HEAD = struct.Struct("@III0N")
"""Magic number, used entries, capacity in entries."""
ENTRY_HEAD = struct.Struct("@II")
"""Segment number and its reference count."""
SHM_RDONLY, IPC_RMID = 0o10000, 0
PATIENCE_S, POLL_S = 10.0, 0.05
"""A server's children may outlive it briefly."""

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
libc.shmdt.argtypes = (ctypes.c_void_p,)


class Segment(NamedTuple):
    """A System V segment of the current user."""

    key: int
    id: int
    size: int
    creator: int
    attached: int


def segments() -> list[Segment]:
    with open(SEGMENTS, encoding="ascii") as file:
        rows = [[int(word) for word in line.split()] for line in file.readlines()[1:]]
    own = (row for row in rows if row[7] == row[9] == os.geteuid())
    return [Segment(row[0] & KEY_BITS, row[1], row[3], row[4], row[6]) for row in own]


def segment_of(data: str) -> Segment | None:
    """Return the segment of the server with this data directory; None if it ended cleanly or its process number is
    reused."""
    with open(os.open(f"{data}/postmaster.pid", os.O_RDONLY | os.O_NOFOLLOW), encoding="ascii") as file:
        lines = file.read().split("\n")
    if len(lines) < KEY_LINE or not lines[KEY_LINE - 1].strip():
        return None
    key, number = map(int, lines[KEY_LINE - 1].split())
    wanted = (key & KEY_BITS, number, abs(int(lines[0])))  # the process of initdb's server is noted as negative
    return next((one for one in segments() if (one.key, one.id, one.creator) == wanted), None)


def content(segment: Segment) -> bytes:
    address = libc.shmat(segment.id, None, SHM_RDONLY)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), f"shared memory segment {segment.id} cannot be read")
    try:
        return ctypes.string_at(address, segment.size)
    finally:
        libc.shmdt(address)


def remove(segment: Segment) -> str:
    if libc.shmctl(segment.id, IPC_RMID, None) != 0:
        raise OSError(ctypes.get_errno(), f"shared memory segment {segment.id} cannot be removed")
    return f"shared memory segment {segment.id}"


class Dynamic:
    """A segment of dynamic shared memory, by number: a file or a System V segment."""

    def __init__(self, number: int) -> None:
        self.file = f"{FILES}{number}"
        key = min(number, KEY_BITS + 1 - number)  # without its sign
        self.segments = [one for one in segments() if one.key == key and one.attached == 0]

    def content(self) -> bytes:
        with suppress(FileNotFoundError), open(os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return file.read()
        return content(self.segments[0]) if self.segments else b""

    def remove(self) -> Iterator[str]:
        with suppress(FileNotFoundError):
            os.unlink(self.file)
            yield self.file
        yield from map(remove, self.segments)


def entries(control: bytes) -> Iterator[int]:
    """Return the segments listed in a control segment. The entry length depends on the major version."""
    if len(control) < CONTROL_HEAD.size:
        return
    magic, used, most = CONTROL_HEAD.unpack_from(control)
    if magic != CONTROL_MAGIC or used > most:
        return
    length = (len(control) - CONTROL_HEAD.size) // most
    for at in range(CONTROL_HEAD.size, CONTROL_HEAD.size + used * length, length):
        number, users = ENTRY_HEAD.unpack_from(control, at)
        if users:
            yield number


def remove_all(main: Segment) -> Iterator[str]:
    """Remove all segments; the one that leads to the others goes last, so that this can be repeated."""
    head = content(main)
    if len(head) >= SERVER_HEAD.size:
        magic, process, _, _, number = SERVER_HEAD.unpack_from(head)
        if (magic, process) == (SERVER_MAGIC, main.creator) and number:
            control = Dynamic(number)
            for entry in entries(control.content()):
                yield from Dynamic(entry).remove()
            yield from control.remove()
    yield remove(main)


def main(arguments: list[str]) -> int:
    deadline = time.monotonic() + PATIENCE_S
    with suppress(FileNotFoundError):
        while (segment := segment_of(arguments[0])) is not None and segment.attached:
            if time.monotonic() > deadline:
                print(f"{segment.attached} processes use shared memory segment {segment.id}", file=sys.stderr)
                return 1
            time.sleep(POLL_S)
        if segment is not None:
            print("\n".join(remove_all(segment)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
