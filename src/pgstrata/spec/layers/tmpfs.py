"""tmpfs: a filesystem in memory. Options: tmpfs(5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from pgstrata.spec.durability_class import LOSES, BackingFs, Promises
from pgstrata.spec.layers.kind import MEMORY, Filesystem, Look
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import IMPLIED_MOUNT_WORDS, LEAVE_OUT, MOUNT_WORDS, SYNCHRONOUS, Refusal, refuse

_REFUSED: Mapping[str, Refusal] = {
    **MOUNT_WORDS,
    **SYNCHRONOUS,
    **refuse("nr_blocks", "it is the size in pages", "write size=4g"),
    **refuse("mode uid gid", "pgstrata hands the folder to the user of PostgreSQL", LEAVE_OUT),
    **refuse("lazytime", "timestamps in memory are never written"),
    **refuse("mpol", "the kernel shows the policy in another form, so that it could not be compared"),
    **refuse("inode32 inode64 casefold strict_encoding", "it concerns numbers and names of files alone"),
    **refuse("quota usrquota grpquota usrquota_block_hardlimit usrquota_inode_hardlimit grpquota_block_hardlimit "
             "grpquota_inode_hardlimit", "it is about limits of users, which a benchmark has none of"),
}  # fmt: skip


class Tmpfs(Filesystem):
    """Memory; nothing survives a power cut."""

    kind: Literal["tmpfs"] = "tmpfs"
    in_memory: ClassVar[bool] = True
    sits_on_device: ClassVar[bool] = False
    known_as: ClassVar[Mapping[str, str]] = dict.fromkeys(("ram", "ramdisk", "ramfs", "memory", "shm"), "tmpfs")
    implied: ClassVar[frozenset[str]] = IMPLIED_MOUNT_WORDS | {"async"}
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED
    size: SizeBytes | None = Field(None, description="limit; by default half of the memory")
    huge: Literal["never", "always", "within_size", "advise"] | None = Field(None, description="huge pages")
    noatime: bool = Field(False, description="do not record when files are read")
    nodiratime: bool = Field(False, description="the same for directories only")
    strictatime: bool = Field(False, description="record every reading of a file")
    nr_inodes: int | None = Field(None, ge=1, description="most files; by default half as many as pages of memory")
    noswap: bool = Field(False, description="never written to swap, Linux 6.4")

    @field_validator("size", mode="before")
    @classmethod
    def _of_no_memory(cls, size: object) -> object:
        if isinstance(size, str) and size.strip().endswith("%"):
            raise ValueError(f"size {size} depends on the memory of the host: write bytes (for example size=8g)")
        return size

    def lies_on(self, look: Look) -> str:
        return MEMORY

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        yield LOSES, f"{where} is on tmpfs: memory"

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """A power cut leaves nothing at all."""
        return False
