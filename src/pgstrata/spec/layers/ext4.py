"""ext4. Barriers: ext4(5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pgstrata.spec.durability_class import LOSES, UNKNOWN, BackingFs, Promises
from pgstrata.spec.layers.kind import LocalFilesystem
from pgstrata.spec.model import SizeBytes


class Ext4(LocalFilesystem):
    """ext4: mke2fs and mount options that matter to PostgreSQL."""

    kind: Literal["ext4"] = "ext4"
    assembles: ClassVar[bool] = True

    aliases: ClassVar[Mapping[str, str]] = {
        "commit": "commit_s",
        "stride": "stride_blocks",
        "stripe_width": "stripe_width_blocks",
        "bigalloc": "bigalloc_cluster",
        "journal": "has_journal",
    }

    block_size: SizeBytes | None = Field(None, description="mke2fs -b")
    stride_blocks: int | None = Field(
        None, ge=1, description="blocks on one disk of the array below; taken from md by itself"
    )
    stripe_width_blocks: int | None = Field(None, ge=1, description="stride times data disks; taken from md by itself")
    journal_size: SizeBytes | None = Field(None, description="mke2fs -J size")
    has_journal: bool = Field(True, description="false: no journal at all")
    bigalloc_cluster: SizeBytes | None = Field(None, description="cluster size; turns on bigalloc")
    fast_commit: bool = Field(False, description="mke2fs -O fast_commit: smaller journal commits")
    data: Literal["ordered", "writeback", "journal"] | None = Field(
        None, description="journalling mode; the kernel takes ordered"
    )
    noatime: bool = Field(False, description="do not record when files are read")
    nodiratime: bool = Field(False, description="the same for directories only; noatime includes it")
    barrier: bool = Field(True, description="false: no flush reaches the device (barrier=0); loses data on power loss")
    discard: bool = Field(False, description="trim freed blocks at once")
    commit_s: int | None = Field(None, ge=1, description="seconds between journal commits; the kernel takes 5")
    delalloc: bool = Field(True, description="false: allocate blocks at write (nodelalloc)")

    @model_validator(mode="after")
    def _coherent(self) -> Ext4:
        block = self.block_size or 4096
        if self.block_size is not None and self.block_size not in (1024, 2048, 4096, 8192, 16384, 32768, 65536):
            raise ValueError(f"block_size {self.block_size} is not a power of two from 1k to 64k")
        if not self.has_journal and (self.journal_size or self.fast_commit or self.data):
            raise ValueError("without a journal there is no journal_size, fast_commit or data mode")
        if self.bigalloc_cluster is not None and (
            self.bigalloc_cluster <= block or self.bigalloc_cluster & (self.bigalloc_cluster - 1)
        ):
            raise ValueError(
                f"bigalloc_cluster is a power of two above the block size ({block}), not {self.bigalloc_cluster}"
            )
        if self.data == "journal" and self.fast_commit:
            raise ValueError("fast_commit does nothing with data=journal (ext4 falls back to full commits): choose one")
        if self.stripe_width_blocks and self.stride_blocks and self.stripe_width_blocks % self.stride_blocks:
            raise ValueError("stripe_width_blocks is a multiple of stride_blocks (stride x data disks)")
        return self

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        if not self.barrier:
            yield LOSES, f"barrier=0 on {where}: no flush reaches the device"
        if self.fast_commit:
            # docs/crash.md, "Controls": the first block of the fast-commit area, torn at 512 bytes.
            yield (
                UNKNOWN,
                f"fast_commit on {where}: a disk that does not write 4096 bytes as a whole can leave a journal that "
                "Linux refuses to mount, and e2fsck then drops commits",
            )

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """With data=journal too: its journal takes the two blocks of a page one by one (docs/crash.md, "Controls")."""
        return True
