"""Prints the locations of the files of mounted filesystems on their devices. Run on the host as root; standard library
only.

For each given mount point: its files with their extents (FS_IOC_FIEMAP). btrfs extents are addresses of its own, so its
chunks, which map these to devices, are added.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator

FS_IOC_FIEMAP = 0xC020660B
SYNC = 1
EXTENTS = 256
"""Requested at once."""
LAST = 0x1
NO_ADDRESS = 0x2 | 0x4 | 0x8 | 0x200
"""Unknown, not yet allocated, encoded, inside metadata."""
PATIENCE_S = 60.0


def extents(file: int) -> Iterator[tuple[int, int, int]]:
    """Offset in the file, address and length of each extent, in bytes."""
    at = 0
    while True:
        asked = bytearray(struct.pack("QQIIII", at, 2**64 - 1 - at, SYNC, 0, EXTENTS, 0) + bytes(56 * EXTENTS))
        fcntl.ioctl(file, FS_IOC_FIEMAP, asked)
        count = struct.unpack_from("I", asked, 20)[0]
        flags = LAST
        for number in range(count):
            logical, address, length, _, _, flags = struct.unpack_from("QQQQQI", asked, 32 + 56 * number)
            at = logical + length
            if not flags & NO_ADDRESS:
                yield logical, address, length
        if flags & LAST:
            return


def files(mount_point: str) -> Iterator[tuple[str, list[tuple[int, int, int]]]]:
    """Regular files below a mount point with their extents, by relative path."""
    device = os.lstat(mount_point).st_dev
    for folder, folders, names in os.walk(mount_point):
        folders[:] = [name for name in folders if os.lstat(os.path.join(folder, name)).st_dev == device]
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.isfile(path) or os.path.islink(path):
                continue
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                found = list(extents(file))
            finally:
                os.close(file)
            if found:
                yield os.path.relpath(path, mount_point), found


def mounted(mount_point: str) -> tuple[str, str]:
    """Type and source of the topmost mount there."""
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        parts = [line.split() for line in lines]
    last = [part for part in parts if part[4] == mount_point][-1]
    return last[last.index("-") + 1], last[last.index("-") + 2]


def chunks(mount_point: str) -> str:
    """The chunks of a btrfs as its own tool prints them; empty for other filesystems."""
    kind, source = mounted(mount_point)
    if kind != "btrfs":
        return ""
    argv = ["btrfs", "inspect-internal", "dump-tree", "--tree", "chunk", source]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return done.stdout


def main(mount_points: list[str]) -> int:
    told = [{"chunks": chunks(point), "files": dict(files(point))} for point in mount_points]
    json.dump(told, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
