"""A directory that is already there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from pgstrata.errors import UsageError
from pgstrata.spec.durability_class import BackingFs, Promises, ground_promises
from pgstrata.spec.layers.kind import Filesystem, Look
from pgstrata.spec.notation.term import Call
from pgstrata.spec.notation.tokens import quote, unquote


class Existing(Filesystem):
    """A directory that is already there; works without root, is never formatted."""

    kind: Literal["dir"] = "dir"

    not_options: ClassVar[frozenset[str]] = frozenset({"path"})

    path: str = Field(description="absolute path")

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path (for example /mnt/{path})")
        if not path.isprintable():
            raise ValueError(f"{path!r} holds a line break or another control character")
        if ".." in path.split("/"):
            raise ValueError(f"{path!r} goes up by `..`: write where it leads to")
        return path

    @classmethod
    def takes_device(cls, asked: Mapping[str, Any]) -> bool:
        return False

    @property
    def directories(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def capabilities(self) -> tuple[str, ...]:
        return ()

    def lies_on(self, look: Look) -> str:
        return look(self.path, False)

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        yield from ground_promises(ground, where)

    def tears_pages(self, ground: BackingFs | None) -> bool:
        return ground is not None and ground.tears_pages

    @classmethod
    def parse_call(cls, call: Call) -> dict[str, Any]:
        if not call.rest.startswith(":") or call.arguments is not None:
            raise UsageError(f"{call.text!r} names no directory", hint="dir:/path/to/directory")
        return {"path": unquote(call.rest[1:].strip())}

    def render(self, count: str = "") -> str:
        return f"{self.kind}:{quote(self.path)}"
