"""Parsers against recorded output of the real tools (the version is in the file's name)."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.host.facts.system import parse_meminfo
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.stack.block.loop import parse_losetup
from pgstrata.stack.fs.btrfs import parse_device_usage, parse_filesystem_df, parse_nodesize
from pgstrata.stack.fs.ext4 import Ext4Check, parse_dumpe2fs, parse_journal_bytes
from pgstrata.stack.fs.xfs import Stripe, XfsCheck, parse_xfs_info
from pgstrata.stack.mounts import find_mount, parse_mountinfo
from pgstrata.stack.safety import Signature, parse_blkid, parse_wipefs
from pgstrata.stack.tuning.setting import commit_limit_bytes, parse_setting, room_problem

FIXTURES = Path(__file__).parents[2] / "fixtures" / "stack"


def _text(name: str) -> str:
    return (FIXTURES / name).read_text()


def test_mountinfo() -> None:
    mounts = parse_mountinfo(_text("mountinfo-6.18.txt"))
    ext4 = next(m for m in mounts if m.target == "/tmp/scratch/mnt")
    assert (ext4.device, ext4.fstype, ext4.source) == ((7, 1), "ext4", "/dev/loop1")
    assert ext4.options == ("rw", "noatime", "rw", "nobarrier", "commit=30", "stripe=32", "data=writeback")
    assert mounts[-1].target == "/tmp/scratch/mnt/with blank"


def test_mountinfo_with_optional_tags() -> None:
    (mount,) = parse_mountinfo(
        "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n"
    )
    assert (mount.target, mount.fstype, mount.options[1]) == ("/mnt2", "ext3", "noatime")


@pytest.mark.parametrize("line", ["nonsense", "1 2 0:1 / / rw,relatime ext4 /dev/x rw", "1 2 0:1 / / rw - ext4"])
def test_a_line_that_is_no_mountinfo_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="not a line of mountinfo"):
        parse_mountinfo(line)


def test_the_mount_below_a_path() -> None:
    mounts = parse_mountinfo(_text("mountinfo-6.18.txt"))
    for path, target in {
        "/tmp/scratch/mnt/with blank/x": "/tmp/scratch/mnt/with blank",
        "/tmp/scratch/mnt/with": "/tmp/scratch/mnt",
        "/tmp/scratch/mntx": "/",
        "/dev/shm": "/dev/shm",
    }.items():
        found = find_mount(mounts, path)
        assert found is not None
        assert found.target == target
    assert find_mount((), "/x") is None


def test_losetup() -> None:
    loops = {loop.node: loop for loop in parse_losetup(_text("losetup-2.38.1.json"))}
    assert loops["/dev/loop1"].backing_file == "/tmp/scratch/disk0.img"
    assert loops["/dev/loop1"].direct_io
    assert loops["/dev/loop1"].logical_sector_bytes == 512
    assert parse_losetup("") == ()


def test_dumpe2fs() -> None:
    fields = parse_dumpe2fs(_text("dumpe2fs-1.47.0-bigalloc.txt"))
    asked = Ext4(bigalloc_cluster="64k", fast_commit=True, block_size="4k", journal_size="32M")
    rows = Ext4Check("data", "/dev/loop1", asked, 16, 32).compare(fields)
    assert [row for row in rows if not row.holds] == []
    assert {row.what.removeprefix("data ext4 "): row.actual for row in rows} == {
        "has_journal": "on",
        "bigalloc": "on",
        "fast_commit": "on",
        "stride": "16",
        "stripe_width": "32",
        "block_size_bytes": "4096",
        "cluster_bytes": "65536",
        "journal_size_bytes": str(32 * 2**20),
    }
    other = Ext4(journal_size="64M", block_size="1k", bigalloc_cluster=None)
    wrong = {row.what: row.actual for row in Ext4Check("data", "", other, 8, 32).compare(fields) if not row.holds}
    assert set(wrong) == {
        f"data ext4 {what}" for what in ("bigalloc", "fast_commit", "stride", "block_size_bytes", "journal_size_bytes")
    }


def test_a_line_that_is_not_of_dumpe2fs_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a line of dumpe2fs"):
        parse_dumpe2fs("Filesystem magic number:  0xEF53\nnonsense\n")


@pytest.mark.parametrize(("text", "size"), [("64M", 64 * 2**20), ("4096k", 4 * 2**20), ("1G", 2**30), ("0", 0)])
def test_journal_sizes(text: str, size: int) -> None:
    assert parse_journal_bytes(text) == size


def test_a_journal_size_in_another_unit_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a journal size"):
        parse_journal_bytes("64 furlongs")


def test_xfs_info() -> None:
    fields = parse_xfs_info(_text("xfs_info-6.1.0.txt"))
    assert fields["data.bsize"] == "4096"
    assert fields["meta-data.sectsz"] == "512"
    asked = Xfs(block_size="4k", log_size="64M", su="64k", sw=2, reflink=False, bigtime=False)
    rows = XfsCheck("data", "/mnt", asked, Stripe(65536, 2)).compare(fields)
    assert [row for row in rows if not row.holds] == []
    other = Xfs(block_size="8k", log_size="32M", reflink=True, sector_size="4k", agcount=3)
    wrong = {row.what for row in XfsCheck("data", "/mnt", other, Stripe(32768, 4)).compare(fields) if not row.holds}
    names = ("block_size_bytes", "sector_size_bytes", "log_size_bytes", "su_bytes", "sw", "agcount", "reflink")
    assert wrong == {f"data xfs {name}" for name in names}


def test_a_line_that_is_not_of_xfs_info_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a line of xfs_info"):
        parse_xfs_info("xfs_info: no such filesystem\n")


def test_btrfs() -> None:
    assert parse_filesystem_df(_text("btrfs-filesystem-df-6.2.txt")) == {
        "Data": ("raid0",),
        "System": ("raid1",),
        "Metadata": ("raid1",),
        "GlobalReserve": ("single",),
    }
    assert parse_device_usage(_text("btrfs-device-usage-6.2.txt")) == ("/dev/loop1", "/dev/loop2")
    assert parse_nodesize(_text("btrfs-dump-super-6.2.txt")) == "16384"


def test_btrfs_in_the_middle_of_a_conversion_shows_both_profiles() -> None:
    text = "Data, RAID1: total=1, used=0\nData, single: total=2, used=0\n"
    assert parse_filesystem_df(text)["Data"] == ("raid1", "single")


def test_what_is_not_of_btrfs_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a line of btrfs"):
        parse_filesystem_df("ERROR: not a btrfs filesystem\n")
    with pytest.raises(ValueError, match="no nodesize"):
        parse_nodesize("superblock: bytenr=65536\n")


EXT4_UUID = "5423763e-a4ae-4c26-9028-3f853b82b5d7"


def test_signatures() -> None:
    assert parse_wipefs(_text("wipefs-2.38.1-ext4.json")) == (Signature("ext4", 0x438, "pgstrata", EXT4_UUID),)
    assert [s.type for s in parse_wipefs(_text("wipefs-2.38.1-gpt.json"))] == ["gpt", "gpt", "PMBR"]
    assert parse_wipefs(_text("wipefs-2.38.1-blank.json")) == ()
    assert parse_wipefs("") == ()
    assert parse_blkid(_text("blkid-2.38.1-ext4.txt")) == (Signature("ext4", None, "pgstrata", EXT4_UUID),)
    assert parse_blkid(_text("blkid-2.38.1-gpt.txt")) == (
        Signature("gpt", uuid="d492c867-9f38-44ce-81c1-8c19116aef33"),
    )
    assert parse_blkid("") == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("always [madvise] never\n", "madvise"),
        ("[none] mq-deadline kyber\n", "none"),
        ("none\n", "none"),
        ("write back\n", "write back"),
        ("4096\t131072\t6291456\n", "4096 131072 6291456"),
        ("100\n", "100"),
    ],
)
def test_settings(text: str, value: str) -> None:
    assert parse_setting(text) == value


def test_the_commit_limit_is_the_kernel_s() -> None:
    meminfo = parse_meminfo(_text("meminfo-6.18.txt"))
    # recorded with vm.overcommit_ratio at its default of 50
    assert abs(commit_limit_bytes(meminfo, ratio=50, kbytes=0) - meminfo["CommitLimit"]) < 8192
    assert commit_limit_bytes(meminfo, ratio=50, kbytes=1024) == 2**20 + meminfo["SwapTotal"]


def test_room_to_commit() -> None:
    assert room_problem(10 * 2**30, 2**30, 2 * 2**30) == ""
    assert "9.0 GiB are committed" in room_problem(10 * 2**30, 9 * 2**30, 2**30)
