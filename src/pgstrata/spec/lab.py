"""What the machine of `host: lab` is to have."""

from __future__ import annotations

from pydantic import Field

from pgstrata.spec.model import Model, SizeBytes


class LabDisk(Model):
    """A data disk, slowed down where a limit is given."""

    size: SizeBytes | None = None
    iops: int | None = Field(None, ge=1, description="requests a second, reads and writes together")
    bandwidth: SizeBytes | None = Field(None, description="bytes a second, reads and writes together")


class LabMachine(Model):
    """Size of the machine; every device `/dev/disk/by-id/virtio-NAME` of a stack becomes a data disk of it."""

    cpus: int = Field(2, ge=1, le=64)
    memory: SizeBytes = 4 << 30
    disk_size: SizeBytes = Field(4 << 30, description="of every data disk that `disks` says nothing else of")
    disks: dict[str, LabDisk] = Field(default_factory=dict, description="by NAME, at most 20 characters")
