"""A device is blank only when it reads as zeroes: whatever else it carries needs `erase`, and is gone afterwards."""

from __future__ import annotations

import random
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from standing import context_in
from superblocks import plant_dos, plant_md, plant_zfs

from built import standing
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.spec.layers.devices import DiskDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.journal import Journal, clean
from pgstrata.stack.plan import plan_stack
from pgstrata.stack.safety import inspect_device, refuse_or_allow
from pgstrata.stack.undo import WipeDevice

MIB = 2**20
SMALL_BYTES = 128 * MIB
LARGE_BYTES = 3 * 2**30
"""Larger than what is read in full."""

Image = tuple[int, dict[int, bytes]]
"""Size of a device, and what is written where."""


def _noise(length: int) -> bytes:
    return random.Random(length).randbytes(length)


def _ext_copy() -> bytes:
    """The start of a superblock of ext4: blocks, magic number."""
    return struct.pack("<IIII", 8192, 32768, 0, 30000).ljust(0x38, b"\0") + b"\x53\xef".ljust(968, b"\0")


def _gpt_header() -> bytes:
    return b"EFI PART" + struct.pack("<IIII", 0x10000, 92, 0, 0)


def _images() -> dict[str, Image]:
    found: dict[str, Image] = {}
    single = {"first byte": 0, "first sector": 511, "byte 1 KiB": 1024, "byte 64 KiB": 65536, "one third": 44739242}
    single |= {"middle": 64 * MIB, "byte before the middle": 64 * MIB - 1, "last sector": SMALL_BYTES - 512}
    single |= {"last byte": SMALL_BYTES - 1, "last MiB": SMALL_BYTES - MIB, "odd place": 12345679}
    found |= {f"one byte: {name}": (SMALL_BYTES, {offset: b"\1"}) for name, offset in single.items()}
    for offset in (
        4096,
        8192,
        16384,
        65536,
        262144,
        1 * MIB,
        5 * MIB,
        33 * MIB,
        64 * MIB,
        100 * MIB,
        SMALL_BYTES - 65536,
    ):
        found[f"noise at {offset}"] = (SMALL_BYTES, {offset: _noise(4096)})
    for offset in (8193 * 1024, 24577 * 1024, 32768 * 1024, 98304 * 1024 - MIB, 512, 3 * 512):
        found[f"copy of a superblock of ext4 at {offset}"] = (SMALL_BYTES, {offset: _ext_copy()})
    for offset in (MIB, 8 * MIB, 13 * MIB, 32 * MIB, 51 * MIB, 77 * MIB, 96 * MIB, 111 * MIB):
        found[f"xfs group at {offset}"] = (SMALL_BYTES, {offset: b"XFSB" + struct.pack(">IQ", 4096, 32768)})
    for offset in (64 * MIB, 64 * MIB + 0x40):
        found[f"copy of btrfs at {offset}"] = (SMALL_BYTES, {offset: b"_BHRfS_M"})
    found["GPT at the end alone"] = (SMALL_BYTES, {SMALL_BYTES - 512: _gpt_header()})
    found["entries of GPT at the end alone"] = (SMALL_BYTES, {SMALL_BYTES - 33 * 512: _noise(128)})
    found["md 0.90 at the end, torn"] = (SMALL_BYTES, {SMALL_BYTES - 65536: struct.pack("<I", 0xA92B4EFC)[:3]})
    found["torn label of LVM"] = (SMALL_BYTES, {512: b"LABELON"})
    found["torn header of LUKS"] = (SMALL_BYTES, {0: b"LUK\0\xba\xbe"})
    found["data behind a detached header of LUKS"] = (SMALL_BYTES, {0: _noise(MIB)})
    found["data behind a detached header at 16 MiB"] = (SMALL_BYTES, {16 * MIB: _noise(MIB)})
    found["tar"] = (SMALL_BYTES, {0: _tar()})
    found["a page of PostgreSQL"] = (SMALL_BYTES, {8192 * 77: struct.pack("<QHHHHHH", 1, 0, 4, 28, 8192, 8192, 8196)})
    found["text"] = (SMALL_BYTES, {2 * MIB: b"the only copy\n"})
    found["all ones"] = (SMALL_BYTES, {0: b"\xff" * 4096})
    found["one label of zfs"] = (SMALL_BYTES, {SMALL_BYTES - 256 * 1024 + 16384: _noise(112)})
    large = {
        "first": 3 * MIB,
        "behind the start": 64 * MIB,
        "last": LARGE_BYTES - 1,
        "before the end": LARGE_BYTES - MIB,
    }
    large |= {"ext4 group 1": 128 * MIB, "ext4 group 3": 384 * MIB, "ext4 group 9": 1152 * MIB}
    large |= {"ext4 group 25 of 32 MiB": 25 * 32 * MIB, "xfs group 1": 768 * MIB, "xfs group 2": 1536 * MIB}
    large |= {"xfs group 3": 2304 * MIB, "ext4 group 5": 640 * MIB, "ext4 group 7": 896 * MIB}
    found |= {f"large: {name}": (LARGE_BYTES, {offset: b"\1"}) for name, offset in large.items()}
    found["large: a stretch of 4 MiB"] = (LARGE_BYTES, {1234567890: _noise(4 * MIB)})
    return found


def _tar() -> bytes:
    import io

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("precious")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"data"))
    return buffer.getvalue()


IMAGES = _images()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "disk.img"


def _attach(host: LocalHost, file: Path, size: int, content: dict[int, bytes]) -> str:
    with file.open("wb") as handle:
        handle.truncate(size)
        for offset, data in content.items():
            handle.seek(offset)
            handle.write(data)
    return host.run(command("losetup", "--find", "--show", str(file))).stdout.strip()


@pytest.fixture
def blank(host: LocalHost, file: Path) -> Iterator[str]:
    node = _attach(host, file, SMALL_BYTES, {})
    yield node
    host.run(command("losetup", "--detach", node))


def _content(host: LocalHost, id_: str) -> tuple[int | None, tuple[str, ...]]:
    state = inspect_device(host, id_)
    return state.content_at, tuple(s.type for s in state.signatures)


def _disk(file: Path) -> Stack:
    return Stack(name="under test", data=Volume(device=DiskDevice(ids=(str(file),)), fs=Ext4()))


def test_there_are_sixty_four_images() -> None:
    assert len(IMAGES) >= 64


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_refused_without_erase(host: LocalHost, file: Path, name: str) -> None:
    size, content = IMAGES[name]
    node = _attach(host, file, size, content)
    try:
        with pytest.raises(PreflightError, match="it may hold data") as refusal:
            refuse_or_allow(host, str(file), ())
        assert "erase" in refusal.value.hint
        refuse_or_allow(host, str(file), (str(file),))
        with file.open("rb") as handle:
            for offset, data in content.items():
                handle.seek(offset)
                assert handle.read(len(data)) == data
    finally:
        host.run(command("losetup", "--detach", node))


def test_a_device_that_reads_as_zeroes_is_blank(host: LocalHost, file: Path, blank: str) -> None:
    assert _content(host, str(file)) == (None, ())


def test_what_the_cache_does_not_show_is_seen(host: LocalHost, file: Path, blank: str) -> None:
    """The device was read as zeroes, and written to behind its back."""
    assert _content(host, str(file)) == (None, ())
    with file.open("r+b") as handle:
        handle.seek(5 * MIB)
        handle.write(b"\1")
    assert _content(host, str(file)) == (5 * MIB, ())


@pytest.mark.parametrize("plant", [plant_md, plant_zfs, plant_dos], ids=["md", "zfs", "dos"])
@pytest.mark.parametrize("size", [SMALL_BYTES, LARGE_BYTES], ids=["small", "large"])
def test_a_device_is_blank_again_after_a_trial_so_that_the_next_needs_no_erase(
    host: LocalHost, tmp_path: Path, file: Path, size: int, plant: object
) -> None:
    node = _attach(host, file, size, {size // 2: _noise(MIB), size - 4096: _noise(512)})
    try:
        plant(Path(node))  # type: ignore[operator]
        with standing(host, plan_stack(_disk(file), context_in(tmp_path, erase=(str(file),)))) as built:
            assert built.bindings["data.0"] == node
            (tmp_path / "pgstrata-t1/mount/data/file").write_bytes(_noise(MIB))
        assert _content(host, str(file)) == (None, ())
        with standing(host, plan_stack(_disk(file), context_in(tmp_path))):
            assert _content(host, str(file)) == (None, ())  # in use: not looked at
        assert _content(host, str(file)) == (None, ())
    finally:
        host.run(command("losetup", "--detach", node))


def test_data_written_since_a_trial_was_killed_is_left_alone(host: LocalHost, file: Path, blank: str) -> None:
    Journal.create(host, "t1").register(WipeDevice(id=str(file)))
    host.unlock("trial-t1")
    with file.open("r+b") as handle:
        handle.write(_noise(8192))
    (line,) = clean(host).lines
    assert "left" in line
    assert "may be somebody else's" in line
    with file.open("rb") as handle:
        assert handle.read(8192) == _noise(8192)
