"""Devices that two programs look at: neither keeps the other from its work."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from standing import context_in, loop_stack

from pgstrata.host.local import LocalHost
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.stack.build import StepRunner
from pgstrata.stack.disks import list_disks
from pgstrata.stack.journal import Journal
from pgstrata.stack.mounts import mount_at
from pgstrata.stack.plan import plan_stack

HELD_S = 0.7


@pytest.mark.parametrize("at", ["make", "mount"])
@pytest.mark.parametrize("fs", [Ext4(), Xfs(), Btrfs()], ids=lambda fs: fs.kind)
def test_a_step_waits_for_a_device_that_is_open_elsewhere(host: LocalHost, tmp_path: Path, fs: object, at: str) -> None:
    plan = plan_stack(loop_stack(fs), context_in(tmp_path))
    runner = StepRunner(host, Journal.create(host, "t1"), plan.context.erase)
    kept_off = 0
    try:
        for step in plan.steps:
            if step.name.startswith(f"{at} "):
                held = os.open(runner.bindings["data.0"], os.O_RDONLY | os.O_EXCL)
                threading.Timer(HELD_S, os.close, [held]).start()
                kept_off += 1
            runner.run(step)
        assert mount_at(host, f"{tmp_path}/pgstrata-t1/mount/data") is not None
        assert kept_off == 1
    finally:
        runner.journal.undo_all()


def test_a_look_keeps_nobody_from_mounting(host: LocalHost, blank_disk: tuple[str, str]) -> None:
    _, node = blank_disk
    looked = host.open_device(node)
    try:
        assert looked.uses == looked.passing == ()
        os.close(os.open(node, os.O_RDONLY | os.O_EXCL))
    finally:
        host.close_device(looked.handle)


def test_a_disk_with_unreadable_blocks_is_listed_as_such(host: LocalHost, blank_disk: tuple[str, str]) -> None:
    file, node = blank_disk
    os.truncate(file, 16 * 2**20)
    (found,) = (one for one in list_disks(host) if one.node == node)
    assert (found.state, found.what) == (
        "not known",
        f"device {found.id} ({node}) on local cannot be read: Input/output error",
    )
