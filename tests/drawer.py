"""A kind of filesystem that is no part of pgstrata: this file, and `register(KIND)`. It needs no root and no device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from pgstrata.host.capabilities import Capability, everywhere, program
from pgstrata.host.protocol import Command, Host, command
from pgstrata.spec.durability_class import LOSES, BackingFs, Promises
from pgstrata.spec.layers.kind import Filesystem, Look
from pgstrata.stack.kind import Below, FilesystemKind, PlannedFilesystem
from pgstrata.stack.place import Place
from pgstrata.stack.step import Attested, Step, planned
from pgstrata.stack.undo import Undo


class Drawer(Filesystem):
    """A folder in folders, which stands for a filesystem."""

    kind: Literal["drawer"] = "drawer"
    aliases: ClassVar[Mapping[str, str]] = {"deep": "depth"}

    depth: int = Field(1, ge=1, le=9, description="folders inside one another")
    locked: bool = Field(False, description="nobody else may look into it")

    @classmethod
    def takes_device(cls, asked: Mapping[str, Any]) -> bool:
        return False

    def lies_on(self, look: Look) -> str:
        return "a drawer"

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        yield LOSES, f"{where} is in a drawer"

    def tears_pages(self, ground: BackingFs | None) -> bool:
        return True


class EmptyDrawer(Undo):
    """Take everything out of a drawer."""

    kind: Literal["empty_drawer"] = "empty_drawer"
    path: str


def run_empty(host: Host, undo: EmptyDrawer) -> str:
    if host.status(undo.path) is None:
        return ""
    host.remove(undo.path)
    return f"emptied {undo.path}"


def plan_drawer(fs: Drawer, below: Below, place: Place) -> PlannedFilesystem:
    path = place.mount_point + "/in" * fs.depth
    mode = "0700" if fs.locked else "0755"
    make = Step(
        name=f"drawer for {place.role}",
        commands=(planned("install", "--directory", ["--mode", mode], path),),
        undo=(EmptyDrawer(path=place.mount_point),),
    )
    return PlannedFilesystem((make,), path, checks=(DrawerCheck(place.role, path, fs),))


@dataclass(frozen=True)
class DrawerCheck:
    role: str
    path: str
    fs: Drawer

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        mode = host.run(command("stat", ["--format", "%a"], self.path)).stdout.strip()
        return (Attested(f"{self.role} drawer locked", str(self.fs.locked), str(mode == "700")),)


def used_bytes(host: Host, mount_point: str, directory: str) -> int:
    return len(host.list_directory(mount_point))


def plan_shake(fs: Drawer, place: Place) -> tuple[Command, ...]:
    return (command("true", place.mount_point),)


KIND = FilesystemKind(
    Drawer,
    plan_drawer,
    capabilities=(Capability("fs.drawer", "open drawers", (program("install", everywhere("coreutils")),)),),
    undos={EmptyDrawer: run_empty},
    used_bytes=used_bytes,
    plan_empty_caches=plan_shake,
)
