"""Who uses a device, on a machine of files: a disk with two partitions, a loop device, a few processes."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from pgstrata.host.agent.devices import EDGE_BYTES, WHOLE_BYTES, places
from pgstrata.host.agent.occupancy import Occupancy

SDA = (8, 0)
ROOT = "22 1 9:17 / / rw,relatime shared:1 - ext4 /dev/md1 rw\n"


class Machine:
    """`/proc` and `/sys` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        self.write("sys/devices/sda/dev", "8:0")
        for number in (1, 2):
            self.write(f"sys/devices/sda/sda{number}/dev", f"8:{number}")
            self.write(f"sys/devices/sda/sda{number}/partition", str(number))
        (self.sys / "class/block").mkdir(parents=True)
        (self.sys / "dev/block").mkdir(parents=True)
        for name, numbers, place in (("sda", "8:0", "sda"), ("sda1", "8:1", "sda/sda1"), ("sda2", "8:2", "sda/sda2")):
            (self.sys / "class/block" / name).symlink_to(self.sys / "devices" / place)
            (self.sys / "dev/block" / numbers).symlink_to(self.sys / "devices" / place)
        self.write("proc/swaps", "Filename Type Size Used Priority\n")
        self.process(1, "mnt:[1]", ROOT)

    def write(self, path: str, text: str) -> None:
        file = self.proc.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def process(self, pid: int, namespace: str, mountinfo: str) -> None:
        self.write(f"proc/{pid}/mountinfo", mountinfo)
        (self.proc / str(pid) / "ns").mkdir()
        (self.proc / str(pid) / "ns/mnt").symlink_to(namespace)

    def lasting(self, number: tuple[int, int] = SDA) -> list[str]:
        return Occupancy(number, proc=str(self.proc), sys=str(self.sys)).lasting()

    def passing(self, number: tuple[int, int] = SDA) -> list[str]:
        return Occupancy(number, proc=str(self.proc), sys=str(self.sys)).passing()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_free_disk_is_used_by_nobody(machine: Machine) -> None:
    assert machine.lasting() == []
    assert machine.passing() == []


@pytest.mark.parametrize(
    ("mountinfo", "where"),
    [
        ("40 22 8:1 / /home rw - ext4 /dev/sda1 rw\n", "/home"),
        ("40 22 0:50 / /pool rw - btrfs /dev/sda1 rw\n", "/pool"),
        ("40 22 8:1 / /with\\040blank rw - ext4 /dev/sda1 rw\n", "/with blank"),
    ],
    ids=["by number", "by source", "with a blank"],
)
@pytest.mark.parametrize("number", [SDA, (8, 1)], ids=["disk", "partition"])
def test_a_mount_is_found_in_every_namespace(
    machine: Machine, mountinfo: str, where: str, number: tuple[int, int]
) -> None:
    machine.process(77, "mnt:[2]", ROOT + mountinfo)
    assert machine.lasting(number) == [f"it is mounted at {where}"]


def test_the_mount_of_another_partition_leaves_this_one_free(machine: Machine) -> None:
    machine.process(77, "mnt:[2]", "40 22 8:1 / /home rw - ext4 /dev/sda1 rw\n")
    assert machine.lasting((8, 2)) == []


def test_the_mount_of_a_whole_disk_takes_its_partitions(machine: Machine) -> None:
    machine.process(77, "mnt:[2]", "40 22 8:0 / /odd rw - ext4 /dev/sda rw\n")
    assert machine.lasting((8, 2)) == ["it is mounted at /odd"]


def test_swap_holders_and_members_are_found(machine: Machine) -> None:
    machine.write("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n")
    (machine.sys / "devices/sda/sda1/holders/dm-3").mkdir(parents=True)
    (machine.sys / "fs/btrfs/6b2c-uuid/devices/sda1").mkdir(parents=True)
    (machine.sys / "devices/sda/sda2/bcache").mkdir()
    assert machine.lasting() == [
        "sda2 is swap in use",
        "dm-3 is built on sda1",
        "sda1 is a device of btrfs 6b2c-uuid",
        "sda2 is a device of bcache",
    ]


def test_a_loop_device_is_told_from_what_it_sits_on(machine: Machine, tmp_path: Path) -> None:
    """No such node in /dev: what it sits on is found by the path that the kernel shows."""
    image, link = tmp_path / "image", tmp_path / "link"
    image.write_bytes(b"")
    os.link(image, link)
    for name, number, file in (("loop98765", "7:98765", image), ("loop98766", "7:98766", link)):
        machine.write(f"sys/devices/{name}/dev", number)
        machine.write(f"sys/devices/{name}/loop/backing_file", f"{file}\n")
        (machine.sys / "class/block" / name).symlink_to(machine.sys / "devices" / name)
        (machine.sys / "dev/block" / number).symlink_to(machine.sys / "devices" / name)
        (machine.sys / "block").mkdir(exist_ok=True)
        (machine.sys / "block" / name).symlink_to(machine.sys / "devices" / name)
    assert machine.lasting((7, 98765)) == [f"loop device loop98766 sits on {image}"]
    machine.write("proc/swaps", f"Filename Type Size Used Priority\n{link} file 1 0 -2\n")
    assert f"{image} is swap in use" in machine.lasting((7, 98765))


def test_a_backing_file_that_is_open_or_locked_is_found(machine: Machine, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"")
    machine.write("sys/devices/loop98765/dev", "7:98765")
    machine.write("sys/devices/loop98765/loop/backing_file", f"{image}\n")
    for place in ("class/block/loop98765", "dev/block/7:98765"):
        (machine.sys / place).symlink_to(machine.sys / "devices/loop98765")
    machine.process(77, "mnt:[1]", ROOT)
    machine.write("proc/77/comm", "qemu\n")
    machine.write("proc/77/fdinfo/3", "pos: 0\nmnt_id: 22\n")
    (machine.proc / "77/fd").mkdir()
    (machine.proc / "77/fd/3").symlink_to(image)
    (machine.proc / "77/fd/4").symlink_to("socket:[1]")
    found = image.stat()
    lock = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    machine.write(
        "proc/locks", f"1: POSIX  ADVISORY  WRITE 0 {lock} 0 EOF\n2: -> FLOCK ADVISORY WRITE 9 00:01:2 0 EOF\n"
    )
    assert machine.passing((7, 98765)) == [f"{image} is open in qemu (pid 77)", f"{image} is locked by process 0"]


def test_what_lies_on_a_server_is_told_without_asking_it(machine: Machine, tmp_path: Path) -> None:
    """A stat of a file whose server is gone would never return."""
    image = tmp_path / "image"
    image.write_bytes(b"")
    found = image.stat()
    machine.write("sys/devices/loop98765/dev", "7:98765")
    machine.write("sys/devices/loop98765/loop/backing_file", f"{image}\n")
    for place in ("class/block/loop98765", "dev/block/7:98765"):
        (machine.sys / place).symlink_to(machine.sys / "devices/loop98765")
    number = f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}"
    machine.process(77, "mnt:[2]", f"55 22 {number} / /net rw - nfs4 nas:/x rw\n")
    machine.write("proc/77/fdinfo/3", f"mnt_id: 55\nino: {found.st_ino}\n")
    (machine.proc / "77/fd").mkdir()
    (machine.proc / "77/fd/3").symlink_to("/net/nowhere")
    assert machine.passing((7, 98765)) == [f"{image} is open in a process (pid 77)"]


@pytest.mark.parametrize("size", [512, WHOLE_BYTES, WHOLE_BYTES + 512, 10 * 2**30, 3 * 2**40 + 4096])
def test_places_are_in_order_within_the_device_and_reach_both_ends(size: int) -> None:
    found = places(size)
    assert found[0][0] == 0
    assert sum(found[-1]) == size
    assert all(a + length <= b for (a, length), (b, _) in itertools.pairwise(found))
    assert all(offset % 512 == 0 and length % 512 == 0 for offset, length in found)
    if size > WHOLE_BYTES:
        assert found[0][1] == EDGE_BYTES
        assert found[-1][1] >= EDGE_BYTES


@pytest.mark.parametrize(
    "offset", [64 * 2**20, 256 * 2**30, 128 * 2**20, 3**4 * 128 * 2**20, 7 * 32 * 2**20, 3 * 2**38, 2**40 - 1]
)
def test_places_have_the_copies_of_superblocks(offset: int) -> None:
    """btrfs, ext4 with blocks of 4 and 2 KiB, the fourth allocation group of xfs, the last sector."""
    assert any(start <= offset < start + length for start, length in places(2**40))
