"""An empty ARC: zfs keeps its own cache, which only leaving and entering the pool again empties for certain."""

from __future__ import annotations

from pgstrata.host.protocol import Command, command
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.stack.plan import StackPlan

IMPORT_TIMEOUT_S = 600.0
"""Exporting writes everything back; importing looks at every device for labels and replays the intent log."""


def plan_empty_arc(plan: StackPlan) -> tuple[Command, ...]:
    """Exports and imports every pool of a stack; nothing may use its datasets meanwhile. None without zfs."""
    pools = [plan.context.place(v.role).name for v in plan.volumes if isinstance(v.volume.fs, Zfs)]
    return tuple(step for pool in pools for step in _leave_and_enter(pool))


def _leave_and_enter(pool: str) -> tuple[Command, Command]:
    # /dev, because loop devices have no links in /dev/disk, where zpool looks by itself
    options = ["-d", "/dev", "-o", "cachefile=none"]
    return (
        command("zpool", "export", pool, timeout_s=IMPORT_TIMEOUT_S),
        command("zpool", "import", options, pool, timeout_s=IMPORT_TIMEOUT_S),
    )
