"""NFS: an export of this host or of another one. Durability: exports(5) (async)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from pgstrata.errors import UsageError
from pgstrata.spec.durability_class import LOSES, UNKNOWN, BackingFs, Parity, Promises
from pgstrata.spec.layers.kind import BlockLayer, Filesystem, LocalFilesystem, Look
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import render_options
from pgstrata.spec.notation.term import Call, render_call
from pgstrata.spec.notation.tokens import split_call


class Nfs(Filesystem):
    """An NFS mount: exported on this host over `export`, or an existing `server:/path`."""

    kind: Literal["nfs"] = "nfs"
    assembles: ClassVar[bool] = True
    one_server: ClassVar[bool] = True

    aliases: ClassVar[Mapping[str, str]] = {"vers": "version", "sync": "export_sync"}
    opposites: ClassVar[Mapping[str, str]] = {"async": "export_sync", "soft": "hard"}
    not_options: ClassVar[frozenset[str]] = frozenset({"export"})

    server: str | None = Field(None, description="existing export as host:/path; by default exported on this host")
    version: Literal["3", "4.2"] = Field("4.2", description="protocol")
    export_sync: bool = Field(
        True, description="false: the server acknowledges before it has written (async); loses data on power loss"
    )
    rsize: SizeBytes | None = Field(None, description="bytes of a read request")
    wsize: SizeBytes | None = Field(None, description="bytes of a write request")
    nconnect: int | None = Field(None, ge=1, le=16, description="TCP connections")
    hard: bool = Field(True, description="false: give up after a time-out (soft); risks corruption")
    noatime: bool = Field(False, description="do not record when files are read")
    export: LocalFilesystem | None = Field(None, description="filesystem below the export on this host")

    @field_validator("server")
    @classmethod
    def _host_and_path(cls, server: str | None) -> str | None:
        # a name or an address, never an option of mount(8)
        if server is not None and re.fullmatch(r"(\w[\w.-]*|\[[0-9A-Fa-f:.]+(%\w+)?\]):/\S*", server, re.ASCII) is None:
            raise ValueError(f"{server!r} is no export of a server (for example server=db2:/srv/postgres)")
        return server

    @classmethod
    def takes_device(cls, asked: Mapping[str, Any]) -> bool:
        return asked.get("server") is None

    @property
    def exported(self) -> LocalFilesystem | None:
        """What is exported on this host; None for an export of another one."""
        return (self.export or LocalFilesystem.usual()) if self.server is None else None

    @property
    def stores(self) -> Filesystem:
        return self.exported or self

    def lies_on(self, look: Look) -> str | None:
        return None if self.server is None else f"NFS export {self.server}"

    def place_problem(self, layers: Sequence[BlockLayer], *, device_given: bool) -> str | None:
        if self.export is not None:
            return "an existing NFS export is another machine's: what it exports cannot be chosen here"
        if layers or device_given:
            return "an existing NFS export takes no device and no block layer: what is below it is the server's"
        return None

    def layers_problem(self, layers: Sequence[BlockLayer]) -> str | None:
        if self.export is None and layers:
            return "nfs over a block layer needs the filesystem that is exported: nfs(xfs)"
        return None

    @property
    def capabilities(self) -> tuple[str, ...]:
        served = (*self.exported.capabilities, "fs.nfs.server") if self.exported is not None else ()
        return (*served, "fs.nfs.client")

    def copies(self, devices: int) -> float:
        return self.exported.copies(devices) if self.exported is not None else 1.0

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        if self.exported is None:
            yield UNKNOWN, f"{where} is on an export of {self.server}, whose server may be set to async"
            return
        yield from self.exported.promises(where, ground)
        if not self.export_sync:
            yield LOSES, f"NFS export async below {where}: the server acknowledges before it has written"

    def tears_pages(self, ground: BackingFs | None) -> bool:
        return self.exported is not None and self.exported.tears_pages(ground)

    @property
    def parity(self) -> tuple[Parity, ...]:
        return self.exported.parity if self.exported is not None else ()

    @classmethod
    def parse_words(cls, call: Call) -> dict[str, Any]:
        """An exported filesystem brings commas of its own."""
        if not call.arguments:
            return {}
        if call.arguments.isdigit():
            call.set_count(call.arguments)
            return {}
        if split_call(call.arguments)[0] == cls.name():
            raise UsageError(f"{call.text!r} exports nfs over nfs", hint="for example nfs(xfs)")
        return {"export": Filesystem.parse(call.arguments)}

    def render(self, count: str = "") -> str:
        return render_call(self.kind, [self.export.render()] if self.export is not None else [], render_options(self))
