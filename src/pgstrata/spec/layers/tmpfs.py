"""tmpfs: a filesystem in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from pgstrata.spec.durability_class import LOSES, BackingFs, Promises
from pgstrata.spec.layers.kind import MEMORY, Filesystem, Look
from pgstrata.spec.model import SizeBytes


class Tmpfs(Filesystem):
    """Memory; nothing survives a power cut."""

    kind: Literal["tmpfs"] = "tmpfs"
    in_memory: ClassVar[bool] = True
    size: SizeBytes | None = Field(None, description="limit; by default half of the memory")
    huge: Literal["never", "always", "within_size", "advise"] | None = Field(None, description="huge pages")
    noatime: bool = Field(False, description="do not record when files are read")

    @classmethod
    def takes_device(cls, asked: Mapping[str, Any]) -> bool:
        return False

    def lies_on(self, look: Look) -> str:
        return MEMORY

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        yield LOSES, f"{where} is on tmpfs: memory"

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """A power cut leaves nothing at all."""
        return False
