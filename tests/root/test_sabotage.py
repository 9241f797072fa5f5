"""What is changed behind pgstrata's back after building is found by attestation, and named."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from standing import context_in, loop_stack

from built import differences, standing
from leavings import kernel_settings
from pgstrata.host.local import LocalHost
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.build import Built, attest
from pgstrata.stack.plan import StackPlan, plan_stack


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=60)


@contextmanager
def _sound(host: LocalHost, folder: Path, stack: Stack) -> Iterator[tuple[StackPlan, Built]]:
    plan = plan_stack(stack, context_in(folder))
    with standing(host, plan) as built:
        assert differences(attest(host, plan, built)) == {}
        yield plan, built


_REMOUNTS = {
    "ext4 loses noatime": (Ext4(noatime=True), "relatime", {"atime": ("noatime", "relatime")}),
    "ext4 gains noatime": (Ext4(), "noatime", {"atime": ("relatime", "noatime")}),
    "ext4 gains nodiratime": (Ext4(), "nodiratime", {"nodiratime": ("off", "on")}),
    "ext4 gets its barrier back": (Ext4(barrier=False), "barrier=1", {"barrier": ("off", "on")}),
    "ext4 loses its barrier": (Ext4(), "barrier=0", {"barrier": ("on", "off")}),
    "ext4 commits at another interval": (Ext4(commit_s=30), "commit=5", {"commit": ("30", "5")}),
    "ext4 gains discard": (Ext4(), "discard", {"discard": ("off", "on")}),
    "ext4 turns read-only": (Ext4(), "ro", {"access": ("rw", "ro")}),
    "xfs loses noatime": (Xfs(noatime=True), "relatime", {"atime": ("noatime", "relatime")}),
    "btrfs loses noatime": (Btrfs(noatime=True), "relatime", {"atime": ("noatime", "relatime")}),
    "btrfs loses compression": (Btrfs(compress="zstd:1"), "compress=no", {"compress": ("zstd:1", "no")}),
    "btrfs compresses otherwise": (Btrfs(compress="zstd"), "compress=lzo", {"compress": ("zstd:3", "lzo")}),
    "btrfs gains autodefrag": (Btrfs(), "autodefrag", {"autodefrag": ("off", "on")}),
}


@pytest.mark.parametrize(("fs", "option", "expected"), _REMOUNTS.values(), ids=_REMOUNTS.keys())
def test_a_changed_mount_option(
    host: LocalHost, tmp_path: Path, fs: object, option: str, expected: dict[str, tuple[str, str]]
) -> None:
    with _sound(host, tmp_path, loop_stack(fs)) as (plan, built):
        # without the options in effect merged in, which would keep noatime
        _run("mount", "--options-mode", "ignore", "-o", f"remount,{option}", plan.mounts["data"])
        found = differences(attest(host, plan, built))
    assert found == {f"data mount {what}": values for what, values in expected.items()}


def test_an_unmounted_filesystem(host: LocalHost, tmp_path: Path) -> None:
    with _sound(host, tmp_path, Stack(name="x", data=Volume(fs=Tmpfs()))) as (plan, built):
        _run("umount", plan.mounts["data"])
        assert differences(attest(host, plan, built)) == {"data mount fstype": ("tmpfs", "not mounted")}


def test_a_resized_tmpfs(host: LocalHost, tmp_path: Path) -> None:
    with _sound(host, tmp_path, Stack(name="x", data=Volume(fs=Tmpfs(size="64M")))) as (plan, built):
        _run("mount", "-o", "remount,size=32M", plan.mounts["data"])
        assert differences(attest(host, plan, built)) == {"data mount size": ("65536k", "32768k")}


@kernel_settings
def test_a_sysctl_that_was_reset(host: LocalHost, tmp_path: Path) -> None:
    stack = loop_stack(Ext4(), sysctl={"vm.swappiness": 7, "vm.dirty_background_bytes": 67108864})
    with _sound(host, tmp_path, stack) as (plan, built):
        Path("/proc/sys/vm/swappiness").write_text("60")
        Path("/proc/sys/vm/dirty_background_ratio").write_text("10")
        assert differences(attest(host, plan, built)) == {
            "sysctl vm.swappiness": ("7", "60"),
            "sysctl vm.dirty_background_bytes": ("67108864", "0"),
        }


def test_a_queue_setting_that_was_changed(host: LocalHost, tmp_path: Path) -> None:
    stack = loop_stack(Ext4(), queue={"read_ahead_kb": 64, "rotational": True})
    with _sound(host, tmp_path, stack) as (plan, built):
        queue = Path("/sys/class/block") / Path(built.bindings["data.0"]).name / "queue"
        (queue / "read_ahead_kb").write_text("128")
        (queue / "rotational").write_text("0")
        assert differences(attest(host, plan, built)) == {
            "queue data.0 read_ahead_kb": ("64", "128"),
            "queue data.0 rotational": ("1", "0"),
        }


@kernel_settings
def test_transparent_huge_pages_that_were_changed(host: LocalHost, tmp_path: Path) -> None:
    with _sound(host, tmp_path, loop_stack(Ext4(), transparent_hugepage="never")) as (plan, built):
        Path("/sys/kernel/mm/transparent_hugepage/enabled").write_text("always")
        assert differences(attest(host, plan, built)) == {"transparent_hugepage": ("never", "always")}


def test_direct_io_turned_off(host: LocalHost, tmp_path: Path) -> None:
    with _sound(host, tmp_path, loop_stack(Ext4())) as (plan, built):
        _run("losetup", "--direct-io=off", built.bindings["data.0"])
        assert differences(attest(host, plan, built)) == {"loop data.0 direct_io": ("on", "off")}


def test_a_label_that_promises_another_raid_level(host: LocalHost, tmp_path: Path) -> None:
    with _sound(host, tmp_path, loop_stack(Btrfs(data="raid1", metadata="raid1"), count=2)) as (plan, built):
        _run("btrfs", "balance", "start", "--force", "-dconvert=single", "-mconvert=single", plan.mounts["data"])
        assert differences(attest(host, plan, built)) == {
            "data btrfs data profile": ("raid1", "single"),
            "data btrfs metadata profile": ("raid1", "single"),
        }


def test_an_ext4_made_otherwise(host: LocalHost, tmp_path: Path) -> None:
    with _sound(host, tmp_path, loop_stack(Ext4(stride_blocks=16, stripe_width_blocks=32))) as (plan, built):
        _run("tune2fs", "-E", "stride=8", built.bindings["data.0"])
        assert differences(attest(host, plan, built)) == {"data ext4 stride": ("16", "8")}
