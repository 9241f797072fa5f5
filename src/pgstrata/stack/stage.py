"""Volumes that a power cut left: brought up as the machine would do it, looked at, taken down with nothing undone.

A volume is a row of stages, from the bottom up: volume group or array, pool or filesystem, export. A stage is told the
devices that it may touch, and takes no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.stack.step import PlannedCommand, Step, planned
from pgstrata.stack.undo import Undo

HARMLESS = "nosuid,nodev,noexec"
"""Nothing that lies on what is mounted runs, gives rights or is a device: a state may come from somebody else."""


@dataclass(frozen=True)
class Stage:
    """One part of a volume that stands on devices which hold it already."""

    name: str
    up: tuple[PlannedCommand, ...]
    down: tuple[PlannedCommand, ...] = ()
    """Once it is unmounted: has the kernel let go of the devices, and forget what it knows by what is on them."""
    frees: tuple[PlannedCommand, ...] = ()
    """Commands if what is below stays busy after `down`: have the kernel let go of it once more, two seconds later."""
    mend: tuple[PlannedCommand, ...] = ()
    """Commands that are run if it does not come up, by a start of the machine or by whoever is called then."""
    examine: tuple[PlannedCommand, ...] = ()
    """Once it is unmounted: tells with another exit code than 0 that the filesystem is damaged, and repairs nothing."""
    write_back: tuple[PlannedCommand, ...] = ()
    """Commands that write what syncing the volume's filesystem may leave in memory."""
    binds: str | None = None
    """Names the value that the last command of `up` prints: the node that the stages above stand on."""
    mount_point: str | None = None
    """Place where `up` mounts something that is unmounted before `down`."""
    alone: bool = False
    """True if the kernel cannot have two copies of it up at once."""
    in_sight: bool = False
    """True if it must be mounted where every process sees it."""
    undo: tuple[Undo, ...] = ()
    """Takes back what outlives the process that brought it up, apart from mounts."""
    readies: tuple[Step, ...] = ()
    """Concern the whole host and come first, once."""


def mount_stage(
    mount: Step,
    mount_point: str,
    *,
    options: tuple[str, ...] = (),
    first: tuple[PlannedCommand, ...] = (),
    mend: tuple[PlannedCommand, ...] = (),
    examine: tuple[PlannedCommand, ...] = (),
    down: tuple[PlannedCommand, ...] = (),
    alone: bool = False,
) -> Stage:
    """Plan to run `first`, then the mount that is the last command of a step, with further options."""
    last = mount.commands[-1]
    command = planned(last.argv, [word for option in (*options, HARMLESS) for word in ("--options", option)])
    return Stage(mount.name, (*first, command), down, mend=mend, examine=examine, mount_point=mount_point, alone=alone)
