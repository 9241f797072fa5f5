"""Properties that the machine of `host: lab` is to have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pgstrata.spec.layers.media import CHOICE, DEFINED, MODEL_SCHEMA, Timed, check_model
from pgstrata.spec.model import Model, SizeBytes

SMALLEST_DISK_BYTES = 1 << 20
LAB = "lab"
"""A machine that is started for a campaign, and ends with it."""
RUNNING_LAB = "lab/"
"""`lab/NAME`: a machine that `pgstrata lab up` left running."""
MACHINE_NAME = r"[a-z0-9][a-z0-9-]{0,31}"


class LabDisk(Model):
    """A data disk, slowed down where a limit is given, or with the timing of a modelled medium."""

    size: SizeBytes | None = Field(None, ge=SMALLEST_DISK_BYTES)
    iops: int | None = Field(None, ge=1, description="requests a second, reads and writes together")
    bandwidth: SizeBytes | None = Field(None, description="bytes a second, reads and writes together")
    definition: str | None = Field(None, description=DEFINED)
    media: Annotated[str, MODEL_SCHEMA] | None = Field(None, description=f"the model of its timing: {CHOICE}")
    stretch: float = Field(1.0, ge=1.0, le=1000.0, description="all times of the model are multiplied by it")
    timed: Timed = Field(
        "always", description="runs: only warm-ups and runs take the time of the medium, preparing them takes none"
    )

    @field_validator("media")
    @classmethod
    def _known(cls, media: str | None, info: ValidationInfo) -> str | None:
        if media is not None:
            check_model(media, info.data.get("definition"))
        return media

    @model_validator(mode="after")
    def _one_timing(self) -> LabDisk:
        if self.media is not None and (self.iops or self.bandwidth):
            raise ValueError("a modelled disk has the limits of its model: leave out iops and bandwidth")
        if self.media is None and self.stretch != 1:
            raise ValueError("stretch multiplies the times of a modelled medium, and none is given: media")
        if self.media is None and self.timed != "always":
            raise ValueError("timed is about the times of a modelled medium, and none is given: media")
        return self


class LabMachine(Model):
    """Size of the machine; every device `/dev/disk/by-id/virtio-NAME` of a stack becomes a data disk of it."""

    cpus: int = Field(2, ge=1, le=64)
    memory: SizeBytes = 4 << 30
    disk_size: SizeBytes = Field(
        4 << 30, ge=SMALLEST_DISK_BYTES, description="of every data disk that `disks` says nothing else of"
    )
    disks: dict[str, LabDisk] = Field(default_factory=dict, description="by NAME, at most 20 characters")
