"""How much space a stack takes on its medium: asked from the filesystem, which knows of compression and copies."""

from __future__ import annotations

from pgstrata.host.protocol import Host, command
from pgstrata.record.schema import SpaceRecord
from pgstrata.stack.kind import FILESYSTEMS
from pgstrata.stack.plan import StackPlan

SYNC_TIMEOUT_S = 600.0


def run_space(host: Host, plan: StackPlan, moment: str) -> SpaceRecord:
    """Physical bytes of every volume after a sync. The server is stopped: all it has is in its files."""
    places = [v.mount_point for v in plan.volumes]
    host.run(command("sync", "--file-system", places, timeout_s=SYNC_TIMEOUT_S))
    by_role = {v.role: FILESYSTEMS[v.volume.fs.kind].used_bytes(host, v.mount_point, v.directory) for v in plan.volumes}
    return SpaceRecord(moment=moment, physical_bytes=sum(by_role.values()), database_bytes=None, by_role=by_role)
