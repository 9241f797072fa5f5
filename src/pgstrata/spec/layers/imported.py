"""Stacks that somebody else measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pgstrata.spec.durability_class import SURVIVES, UNKNOWN, BackingFs, Promises
from pgstrata.spec.layers.kind import Filesystem

SAID = "imported: pgstrata found it so where the runs were made"


class Imported(Filesystem):
    """A stack that somebody else measured: known by name alone, cannot be built."""

    kind: Literal["imported"] = "imported"
    durability: Literal["survives power loss", "loses recent commits", "unknown", "loses on power loss"] = "unknown"
    """Durability as whoever measured it knew it."""

    offered: ClassVar[bool] = False

    @classmethod
    def takes_device(cls, asked: Mapping[str, Any]) -> bool:
        return False

    @property
    def capabilities(self) -> tuple[str, ...]:
        return ()

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        if self.durability == UNKNOWN:
            yield UNKNOWN, "imported figures: the configuration is not known"
        elif self.durability != SURVIVES:
            yield self.durability, SAID

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """Nothing is known of it, which `promises` says."""
        return False

    def render(self, count: str = "") -> str:
        return self.kind
