"""Whatever moment a run is killed at, `clean` takes everything back; a running one is left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from build_and_die import plan_everything
from standing import context_in, loop_stack

from built import TESTS_IMPORTABLE, standing
from leavings import kernel_settings
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import CommandFailed, command
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.build import build
from pgstrata.stack.journal import Cleaned, Journal, clean
from pgstrata.stack.plan import plan_stack
from pgstrata.stack.safety import list_signatures
from pgstrata.stack.undo import RemovePath, StopProcesses, Unmount

STEPS = [
    f"{when} {step.name}|{number}|{when}"
    for number, step in enumerate(plan_everything(Path("/nowhere")).steps)
    for when in (["before", "after"] if step.undo else ["after"])
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    """A blank loop device that stands for a disk, and a directory of somebody else's."""
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(256 * 2**20)
    (tmp_path / "theirs").mkdir()
    attach = ["losetup", "--find", "--show", str(tmp_path / "disk.img")]
    node = subprocess.run(attach, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    yield node
    subprocess.run(["losetup", "--detach", node], check=True, timeout=60)


@pytest.mark.parametrize("moment", STEPS, ids=lambda moment: moment.split("|")[0])
@kernel_settings
def test_killed_while_building(host: LocalHost, tmp_path: Path, disk: str, moment: str) -> None:
    _, number, when = moment.split("|")
    program = str(Path(__file__).with_name("build_and_die.py"))
    read_ahead = Path("/sys/class/block") / Path(disk).name / "queue/read_ahead_kb"
    before = read_ahead.read_text()
    argv = [sys.executable, program, str(tmp_path), number, when]
    ended = subprocess.run(argv, timeout=120, capture_output=True, text=True, env=TESTS_IMPORTABLE)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    cleaned = clean(host)
    assert cleaned.lines != ()
    assert not cleaned.failed, cleaned.lines
    assert clean(host) == Cleaned()
    assert not (tmp_path / "pgstrata-t1").exists()
    assert list((tmp_path / "theirs").iterdir()) == []
    assert list_signatures(host, disk) == ()
    assert read_ahead.read_text() == before


def test_a_running_trial_is_left_alone(host: LocalHost, tmp_path: Path) -> None:
    other = LocalHost(state_directory=str(tmp_path / "state"))
    plan = plan_stack(loop_stack(Ext4()), context_in(tmp_path))
    with standing(host, plan):
        assert clean(other) == Cleaned(("t1: left alone, it is running",))
        assert Path(plan.data_directory).exists()
        with pytest.raises(PreflightError, match="is being run already"):
            Journal.create(other, "t1")


def test_a_trial_left_half_done_is_not_begun_again(host: LocalHost, tmp_path: Path) -> None:
    journal = Journal.create(host, "t1")
    host.unlock("trial-t1")  # as if its owner had died
    with pytest.raises(PreflightError, match="left half-done") as refusal:
        Journal.create(host, "t1")
    assert "pgstrata clean" in refusal.value.hint
    assert clean(host) == Cleaned(("t1: nothing was left",))
    assert host.status(journal.path) is None


def test_a_failing_step_undoes_the_others(host: LocalHost, tmp_path: Path) -> None:
    plan = plan_stack(loop_stack(Ext4(block_size=1024, bigalloc_cluster=1024 * 2**20)), context_in(tmp_path))
    journal = Journal.create(host, "t1")
    with pytest.raises(CommandFailed, match=r"mkfs\.ext4"):
        build(host, plan, journal)
    assert journal.undo_all() == ()
    assert clean(host) == Cleaned()


def test_the_first_error_stays_and_errors_of_undoing_are_noted(host: LocalHost, tmp_path: Path) -> None:
    plan = plan_stack(loop_stack(Ext4(bigalloc_cluster=1024 * 2**20)), context_in(tmp_path))
    journal = Journal.create(host, "t1")
    held = tmp_path / "pgstrata-held"
    (held / "mnt").mkdir(parents=True)
    host.run(command("mount", "--bind", str(tmp_path), str(held / "mnt")))
    journal.register(RemovePath(path=str(held)))
    try:
        with pytest.raises(CommandFailed, match=r"mkfs\.ext4") as failure:
            build(host, plan, journal)
    finally:
        host.run(command("umount", str(held / "mnt")))
    assert "mounted" in "".join(failure.value.__notes__)


def test_processes_end_before_their_filesystem_is_unmounted(host: LocalHost, tmp_path: Path) -> None:
    plan = plan_stack(loop_stack(Ext4()), context_in(tmp_path))
    journal = Journal.create(host, "t1")
    journal.register(StopProcesses(marker="t1"))
    build(host, plan, journal)
    busy = subprocess.Popen(
        ["sleep", "600"], cwd=plan.data_directory, env={"PATH": "/usr/bin:/bin", "PGSTRATA_TRIAL": "t1"}
    )
    try:
        undone = journal.undo_all()
        assert [u.error for u in undone if u.error] == []
        assert isinstance(undone[0].undo, StopProcesses)
        assert "ended 1 processes" in undone[0].line
        assert busy.wait(timeout=10) != 0
    finally:
        busy.kill()
        busy.wait(timeout=10)


def test_a_busy_filesystem_is_reported_and_can_be_cleaned_later(
    host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgstrata.stack.undoing.BUSY_ATTEMPTS", 2)
    plan = plan_stack(Stack(name="x", data=Volume(fs=Tmpfs())), context_in(tmp_path))
    journal = Journal.create(host, "t1")
    build(host, plan, journal)
    busy = subprocess.Popen(["sleep", "600"], cwd=plan.data_directory)
    try:
        undone = journal.undo_all()
        failed = [u for u in undone if u.error]
        assert any(isinstance(u.undo, Unmount) and "busy" in u.error for u in failed)
    finally:
        busy.kill()
        busy.wait(timeout=10)
    assert any("unmounted" in line for line in clean(host).lines)
    assert clean(host) == Cleaned()


def test_nothing_mounted_is_ever_removed(host: LocalHost, tmp_path: Path) -> None:
    folder = tmp_path / "pgstrata-t1"
    (folder / "mnt").mkdir(parents=True)
    host.run(command("mount", "--bind", str(tmp_path), str(folder / "mnt")))
    (tmp_path / "precious").write_text("kept")
    try:
        journal = Journal.create(host, "t1")
        journal.register(RemovePath(path=str(folder)))
        assert "mounted" in journal.undo_all()[0].error
    finally:
        host.run(command("umount", str(folder / "mnt")))
    assert (tmp_path / "precious").read_text() == "kept"
    clean(host)
    assert not folder.exists()
