"""Every layer of a stack on real loop devices: up, attest, write, down, nothing left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from standing import context_in, filesystem, loop_stack, up_attest_write_down

from built import standing
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.devices import LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.mounts import mount_at
from pgstrata.stack.plan import plan_stack

_EXT4 = {
    "defaults": Ext4(),
    "noatime": Ext4(noatime=True, nodiratime=True),
    "writeback": Ext4(data="writeback", barrier=False, commit_s=30, delalloc=False, discard=True),
    "journal": Ext4(data="journal", journal_size="64M"),
    "aligned": Ext4(block_size="4k", stride_blocks=16, stripe_width_blocks=64),
    "small blocks": Ext4(block_size="1k"),
    "bigalloc": Ext4(bigalloc_cluster="64k"),
    "fast commit": Ext4(fast_commit=True),
    "no journal": Ext4(has_journal=False),
    "journal of its own": Ext4(log=LoopDevice(size="256M")),
    "journal of its own, small blocks": Ext4(log=LoopDevice(), block_size="1k"),
}
_XFS = {
    "defaults": Xfs(),
    "noatime": Xfs(noatime=True, nodiratime=True),
    "geometry": Xfs(sector_size="4k", log_size="64M", su="64k", sw=2, agcount=4, reflink=False, bigtime=False),
    "large blocks": Xfs(block_size="64k"),
    "log of its own": Xfs(log=LoopDevice()),
    "log of its own, small": Xfs(log=LoopDevice(size="128M"), log_size="64M", log_su="32k"),
    "mount options": Xfs(logbufs=4, logbsize="256k", allocsize="1M", largeio=True, discard=True),
}
_BTRFS = {
    "defaults": Btrfs(),
    "nodatacow": Btrfs(nodatacow=True, noatime=True),
    "nodatasum": Btrfs(nodatasum=True, barrier=False, commit_s=10, nodesize="32k"),
    "compressed": Btrfs(compress="zstd", autodefrag=True, ssd=True, discard="async", space_cache="v2"),
    "compressed, level": Btrfs(compress="zlib:9", ssd=False, discard="sync"),
    "old cache": Btrfs(compress="lzo", space_cache="v1", discard="off", data="single", metadata="dup"),
}


@pytest.mark.parametrize("fs", _EXT4.values(), ids=_EXT4.keys())
def test_ext4(host: LocalHost, tmp_path: Path, fs: Ext4) -> None:
    assert filesystem(up_attest_write_down(host, tmp_path, loop_stack(fs))) == "ext4"


@pytest.mark.parametrize("fs", _XFS.values(), ids=_XFS.keys())
def test_xfs(host: LocalHost, tmp_path: Path, fs: Xfs) -> None:
    assert filesystem(up_attest_write_down(host, tmp_path, loop_stack(fs))) == "xfs"


@pytest.mark.parametrize("fs", _BTRFS.values(), ids=_BTRFS.keys())
def test_btrfs(host: LocalHost, tmp_path: Path, fs: Btrfs) -> None:
    assert filesystem(up_attest_write_down(host, tmp_path, loop_stack(fs))) == "btrfs"


@pytest.mark.parametrize(
    ("profile", "count"),
    [
        *(("single", 2), ("dup", 2), ("raid0", 2), ("raid1", 2), ("raid1c3", 3), ("raid1c4", 4)),
        *(("raid10", 4), ("raid5", 3), ("raid6", 4)),
    ],
)
def test_btrfs_over_several_devices(host: LocalHost, tmp_path: Path, profile: str, count: int) -> None:
    fs = Btrfs.model_validate({"data": profile, "metadata": profile})
    attested = up_attest_write_down(host, tmp_path, loop_stack(fs, count=count))
    devices = next(row.actual for row in attested if row.what == "data btrfs devices")
    assert len(devices.split()) == count


@pytest.mark.parametrize("fs", [Tmpfs(), Tmpfs(size=100_000_000, huge="always", noatime=True)], ids=["", "options"])
def test_tmpfs(host: LocalHost, tmp_path: Path, fs: Tmpfs) -> None:
    stack = Stack(name="under test", data=Volume(fs=fs))
    assert filesystem(up_attest_write_down(host, tmp_path, stack)) == "tmpfs"


def test_existing_directory(host: LocalHost, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "kept").write_text("not ours")
    stack = Stack(name="under test", data=Volume(fs=Existing(path=str(theirs))), wal=Volume(fs=Tmpfs()))
    up_attest_write_down(host, tmp_path, stack)
    assert [entry.name for entry in theirs.iterdir()] == ["kept"]


def test_every_role_on_a_volume_of_its_own(host: LocalHost, tmp_path: Path) -> None:
    stack = Stack(
        name="under test",
        data=Volume(fs=Ext4()),
        wal=Volume(device=LoopDevice(count=2), fs=Btrfs(data="raid1", metadata="raid1", nodatacow=True)),
        tablespaces={"fast": Volume(fs=Xfs(noatime=True)), "memory": Volume(fs=Tmpfs(size="64M"))},
    )
    attested = up_attest_write_down(host, tmp_path, stack)
    roles = ("data", "wal", "tablespace.fast", "tablespace.memory")
    assert [filesystem(attested, role) for role in roles] == ["ext4", "btrfs", "xfs", "tmpfs"]


@pytest.mark.parametrize("rotational", [True, False])
def test_a_filesystem_sees_the_queue_as_the_stack_sets_it(host: LocalHost, tmp_path: Path, rotational: bool) -> None:
    plan = plan_stack(loop_stack(Btrfs(), queue={"rotational": rotational}), context_in(tmp_path))
    with standing(host, plan):
        mount = mount_at(host, plan.mounts["data"])
        assert mount is not None
        assert ("ssd" in mount.options) is not rotational


def test_ext4_has_nothing_left_to_initialise(host: LocalHost, tmp_path: Path) -> None:
    plan = plan_stack(loop_stack(Ext4()), context_in(tmp_path))
    with standing(host, plan) as built:
        groups = host.run(command("dumpe2fs", built.bindings["data.0"])).stdout
    assert len(re.findall(r"^Group \d+:", groups, re.MULTILINE)) == 4
    assert len(re.findall(r"^Group \d+:.*\bITABLE_ZEROED\b", groups, re.MULTILINE)) == 4
