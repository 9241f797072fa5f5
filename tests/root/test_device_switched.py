"""A name that leads to another device between two looks: caught before anything is written to either."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from standing import context_in

from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.spec.layers.devices import DiskDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack import safety
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import plan_stack
from pgstrata.stack.safety import held_to_erase

SIZE_BYTES = 64 * 2**20
BY_ID = Path("/dev/disk/by-id")


class Switched:
    """A blank device and one with somebody's data, and an id that leads to either."""

    def __init__(self, blank: Path, theirs: Path, link: Path) -> None:
        self.blank, self.theirs, self.link = blank, theirs, link

    def lead_to(self, node: Path) -> None:
        other = self.link.with_suffix(".new")
        other.symlink_to(node)
        other.rename(self.link)


@contextmanager
def _loop(host: LocalHost, file: Path, content: bytes) -> Iterator[Path]:
    with file.open("wb") as handle:
        handle.write(content)
        handle.truncate(SIZE_BYTES)
    node = host.run(command("losetup", "--find", "--show", str(file))).stdout.strip()
    try:
        yield Path(node)
    finally:
        host.run(command("losetup", "--detach", node))


@pytest.fixture
def switched(host: LocalHost, tmp_path: Path) -> Iterator[Switched]:
    missing = [folder for folder in (BY_ID, BY_ID.parent) if not folder.exists()]
    BY_ID.mkdir(parents=True, exist_ok=True)
    link = BY_ID / f"pgstrata-test-{uuid.uuid4().hex}"
    with _loop(host, tmp_path / "blank.img", b"") as blank, _loop(host, tmp_path / "theirs.img", b"precious") as theirs:
        link.symlink_to(blank)
        try:
            yield Switched(blank, theirs, link)
        finally:
            link.unlink()
    for folder in missing:
        if not any(folder.iterdir()):
            folder.rmdir()


def _digest(file: Path) -> str:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _stack(switched: Switched) -> Stack:
    return Stack(name="under test", data=Volume(device=DiskDevice(ids=(str(switched.link),)), fs=Ext4()))


@pytest.mark.parametrize("at", ["wipe", "make"])
@pytest.mark.parametrize("erase", [False, True])
def test_an_id_that_is_switched_while_building_is_caught(
    host: LocalHost, tmp_path: Path, switched: Switched, at: str, erase: bool
) -> None:
    context = context_in(tmp_path, erase=(str(switched.link),) if erase else ())
    plan = plan_stack(_stack(switched), context)
    before = _digest(switched.theirs)
    runner = StepRunner(host, Journal.create(host, "t1"), plan.context.erase)

    def build_and_switch() -> None:
        for step in plan.steps:
            if step.name.startswith(at):
                switched.lead_to(switched.theirs)
            runner.run(step)

    try:
        with pytest.raises(PreflightError, match=r"not the device any more|to the kernel that name is"):
            build_and_switch()
    finally:
        runner.journal.undo_all()
    assert _digest(switched.theirs) == before


def test_an_id_that_is_switched_between_the_look_and_the_wipe_is_caught(
    host: LocalHost, switched: Switched, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = safety.carried

    def look_and_switch(*arguments: Any) -> object:
        carried = look(*arguments)
        switched.lead_to(switched.theirs)
        return carried

    monkeypatch.setattr(safety, "carried", look_and_switch)
    with (
        pytest.raises(PreflightError, match="not the device any more"),
        held_to_erase(host, str(switched.link), str(switched.blank), ()),
    ):
        pytest.fail("held all the same")


def test_a_node_that_was_found_for_another_device_is_refused(host: LocalHost, switched: Switched) -> None:
    """Bound when the id led elsewhere, which is what the commands would write to."""
    with (
        pytest.raises(PreflightError),
        held_to_erase(host, str(switched.link), str(switched.theirs), (str(switched.link),)),
    ):
        pytest.fail("held all the same")
    assert switched.theirs.read_bytes().startswith(b"precious")
