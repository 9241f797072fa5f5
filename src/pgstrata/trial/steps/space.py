"""Space that a stack takes on its medium: asked from the filesystem, which knows of compression and copies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pgstrata.host.protocol import Host
from pgstrata.record.schema import SpaceRecord
from pgstrata.spec.workload import Cell
from pgstrata.stack.kind import FILESYSTEMS
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.step import PlannedCommand, Step, planned
from pgstrata.trial.context import TrialContext, TrialSetup

SYNC_TIMEOUT_S = 600.0


def space_step(setup: TrialSetup, moment: str, cell: Cell | None = None) -> Step:
    """Physical bytes of every volume after a sync. The server is stopped: all it has is in its files.

    The database's logical size was asked while it ran: before the first cell, and after `cell`.
    """
    syncs = tuple(_sync(setup.plan, host) for host in setup.plan.hosts)
    return Step(f"space {moment}", syncs, act=partial(_measure_space, moment=moment, cell=cell))


def _sync(plan: StackPlan, host: str) -> PlannedCommand:
    places = [v.mount_point for v in plan.volumes if v.host == host]
    return replace(planned("sync", "--file-system", places, timeout_s=SYNC_TIMEOUT_S), host=host)


def _measure_space(context: TrialContext, *, moment: str, cell: Cell | None) -> None:
    by_role: dict[str, int] = {}
    for name in context.plan.hosts:
        context.executor.run_next()
        host = context.executor.host_of(name)
        with host.looking():
            by_role |= physical_bytes(host, context.plan, name)
    logical = context.cell(cell).database_bytes_after if cell is not None else None
    physical = sum(by_role.values())
    if cell is not None and context.spaces[-1].database_bytes is None:
        before = context.cell(cell).database_bytes_before
        context.spaces[-1] = context.spaces[-1].model_copy(update={"database_bytes": before})
    found = SpaceRecord(moment=moment, physical_bytes=physical, database_bytes=logical, by_role=by_role)
    context.spaces.append(found)
    context.recorder.write_list("space.json", context.spaces)


def physical_bytes(host: Host, plan: StackPlan, at: str = "") -> dict[str, int]:
    """Return the bytes that every volume on that host takes on its medium, by role."""
    own = (v for v in plan.volumes if v.host == at)
    return {v.role: FILESYSTEMS[v.volume.fs.kind].used_bytes(host, v.mount_point, v.directory) for v in own}
