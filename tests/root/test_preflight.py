"""What keeps a campaign from starting, on this machine."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.devices import DiskDevice, LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.media import MediaDevice
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.stack import Kernel, Stack, Volume
from pgstrata.spec.workload import Workload
from pgstrata.stack.preflight import check_campaign

GIB = 2**30


def _campaign(*stacks: Stack, scale: int = 1, **changes: object) -> Campaign:
    return Campaign(name="x", stacks=stacks, workload=Workload(scale=(scale,)), **changes)


def _stack(name: str, volume: Volume, **kernel: object) -> Stack:
    return Stack(name=name, data=volume, kernel=Kernel.model_validate(kernel))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(4 * GIB)
    attach = ["losetup", "--find", "--show", str(path)]
    node = subprocess.run(attach, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    yield str(path)
    subprocess.run(["losetup", "--detach", node], check=True, timeout=60)


def test_what_can_be_built_may_start(host: LocalHost, tmp_path: Path) -> None:
    scratch = tmp_path / "not" / "made" / "yet"
    campaign = _campaign(_stack("a", Volume(fs=Ext4())), _stack("b", Volume(fs=Tmpfs())))
    found = check_campaign(host, campaign, scratch=str(scratch))
    assert found.unsupported == ()
    assert found.loop_size_bytes >= 2 * GIB
    assert 0 < found.scratch_bytes < found.free_bytes
    assert not scratch.exists()


def test_too_little_space_is_refused_before_starting(host: LocalHost, tmp_path: Path) -> None:
    campaign = _campaign(_stack("a", Volume(fs=Ext4())), scale=1_000_000)
    with pytest.raises(PreflightError, match=r"too little space in .* are needed"):
        check_campaign(host, campaign, scratch=str(tmp_path))


def test_a_loop_size_that_cannot_hold_the_data_is_refused(host: LocalHost, tmp_path: Path) -> None:
    small = Volume(device=LoopDevice(size=GIB), fs=Xfs())
    with pytest.raises(PreflightError, match=r"loop device of stack a is too small: it has 1\.0 GiB"):
        check_campaign(host, _campaign(_stack("a", small)), scratch=str(tmp_path))


def test_too_little_memory_for_tmpfs_is_refused(host: LocalHost, tmp_path: Path) -> None:
    for size, match in ((None, "tmpfs of stack a is too small"), (2**50, "too little memory")):
        campaign = _campaign(_stack("a", Volume(fs=Tmpfs(size=size))), scale=100_000)
        with pytest.raises(PreflightError, match=match):
            check_campaign(host, campaign, scratch=str(tmp_path))


def test_too_little_memory_for_modelled_disks_is_refused(host: LocalHost, tmp_path: Path) -> None:
    half = Volume(device=MediaDevice(model="none", size=2**44), fs=Ext4())
    with pytest.raises(PreflightError, match=r"too little memory .* for modelled disks of stack a"):
        check_campaign(host, _campaign(_stack("a", half), scale=100_000), scratch=str(tmp_path))
    check_campaign(host, _campaign(_stack("a", half)), scratch=str(tmp_path))


def test_a_disk_that_carries_something_is_refused(host: LocalHost, tmp_path: Path, disk: str) -> None:
    campaign = _campaign(_stack("a", Volume(device=DiskDevice(ids=(disk,)), fs=Ext4())))
    check_campaign(host, campaign, scratch=str(tmp_path))
    subprocess.run(["mkfs.ext4", "-q", disk], check=True, timeout=60)
    with pytest.raises(PreflightError, match="carries ext4") as refused:
        check_campaign(host, campaign, scratch=str(tmp_path))
    assert refused.value.hint.startswith("if all of it may be destroyed, add to the campaign: erase:")
    assert f"\ndisks of {host.name} (in a stack: disk(ID)/ext4" in refused.value.hint
    check_campaign(host, campaign.model_copy(update={"erase": (disk,)}), scratch=str(tmp_path))


def test_a_disk_that_is_too_small_is_refused(host: LocalHost, tmp_path: Path, disk: str) -> None:
    campaign = _campaign(_stack("a", Volume(device=DiskDevice(ids=(disk,)), fs=Ext4())), scale=500)
    with pytest.raises(PreflightError, match=r"is too small: it has 4\.0 GiB"):
        check_campaign(host, campaign, scratch=str(tmp_path))


@pytest.mark.usefixtures("disk")
def test_a_device_that_is_not_there_is_refused_with_those_that_are(host: LocalHost, tmp_path: Path) -> None:
    campaign = _campaign(_stack("a", Volume(device=DiskDevice(ids=("/dev/disk/by-id/none",)), fs=Ext4())))
    with pytest.raises(PreflightError, match="/dev/disk/by-id/none leads to no block device") as refused:
        check_campaign(host, campaign, scratch=str(tmp_path))
    assert re.search(rf"\ndisks of {host.name} \(in a stack: disk\(ID\)/ext4.*:\n  \S+", refused.value.hint)


def test_a_directory_must_be_there_and_reachable(host: LocalHost, tmp_path: Path) -> None:
    campaign = _campaign(_stack("a", Volume(fs=Existing(path=str(tmp_path / "theirs")))))
    with pytest.raises(PreflightError, match="is no directory"):
        check_campaign(host, campaign, scratch=str(tmp_path))
    (tmp_path / "theirs").mkdir(mode=0o700)
    check_campaign(host, campaign, scratch=str(tmp_path))
    with pytest.raises(PreflightError, match="OS user nobody cannot reach") as refusal:
        check_campaign(host, campaign, scratch=str(tmp_path), server_user="nobody")
    assert "chmod" in refusal.value.hint


def test_strict_overcommit_that_would_leave_no_room_is_refused(host: LocalHost, tmp_path: Path) -> None:
    strict = {"vm.overcommit_memory": 2, "vm.overcommit_kbytes": 4096}
    with pytest.raises(PreflightError, match=r"vm\.overcommit_memory=2 of stack a is refused"):
        check_campaign(host, _campaign(_stack("a", Volume(fs=Ext4()), sysctl=strict)), scratch=str(tmp_path))
    roomy = {"vm.overcommit_memory": 2, "vm.overcommit_ratio": 100}
    check_campaign(host, _campaign(_stack("a", Volume(fs=Ext4()), sysctl=roomy)), scratch=str(tmp_path))


def test_a_stack_that_cannot_be_built_here_is_left_out_with_all_reasons(host: LocalHost, tmp_path: Path) -> None:
    odd = {"vm.no_such_setting": 1, "kernel.neither": 2}
    campaign = _campaign(_stack("odd", Volume(fs=Ext4()), sysctl=odd), _stack("good", Volume(fs=Xfs())))
    (left_out,) = check_campaign(host, campaign, scratch=str(tmp_path)).unsupported
    assert left_out.stack == "odd"
    assert "vm.no_such_setting" in left_out.reason
    assert "kernel.neither" in left_out.reason
    assert "remove" in left_out.hint


def test_blocks_above_the_page_size_need_a_kernel_that_has_them(host: LocalHost, tmp_path: Path) -> None:
    release = tuple(int(number) for number in os.uname().release.split(".")[:2])
    if os.sysconf("SC_PAGE_SIZE") >= 65536:
        pytest.skip("pages are as large as the largest block")
    stacks = (_stack("ext4", Volume(fs=Ext4(block_size=65536))), _stack("xfs", Volume(fs=Xfs(block_size=65536))))
    found = {u.stack: u.reason for u in check_campaign(host, _campaign(*stacks), scratch=str(tmp_path)).unsupported}
    assert ("xfs" in found) is (release < (6, 12))
    assert ("ext4" in found) is (release < (6, 19))
    assert all("larger than a page" in reason for reason in found.values())
