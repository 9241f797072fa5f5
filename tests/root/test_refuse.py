"""Devices that may hold data, or are in use, are refused and not touched."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from standing import context_in
from superblocks import plant_dos, plant_md, plant_zfs

from apart import apart
from built import standing
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import CommandFailed
from pgstrata.spec.layers.devices import DiskDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.build import StepRunner, build
from pgstrata.stack.journal import Journal, clean
from pgstrata.stack.plan import plan_stack
from pgstrata.stack.safety import inspect_device, list_signatures, refuse_or_allow
from pgstrata.stack.step import planned

SIZE_BYTES = 128 * 2**20
XFS_BYTES = 320 * 2**20
"""mkfs.xfs wants 300 MiB."""


def _run(*argv: object) -> str:
    words = [str(word) for word in argv]
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=120, env=environment).stdout


@pytest.fixture
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    with path.open("wb") as handle:
        handle.truncate(XFS_BYTES if "[xfs]" in request.node.name else SIZE_BYTES)
    return path


@pytest.fixture
def device(file: Path) -> Iterator[Path]:
    """A blank device, which stands for a disk; its stable id is its backing file."""
    node = _run("losetup", "--find", "--show", file).strip()
    yield Path(node)
    _run("losetup", "--detach", node)


def _plant_luks(device: Path) -> None:
    cheap = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
    # any file serves as the key
    _run("cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", *cheap, device, Path(__file__))


PLANTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "ext4": (lambda device: _run("mkfs.ext4", "-q", device), "ext4"),
    "xfs": (lambda device: _run("mkfs.xfs", "-q", device), "xfs"),
    "btrfs": (lambda device: _run("mkfs.btrfs", "-q", device), "btrfs"),
    "swap": (lambda device: _run("mkswap", device), "swap"),
    "LUKS": (_plant_luks, "crypto_LUKS"),
    "LVM": (lambda device: _run("pvcreate", "--yes", device), "LVM2_member"),
    "md": (plant_md, "linux_raid_member"),
    "zfs": (plant_zfs, "zfs_member"),
    "GPT": (lambda device: _run("sgdisk", "--new=1:0:0", device), "gpt"),
    "DOS partitions": (plant_dos, "dos"),
}


def _digest(device: Path) -> str:
    with device.open("rb") as handle:
        os.fsync(handle.fileno())
        return hashlib.file_digest(handle, "sha256").hexdigest()


@pytest.mark.parametrize("kind", PLANTED)
def test_a_signature_is_refused_and_the_device_unchanged(
    host: LocalHost, tmp_path: Path, file: Path, device: Path, kind: str
) -> None:
    plant, shown = PLANTED[kind]
    plant(device)
    before = _digest(device)
    with pytest.raises(PreflightError, match=shown) as refusal:
        refuse_or_allow(host, str(file), ())
    assert "erase" in refusal.value.hint
    plan = plan_stack(_disk_stack(file), context_in(tmp_path))
    journal = Journal.create(host, "t1")
    with pytest.raises(PreflightError, match=shown):
        build(host, plan, journal)
    assert _digest(device) == before


@pytest.mark.parametrize("kind", PLANTED)
def test_a_signature_that_may_be_erased_is_wiped_and_the_device_left_blank(
    host: LocalHost, tmp_path: Path, file: Path, device: Path, kind: str
) -> None:
    PLANTED[kind][0](device)
    plan = plan_stack(_disk_stack(file), context_in(tmp_path, erase=(str(file),)))
    with standing(host, plan):
        assert [s.type for s in list_signatures(host, str(device))] == ["ext4"]
    assert list_signatures(host, str(device)) == ()


def test_erase_must_name_exactly_that_device(host: LocalHost, file: Path, device: Path) -> None:
    _run("mkfs.ext4", "-q", device)
    with pytest.raises(PreflightError, match="ext4"):
        refuse_or_allow(host, str(file), (str(device), f"{file}x", str(file.parent)))


def test_a_blank_device_is_allowed(host: LocalHost, file: Path, device: Path) -> None:
    state = refuse_or_allow(host, str(file), ())
    assert (state.node, state.size_bytes, state.signatures, state.in_use) == (str(device), SIZE_BYTES, (), ())


def test_a_mounted_device_is_refused_even_with_erase(host: LocalHost, tmp_path: Path, file: Path, device: Path) -> None:
    _run("mkfs.ext4", "-q", device)
    target = tmp_path / "mnt"
    target.mkdir()
    _run("mount", device, target)
    try:
        with pytest.raises(PreflightError, match=f"is in use: it is mounted at {target}"):
            refuse_or_allow(host, str(file), (str(file),))
    finally:
        _run("umount", target)


def test_a_mount_in_another_namespace_is_seen(host: LocalHost, tmp_path: Path, file: Path, device: Path) -> None:
    _run("mkfs.ext4", "-q", device)
    target = tmp_path / "mnt"
    target.mkdir()
    script = f"mount {device} {target} && echo ready && read answer"
    with subprocess.Popen(apart("sh", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        assert str(target) not in Path("/proc/self/mountinfo").read_text()
        try:
            with pytest.raises(PreflightError, match="is mounted at"):
                refuse_or_allow(host, str(file), (str(file),))
        finally:
            other.stdin.close()
            other.wait(timeout=30)


def test_a_device_opened_exclusively_is_refused_even_with_erase(host: LocalHost, file: Path, device: Path) -> None:
    descriptor = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(PreflightError, match="opened exclusively"):
            refuse_or_allow(host, str(file), (str(file),))
    finally:
        os.close(descriptor)


def test_swap_in_use_is_refused_even_with_erase(host: LocalHost, file: Path, device: Path) -> None:
    _run("mkswap", device)
    _run("swapon", device)
    try:
        with pytest.raises(PreflightError, match="is swap in use"):
            refuse_or_allow(host, str(file), (str(file),))
    finally:
        _run("swapoff", device)


def test_a_repeated_size_and_number_must_agree(host: LocalHost, device: Path) -> None:
    status = host.status(str(device))
    assert status is not None
    major, minor = status.device
    good = f"{device}+{SIZE_BYTES}+{major}:{minor}"
    assert inspect_device(host, good).node == str(device)
    for wrong in (f"{device}+{SIZE_BYTES + 512}+{major}:{minor}", f"{device}+{SIZE_BYTES}+{major}:{minor + 1}"):
        with pytest.raises(PreflightError, match="another device now"):
            inspect_device(host, wrong)


def test_a_device_is_one_run_s_alone(host: LocalHost, tmp_path: Path, file: Path, device: Path) -> None:
    other = LocalHost(state_directory=str(tmp_path / "state"))
    with standing(host, plan_stack(_disk_stack(file), context_in(tmp_path))):
        journal = Journal.create(other, "t2")
        with pytest.raises(PreflightError, match="another run of pgstrata: trial t1"):
            journal.lock_device(str(device))
        journal.undo_all()


def test_a_foreign_filesystem_is_not_wiped_by_an_undo(
    host: LocalHost, tmp_path: Path, file: Path, device: Path
) -> None:
    journal = Journal.create(host, "t1")
    plan = plan_stack(_disk_stack(file), context_in(tmp_path))
    journal.register(*(undo for step in plan.steps for undo in step.undo))
    _run("mkfs.ext4", "-q", "-L", "precious", device)
    undone = journal.undo_all()
    assert [u.error for u in undone if u.error and "precious" in u.error] != []
    assert [s.label for s in list_signatures(host, str(device))] == ["precious"]
    _run("wipefs", "--all", device)
    assert not any(u.error for u in journal.undo_all())


@pytest.mark.parametrize("label", ["theirs", "pgstrata-old"])
def test_killed_before_wiping_the_device_is_left_as_it_was(
    host: LocalHost, tmp_path: Path, file: Path, device: Path, label: str
) -> None:
    """The journal says that the device is to be wiped, with what it carried then; wipefs never ran."""
    _run("mkfs.ext4", "-q", "-L", label, device)
    before = _digest(device)
    state = inspect_device(host, str(file))
    plan = plan_stack(_disk_stack(file), context_in(tmp_path, erase=(str(file),)))
    (wipe,) = [step for step in plan.steps if step.erases]
    never = replace(wipe, commands=(planned("false"),))
    journal = Journal.create(host, "t1")
    with pytest.raises(CommandFailed):
        StepRunner(host, journal, plan.context.erase, {"data.0": str(device)}).run(never)
    host.unlock("trial-t1")
    (line,) = clean(host).lines
    assert f"left {file} alone: it carries ext4 {label!r} as before" in line
    assert clean(host).lines == ()
    assert _digest(device) == before
    assert state == inspect_device(host, str(file))


def _disk_stack(file: Path) -> Stack:
    return Stack(name="under test", data=Volume(device=DiskDevice(ids=(str(file),)), fs=Ext4()))
