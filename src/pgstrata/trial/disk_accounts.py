"""What modelled disks did during a measured run: their accounts right before it and right after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from pgstrata.record.schema import DiskUse
from pgstrata.stack.disk_counts import DiskCounts
from pgstrata.stack.step import PlannedCommand
from pgstrata.trial.context import TrialContext, TrialSetup

_KEPT = ("model", "parameters", "stretch", "late_percent_counts")
"""What is no number that grows."""


def plan_accounts(setup: TrialSetup) -> tuple[PlannedCommand, ...]:
    """Asks every set of disks that keeps account of itself; nothing where there are none."""
    return tuple(disks.ask for disks in setup.plan.counted)


def read_accounts(context: TrialContext) -> dict[str, DiskCounts]:
    """Runs what `plan_accounts` planned; the accounts by the names of the disks."""
    found: dict[str, DiskCounts] = {}
    for disks in context.plan.counted:
        found |= zip(disks.disks, disks.parse(context.executor.run_next().stdout), strict=True)
    return found


def disks_used(before: Mapping[str, DiskCounts], after: Mapping[str, DiskCounts]) -> tuple[DiskUse, ...]:
    """What each disk did in between. Pure."""
    return tuple(_used(disk, before[disk], counts) for disk, counts in after.items())


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
