"""md: Linux software RAID.

Minima and options: mdadm(8). raid10 can be had over fewer than four devices, but is then a mirror under another name;
published comparisons have been spoilt by such labels. Write hole: raid5-ppl and raid5-cache of the kernel's
documentation of md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from pgstrata.spec.durability_class import Parity
from pgstrata.spec.layers.kind import BlockLayer, redundancy
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import LEAVE_OUT, Refusal, refuse, spelled

_PARITY_DISKS = {"raid5": 1, "raid6": 2}

_REFUSED: Mapping[str, Refusal] = {
    **refuse("level -l --level", "the level stands in parentheses", "write md(raid10,4)"),
    **refuse("n2 n3 f2 f3 o2 o3 layout parity -p --layout --parity rounding --rounding",
             "mdadm's own layout is built and its geometry "
             "passed to the filesystem: n2 of raid10, left-symmetric of parity"),
    **refuse("raid_devices raid-devices -n --raid-devices", "the number stands in parentheses", "write md(raid10,4)"),
    **refuse("spare_devices spare-devices -x --spare-devices spares", "a spare takes over when a device fails, and no "
             "device of a stack fails", "state=degraded and state=rebuilding are arrays with a lost device"),
    **refuse("write_journal write-journal --write-journal consistency_policy consistency-policy -k "
             "--consistency-policy", "a journal of the array takes a device of its own, and a policy other than "
             "resync or bitmap is not attested"),
    **refuse("bitmap_chunk bitmap-chunk --bitmap-chunk", "the size of a bit is not attested", "write bitmap=internal"),
    **refuse("write_mostly write-mostly -W --write-mostly write_behind write-behind --write-behind failfast --failfast",
             "it marks single devices, and those of a stack are alike"),
    **refuse("size -z --size array_size array-size -Z --array-size data_offset data-offset --data-offset",
             "the array takes the devices below as a whole", "give the devices a size: loop(4,size=20G)/md(raid10)"),
    **refuse("metadata -e --metadata", "the superblock is version 1.2, which pgstrata finds its arrays by"),
    **refuse("name -N --name homehost --homehost auto -a --auto symlinks --symlinks run -R --run force -f --force "
             "readonly -o --readonly backup_file backup-file --backup-file continue --continue add --add nodes --nodes "
             "home-cluster --home-cluster uuid", "it is about how mdadm runs or names the array, and pgstrata decides "
             "that", LEAVE_OUT),
    **refuse("linear raid4 multipath faulty container", "it is no level that pgstrata builds"),
}  # fmt: skip


class Md(BlockLayer):
    """Linux software RAID over all devices below."""

    kind: Literal["md"] = "md"

    gives: ClassVar[str] = "array"
    needs_several: ClassVar[bool] = True
    assembles: ClassVar[bool] = True
    under_pool: ClassVar[str] = "hides the disks from {fs}, which then cannot repair: use a vdev layout of {fs} instead"
    units: ClassVar[Mapping[str, str]] = {"-c": "k", "--chunk": "k"}
    known_as: ClassVar[Mapping[str, str]] = {"mdadm": "md", "mdraid": "md", "raid": "md(raid1)"}
    also: ClassVar[Mapping[str, str]] = spelled(
        chunk="-c --chunk", bitmap="-b --bitmap", assume_clean="--assume-clean assume-clean",
    )  # fmt: skip
    implied: ClassVar[frozenset[str]] = frozenset({"metadata=1.2", "--metadata=1.2", "-e=1.2"})
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED
    not_options: ClassVar[frozenset[str]] = frozenset({"level"})
    layout_field: ClassVar[str] = "level"
    layout_minimum: ClassVar[Mapping[str, int]] = {"raid0": 2, "raid1": 2, "raid10": 4, "raid5": 3, "raid6": 4}

    level: Literal["raid0", "raid1", "raid10", "raid5", "raid6"] = Field(description="RAID level")
    chunk: SizeBytes | None = Field(None, description="bytes on one device before the next; mdadm takes 512k")
    bitmap: Literal["internal", "none"] = Field(
        "none", description="write-intent bitmap, for a short resync after a crash"
    )
    assume_clean: bool = Field(False, description="skip the first resync; right for devices that read as zeros")
    state: Literal["clean", "degraded", "rebuilding"] = Field(
        "clean", description="degraded: one device missing; rebuilding: while it is being replaced"
    )

    @model_validator(mode="after")
    def _coherent(self) -> Md:
        if self.level == "raid0" and self.state != "clean":
            raise ValueError("raid0 has no redundancy: it cannot be degraded or rebuilding")
        if self.chunk is not None and (self.chunk < 4096 or self.chunk % 4096):
            raise ValueError(f"chunk {self.chunk} is not a multiple of 4k (for example 64k)")
        if self.level == "raid1" and self.chunk is not None:
            raise ValueError("raid1 has no chunk size")
        return self

    def on_recorded(self) -> Self:
        """Parity and copies of zeroes are zeroes: a first resync would find nothing to do."""
        return self if self.level == "raid0" else self.model_copy(update={"assume_clean": True})

    @property
    def capabilities(self) -> tuple[str, ...]:
        return (f"block.md.{'raid456' if self.level in _PARITY_DISKS else self.level}",)

    def copies(self, devices: int) -> float:
        mirrored = {"raid1": float(devices), "raid10": 2.0}
        return mirrored.get(self.level) or redundancy(_PARITY_DISKS.get(self.level, 0), devices)

    @property
    def parity(self) -> tuple[Parity, ...]:
        return (Parity(f"md {self.level}", self.state != "clean"),) if self.level in _PARITY_DISKS else ()
