"""Block devices of the host: loop devices over files in the scratch folder, and real disks by their stable ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pgstrata.errors import UsageError
from pgstrata.spec.durability_class import LOSES, BackingFs, Promises, ground_promises
from pgstrata.spec.layers.kind import Device, Look
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import render_call
from pgstrata.spec.notation.tokens import quote, unquote
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


MOST_NAMED = 3
"""Devices of one volume that are named one by one."""


class DiskDevice(Device):
    """Real block devices, named by stable id (by-id, by-path, PARTUUID, or path+size+major:minor)."""

    kind: Literal["disk"] = "disk"

    capability: ClassVar[str] = "tools.block"
    short_field: ClassVar[str] = "ids"

    ids: tuple[str, ...] = Field(min_length=1, max_length=256, description="stable ids")

    @model_validator(mode="before")
    @classmethod
    def _enough(cls, value: object) -> object:
        """A count asked for by a layout takes the first disks of a list; it is left here when they do not suffice."""
        if isinstance(value, dict) and "count" in value:
            raise ValueError(f"{value['count']} devices are asked for, and {len(value.get('ids', ()))} are listed")
        return value

    @field_validator("ids")
    @classmethod
    def _distinct(cls, ids: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(ids)) != len(ids):
            raise ValueError("a device is named twice")
        for id_ in ids:
            if not id_.isprintable() or id_.startswith("-") or not id_:
                raise ValueError(f"{id_!r} is no stable id of a device (for example /dev/disk/by-id/...)")
        return ids

    @property
    def count(self) -> int:
        return len(self.ids)

    @classmethod
    def short_schema(cls, own: Mapping[str, Any]) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}

    @property
    def stable_ids(self) -> tuple[str, ...]:
        return self.ids

    def lies_on(self, scratch: str, look: Look) -> str:
        few = len(self.ids) <= MOST_NAMED
        return ", ".join(self.ids) if few else f"{self.ids[0]} ... {self.ids[-1]} ({len(self.ids)} devices)"

    @property
    def says_more(self) -> bool:
        return True

    @classmethod
    def complete(cls, given: dict[str, Any], usual: int) -> dict[str, Any]:
        """Take the first `count` of listed disks; too few are left for the model to complain of."""
        wanted, ids = str(given.get("count", "")), given.get("ids")
        if isinstance(ids, list | tuple) and wanted.isdigit() and int(wanted) <= len(ids):
            return {"kind": given["kind"], "ids": ids[: int(wanted)]}
        return given

    @classmethod
    def parse_words(cls, words: Sequence[str], text: str) -> dict[str, Any]:
        if not words:
            raise UsageError(f"{text!r} names no disk", hint="disk(/dev/disk/by-id/...)")
        return {"ids": [unquote(word) for word in words]}

    def render(self) -> str:
        return render_call(self.kind, [quote(id_) for id_ in self.ids])
