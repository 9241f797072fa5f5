"""Superblocks as their tools write them, for kinds whose kernel part this machine may not have."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

MD_MAGIC = 0xA92B4EFC
UBERBLOCK_MAGIC = 0x00BAB10C


def plant_md(device: Path) -> None:
    """A member of a raid1 with a version 1.2 superblock, 4 KiB from the start (struct mdp_superblock_1)."""
    block = bytearray(4096)
    struct.pack_into("<IIII16s32s", block, 0, MD_MAGIC, 1, 0, 0, uuid.uuid4().bytes, b"host:array")
    # ctime, level, layout, size, chunk size, number of disks
    struct.pack_into("<QIIQII", block, 64, 1_700_000_000, 1, 0, 0, 0, 2)
    # data offset, data size, offset of the superblock in sectors
    struct.pack_into("<QQQ", block, 128, 2048, 4096, 8)
    struct.pack_into("<II", block, 216, 0, 2)
    words = struct.unpack_from("<65I", block, 0)
    total = sum(words)
    struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32))
    _write(device, 4096, bytes(block))


def plant_zfs(device: Path) -> None:
    """The arrays of uberblocks in the four labels of a vdev (libblkid wants at least four of them)."""
    size = _size(device)
    for label in (0, 256 * 1024, size - 512 * 1024, size - 256 * 1024):
        for slot in range(16):
            block = struct.pack("<QQQQQ", UBERBLOCK_MAGIC, 5000, 100 + slot, 12345, 1_700_000_000)
            _write(device, label + 128 * 1024 + slot * 1024, block.ljust(1024, b"\0"))


def plant_dos(device: Path) -> None:
    """A master boot record with one Linux partition from 1 MiB on."""
    entry = struct.pack("<B3sB3sII", 0, b"\0\0\0", 0x83, b"\0\0\0", 2048, 4096)
    _write(device, 446, entry)
    _write(device, 510, b"\x55\xaa")


def _size(device: Path) -> int:
    with device.open("rb") as file:
        return file.seek(0, 2)


def _write(device: Path, offset: int, data: bytes) -> None:
    with device.open("r+b") as file:
        file.seek(offset)
        file.write(data)
