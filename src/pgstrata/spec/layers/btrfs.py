"""btrfs on one or several devices.

Minima: mkfs.btrfs(8), PROFILES. Write hole: btrfs(5), RAID56 status and recommended practices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from pgstrata.spec.durability_class import LOSES, BackingFs, Parity, Promises
from pgstrata.spec.layers.kind import LocalFilesystem, Switch, redundancy
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import render_options
from pgstrata.spec.notation.term import render_call

_COPIES = {"dup": 2.0, "raid1": 2.0, "raid10": 2.0, "raid1c3": 3.0, "raid1c4": 4.0}
_PARITY_DISKS = {"raid5": 1, "raid6": 2}
Profile = Literal["single", "dup", "raid0", "raid1", "raid1c3", "raid1c4", "raid10", "raid5", "raid6"]


class Btrfs(LocalFilesystem):
    """btrfs on one or several devices."""

    kind: Literal["btrfs"] = "btrfs"
    assembles: ClassVar[bool] = True

    aliases: ClassVar[Mapping[str, str]] = {"commit": "commit_s", "datacow": "nodatacow", "datasum": "nodatasum"}
    layout_field: ClassVar[str] = "data"
    layout_minimum: ClassVar[Mapping[str, int]] = {
        "raid0": 2,
        "raid1": 2,
        "raid10": 4,
        "raid5": 2,
        "raid6": 3,
        "raid1c3": 3,
        "raid1c4": 4,
    }
    layout_usual: ClassVar[Mapping[str, int]] = {"raid5": 3, "raid6": 4}
    spans_devices: ClassVar[bool] = True
    copy_on_write: ClassVar[bool] = True

    data: Profile | None = Field(None, description="profile of data; mkfs.btrfs takes single")
    metadata: Profile | None = Field(
        None, description="profile of metadata; mkfs.btrfs takes dup, or raid1 over several devices"
    )
    nodesize: SizeBytes | None = Field(None, description="bytes of a metadata node")
    nodatacow: bool = Field(False, description="overwrite data in place, without checksums")
    nodatasum: bool = Field(False, description="no checksums of data")
    compress: str | None = Field(
        None, pattern=r"^(zlib|lzo|zstd)(:\d+)?$|^no$", description="zstd, lzo, zlib, with a level as zstd:3"
    )
    autodefrag: bool = Field(False, description="rewrite small random writes later")
    ssd: Switch = Field(None, description="allocate as on an SSD; told from the device by default")
    noatime: bool = Field(False, description="do not record when files are read")
    nodiratime: bool = Field(False, description="the same for directories only")
    discard: Literal["async", "sync", "off"] | None = Field(None, description="trim freed blocks")
    space_cache: Literal["v1", "v2"] | None = Field(None, description="how free space is remembered")
    barrier: bool = Field(True, description="false: no flush reaches the device (nobarrier); loses data on power loss")
    commit_s: int | None = Field(None, ge=1, description="seconds between commits; the kernel takes 30")

    @model_validator(mode="after")
    def _coherent(self) -> Btrfs:
        if self.nodatacow and self.compress not in (None, "no"):
            raise ValueError("nodatacow turns compression off: choose one")
        return self

    @property
    def _profiles(self) -> dict[str, str]:
        asked = {"data": self.data, "metadata": self.metadata}
        return {what: profile for what, profile in asked.items() if profile is not None}

    def count_problem(self, count: int) -> str | None:
        for what, profile in self._profiles.items():
            if problem := self.layout_problem(profile, count):
                return f"{problem} ({what} profile)"
        return None

    def copies(self, devices: int) -> float:
        profile = self.data or "single"
        return _COPIES.get(profile) or redundancy(_PARITY_DISKS.get(profile, 0), devices)

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        if not self.barrier:
            yield LOSES, f"barrier=0 on {where}: no flush reaches the device"

    def tears_pages(self, ground: BackingFs | None) -> bool:
        return self.nodatacow

    @property
    def parity(self) -> tuple[Parity, ...]:
        return tuple(Parity(f"btrfs {p}") for p in dict.fromkeys(self._profiles.values()) if p in _PARITY_DISKS)

    @classmethod
    def parse_layouts(cls, layouts: Sequence[str]) -> dict[str, Any]:
        """One profile goes for data and metadata; `btrfs(raid0,raid1)` names both."""
        return {"data": layouts[0], "metadata": layouts[-1]}

    def render(self, count: str = "") -> str:
        """Profiles stand in parentheses where both are given, else as options."""
        options = render_options(self)
        if self.data is None or self.metadata is None:
            return render_call(self.kind, [count], options)
        shown = {f"data={self.data}", f"metadata={self.metadata}"}
        profiles = [self.data] if self.data == self.metadata else [self.data, self.metadata]
        return render_call(self.kind, [*profiles, count], ",".join(o for o in options.split(",") if o not in shown))
