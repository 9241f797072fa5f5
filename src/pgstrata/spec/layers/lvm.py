"""LVM: a volume group over all devices below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from pgstrata.spec.layers.kind import BlockLayer
from pgstrata.spec.model import SizeBytes


class Lvm(BlockLayer):
    """LVM: all devices below become PVs of one VG, which carries one LV."""

    kind: Literal["lvm"] = "lvm"

    gives: ClassVar[str] = "LV"
    assembles: ClassVar[bool] = True
    under_pool: ClassVar[str] = "doubles the pooling and hides flush errors of single disks: give the disks to {fs}"
    not_options: ClassVar[frozenset[str]] = frozenset({"layout"})
    layout_field: ClassVar[str] = "layout"
    layout_minimum: ClassVar[Mapping[str, int]] = {"striped": 2}

    layout: Literal["linear", "striped", "thin"] = Field(
        "linear", description="linear concatenates the PVs; striped writes round them; thin allocates on first write"
    )
    stripe_size: SizeBytes | None = Field(None, description="with striped: bytes on one PV before the next")
    snapshots: int = Field(0, ge=0, le=16, description="snapshots of the LV kept during the run")

    @property
    def capabilities(self) -> tuple[str, ...]:
        return ("block.lvm", "block.lvm.thin") if self.layout == "thin" else ("block.lvm",)

    def copies(self, devices: int) -> float:
        """Snapshots diverge from the LV while it is written to."""
        return 1.0 + self.snapshots
