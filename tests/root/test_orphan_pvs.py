"""A PV that belongs to no group is removed only when the journal has its UUID."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.spec.layers.devices import DiskDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.block.lvm import RemoveVg
from pgstrata.stack.journal import Journal, clean
from pgstrata.stack.plan import PlanContext, plan_stack
from pgstrata.stack.safety import inspect_device, list_signatures


@pytest.mark.parametrize("ours", [True, False])
def test_killed_before_its_group_was_made(
    host: LocalHost, tmp_path: Path, blank_disk: tuple[str, str], ours: bool
) -> None:
    file, node = blank_disk
    volume = Volume(device=DiskDevice(ids=(file,)), layers=(Lvm(),), fs=Ext4())
    plan = plan_stack(Stack(name="x", data=volume), PlanContext("t1", str(tmp_path), 2**26))
    (step,) = [s for s in plan.steps if any(isinstance(u, RemoveVg) for u in s.undo)]
    make = step.commands[0].resolve({"data.0": node})
    assert make.argv[0] == "pvcreate"
    Journal.create(host, "t1").register(*step.undo)
    host.unlock("trial-t1")
    host.run(make if ours else command("pvcreate", "--yes", "--quiet", node))
    cleaned = clean(host)
    assert not cleaned.failed, cleaned.lines
    if ours:
        state = inspect_device(host, file)
        assert (state.signatures, state.content_at) == ((), None)
    else:
        assert cleaned.lines == (f"t1: left {node} alone: it has become another PV",)
        assert [s.type for s in list_signatures(host, node)] == ["LVM2_member"]
