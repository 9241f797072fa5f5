"""Builds a stack and kills itself (SIGKILL) at the given moment: `build_and_die.py FOLDER STEP before|after`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from standing import context_in

from pgstrata.host.local import LocalHost
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.devices import DiskDevice, LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.stack import Kernel, Stack, Volume
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import StackPlan, plan_stack
from pgstrata.stack.undo import Undo


def plan_everything(folder: Path) -> StackPlan:
    """Loop, disk, several filesystems, an existing directory and settings of the kernel."""
    stack = Stack(
        name="everything",
        data=Volume(device=DiskDevice(ids=(str(folder / "disk.img"),)), fs=Ext4(noatime=True)),
        wal=Volume(device=LoopDevice(count=2), fs=Btrfs(data="raid1", metadata="raid1")),
        tablespaces={"theirs": Volume(fs=Existing(path=str(folder / "theirs")))},
        kernel=Kernel.model_validate({"sysctl": {"vm.swappiness": 7}, "queue": {"read_ahead_kb": 64}}),
    )
    return plan_stack(stack, context_in(folder))


class DyingJournal(Journal):
    """Kills its process when the undos of step number `dies_at` are durable and nothing of it has been done."""

    dies_at = -1
    plan: StackPlan

    def register(self, *undos: Undo) -> None:
        super().register(*undos)
        if self.dies_at >= 0 and undos and undos == self.plan.steps[self.dies_at].undo:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    folder, at, when = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    host = LocalHost(state_directory=str(folder / "state"))
    plan = plan_everything(folder)

    journal = DyingJournal.create(host, "t1")
    assert isinstance(journal, DyingJournal)
    journal.plan = plan
    journal.dies_at = at if when == "before" else -1
    runner = StepRunner(host, journal, plan.context.erase)
    for number, step in enumerate(plan.steps):
        runner.run(step)
        if when == "after" and number == at:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
