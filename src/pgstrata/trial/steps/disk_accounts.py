"""Activity of modelled disks in a measured run: their counters right before and after it. Also switches their
timing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from pgstrata.errors import TrialError
from pgstrata.record.schema import DiskUse
from pgstrata.spec.workload import Cell
from pgstrata.stack.disk_counters import DiskCounts, TimingIs
from pgstrata.stack.step import PlannedCommand, Step
from pgstrata.trial.context import TrialContext, TrialSetup

_KEPT = ("model", "parameters", "stretch", "timing", "late_percent_counts")
"""Fields that are not growing numbers."""


def plan_accounts(setup: TrialSetup) -> tuple[PlannedCommand, ...]:
    """Queries every set of disks with counters; empty if there are none."""
    return tuple(disks.ask for disks in setup.plan.counted)


def read_accounts(context: TrialContext) -> dict[str, DiskCounts]:
    """Runs what `plan_accounts` planned; the accounts by the names of the disks."""
    found: dict[str, DiskCounts] = {}
    for disks in context.plan.counted:
        found |= zip(disks.disks, disks.parse(context.executor.run_next().stdout), strict=True)
    return found


def timing_steps(setup: TrialSetup, cell: Cell, *, on: bool) -> tuple[Step, ...]:
    """From here on, disks that are timed only in runs take the time of their medium, or none; empty without such
    disks."""
    return tuple(step for host in setup.plan.hosts for step in _timing_steps(setup, cell, host, on=on))


def _timing_steps(setup: TrialSetup, cell: Cell, host: str, *, on: bool) -> tuple[Step, ...]:
    own = (disks for disks in setup.plan.counted if disks.ask.host == host)
    switched = [(disks, disks.switch) for disks in own if disks.switch is not None]
    if not switched:
        return ()
    commands = tuple(switch.on if on else switch.off for _, switch in switched)
    looks = tuple(TimingIs(disks, switch.names, on) for disks, switch in switched)
    undo = tuple(switch.undo for _, switch in switched) if on else ()
    switch = Step(f"{cell.id}: timing of modelled disks {'on' if on else 'off'}", commands, undo, awaits=looks)
    return (switch.on(host),)


def refuse_untimed(used: Iterable[DiskUse]) -> None:
    """Raises an error for a run part of which took no time of the medium: it is no run on that medium."""
    for disk in used:
        if disk.untimed:
            raise TrialError(
                f"modelled disk {disk.disk} answered {disk.untimed} requests of the run without its timing"
            )


def disks_used(before: Mapping[str, DiskCounts], after: Mapping[str, DiskCounts]) -> tuple[DiskUse, ...]:
    """Activity of each disk in between. Pure."""
    return tuple(_used(disk, before[disk], counts) for disk, counts in after.items())


def summed_use(before: Sequence[DiskUse], further: Sequence[DiskUse]) -> tuple[DiskUse, ...]:
    """Activity of each disk in the turns so far and a further one. Pure."""
    if not before:
        return tuple(further)
    return tuple(_summed(one, other) for one, other in zip(before, further, strict=True))


def _summed(one: DiskUse, other: DiskUse) -> DiskUse:
    grown = {
        name: value + getattr(other, name)
        for name, value in one
        if isinstance(value, int | float) and name not in _KEPT
    }
    late = zip(one.late_percent_counts, other.late_percent_counts, strict=True)
    return one.model_copy(update={**grown, "late_percent_counts": tuple(a + b for a, b in late)})


def _used(disk: str, before: DiskCounts, after: DiskCounts) -> DiskUse:
    old, new = asdict(before), asdict(after)
    grown = {name: value - old[name] for name, value in new.items() if name not in _KEPT}
    late = zip(before.late_percent_counts, after.late_percent_counts, strict=True)
    return DiskUse(
        disk=disk,
        model=after.model,
        stretch=after.stretch,
        late_percent_counts=tuple(later - earlier for earlier, later in late),
        **grown,
    )
