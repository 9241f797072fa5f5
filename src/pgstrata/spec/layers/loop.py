"""Loop devices: files in the scratch folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from pgstrata.spec.durability_class import LOSES, BackingFs, Promises, ground_promises
from pgstrata.spec.layers.kind import Device, Look
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.term import render_call
from pgstrata.spec.units import render_size_exact


class LoopDevice(Device):
    """Sparse files in the scratch folder, attached as loop devices with direct I/O."""

    kind: Literal["loop"] = "loop"

    capability: ClassVar[str] = "block.loop"
    short_field: ClassVar[str] = "count"

    count: int = Field(1, ge=1, le=64, description="how many; by default what the layout needs")
    size: SizeBytes | None = Field(None, description="size of each file; by default enough for the scale")

    @classmethod
    def short_schema(cls, own: Mapping[str, Any]) -> dict[str, Any]:
        return {"anyOf": [{"type": ["integer", "null"]}, {"$ref": f"#/$defs/{cls.__name__}"}]}

    @property
    def each_bytes(self) -> int | None:
        return self.size

    def scratch_bytes(self, usual_bytes: int) -> int:
        return (self.size or usual_bytes) * self.count

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        """Only what is known to lose: a file on a disk carries the filesystem above it as a disk does."""
        if ground is not None:
            found = ground_promises(ground, f"the loop file of {where}")
            yield from ((class_, reason) for class_, reason in found if class_ == LOSES)

    def lies_on(self, scratch: str, look: Look) -> str:
        return look(scratch, True)

    @property
    def says_more(self) -> bool:
        return self.size is not None

    @classmethod
    def parse_words(cls, words: Sequence[str], text: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for word in words:
            value = word.removeprefix("size=")
            found["count" if value.isdigit() and value == word else "size"] = value
        return found

    def render(self) -> str:
        words = [str(self.count)] if self.count > 1 else []
        words += [f"size={render_size_exact(self.size)}"] if self.size is not None else []
        return render_call(self.kind, words)
