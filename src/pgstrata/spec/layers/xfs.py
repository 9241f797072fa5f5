"""xfs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pgstrata.spec.durability_class import BackingFs
from pgstrata.spec.layers.kind import LocalFilesystem, Switch
from pgstrata.spec.model import SizeBytes


class Xfs(LocalFilesystem):
    """xfs: mkfs and mount options."""

    kind: Literal["xfs"] = "xfs"
    assembles: ClassVar[bool] = True
    block_size: SizeBytes | None = Field(None, description="mkfs.xfs -b size; above the page size only on new kernels")
    sector_size: SizeBytes | None = Field(None, description="mkfs.xfs -s size")
    log_size: SizeBytes | None = Field(None, description="mkfs.xfs -l size")
    su: SizeBytes | None = Field(None, description="stripe unit of the layer below")
    sw: int | None = Field(None, ge=1, description="stripe width in stripe units")
    agcount: int | None = Field(None, ge=1, description="allocation groups")
    reflink: Switch = Field(None, description="shared extents; on by default in new xfsprogs")
    bigtime: Switch = Field(None, description="timestamps beyond 2038")
    noatime: bool = Field(False, description="do not record when files are read")
    nodiratime: bool = Field(False, description="the same for directories only")
    discard: bool = Field(False, description="trim freed blocks at once")
    logbufs: int | None = Field(None, ge=2, le=8, description="log buffers in memory")
    logbsize: SizeBytes | None = Field(None, description="bytes of a log buffer")
    allocsize: SizeBytes | None = Field(None, description="preallocation at the end of growing files")
    largeio: bool = Field(False, description="report the stripe width as preferred I/O size")

    @model_validator(mode="after")
    def _coherent(self) -> Xfs:
        if (self.su is None) != (self.sw is None):
            raise ValueError("su and sw go together")
        size = self.block_size
        if size is not None and (size & (size - 1) or not 1024 <= size <= 65536):
            raise ValueError(f"block_size {self.block_size} is not a power of two from 1k to 64k")
        if self.su is not None and self.su % (self.block_size or 4096):
            raise ValueError(f"su {self.su} is not a multiple of the block size")
        if self.sector_size is not None and self.sector_size > (self.block_size or 4096):
            raise ValueError("sector_size is larger than the block size")
        return self

    def tears_pages(self, ground: BackingFs | None) -> bool:
        return True
