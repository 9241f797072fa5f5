"""zvol: a pool of zfs over all devices below, and one volume in it. Properties: zfsprops(7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from pgstrata.spec.layers.kind import BlockLayer
from pgstrata.spec.layers.zfs_pool import REFUSED, ZfsPool
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.refusals import Refusal, refuse

_LEAST, _LARGEST = 512, 128 << 10
_OF_VOLUMES = ("volblocksize", "volsize", "volmode", "snapdev", "volthreading", "refreservation_auto")
_REFUSED: Mapping[str, Refusal] = {
    **{name: refusal for name, refusal in REFUSED.items() if name not in _OF_VOLUMES},
    **refuse("volsize -V -s", "the volume takes 9/10 of what is free in the pool",
             "give the devices a size: loop(size=20G)/zvol/ext4"),
    **refuse("volmode snapdev volthreading refreservation_auto",
             "it is about how the volume is shown, counted or served, and pgstrata leaves it as it is"),
    **refuse("recordsize recsize atime relatime xattr dnodesize acltype special_small_blocks prefetch direct",
             "it is of a dataset with files, and a zvol has blocks", "write zvol:volblocksize=16k/ext4"),
}  # fmt: skip


class Zvol(ZfsPool, BlockLayer):
    """A zfs pool over all devices below, and a volume in it."""

    kind: Literal["zvol"] = "zvol"

    gives: ClassVar[str] = "volume"
    under_pool: ClassVar[str] = "puts a pool on a pool: give the disks to {fs}"
    also: ClassVar[Mapping[str, str]] = {**ZfsPool.also, "-b": "volblocksize"}
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED

    volblocksize: SizeBytes | None = Field(None, description="block of the volume; zfs takes 8k, or 16k since 2.2")

    @classmethod
    def layouts(cls) -> tuple[str, ...]:
        """No layout: the name of a pool's layout alone means zfs."""
        return ()

    @field_validator("volblocksize")
    @classmethod
    def _block(cls, size: int | None) -> int | None:
        if size is not None and (not _LEAST <= size <= _LARGEST or size & (size - 1)):
            raise ValueError(f"volblocksize {size} is not a power of two from 512 to 128k (for example 16k)")
        return size

    def order_problem(self, below: Sequence[BlockLayer]) -> str | None:
        wrong = next((layer for layer in below if layer.under_pool), None)
        if wrong is not None:
            return f"{self.kind} over {wrong.kind} {wrong.under_pool.format(fs=self.kind)}"
        return super().order_problem(below)
