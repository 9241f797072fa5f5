"""NFS: an export of this host or of another one. Options: nfs(5). Durability: exports(5) (async)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pgstrata.errors import UsageError
from pgstrata.spec.durability_class import LOSES, UNKNOWN, BackingFs, Parity, Promises
from pgstrata.spec.layers.kind import BlockLayer, Filesystem, LocalFilesystem, Look
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import (
    IMPLIED_MOUNT_WORDS,
    LEAVE_OUT,
    MOUNT_WORDS,
    Call,
    Refusal,
    refuse,
    render_call,
    render_options,
)
from pgstrata.spec.notation.tokens import split_call

_TIMES = ("acregmin", "acregmax", "acdirmin", "acdirmax")
_REFUSED: Mapping[str, Refusal] = {
    **{name: refusal for name, refusal in MOUNT_WORDS.items() if name not in ("acl", "noacl")},
    **refuse("proto udp tcp rdma port mountport mountproto mounthost mountvers mountaddr addr clientaddr xprtsec "
             "localaddrs", "pgstrata mounts by TCP at the usual ports, which is what it attests"),
    **refuse("sec", "Kerberos needs keys of both hosts, which pgstrata does not make; sec=sys is mounted"),
    **refuse("strictatime lazytime", "the server decides when it writes timestamps"),
    **refuse("vers=2 nfsvers=2 vers=4 nfsvers=4 minorversion", "the version is attested with its minor number",
             "write vers=3, vers=4.0, vers=4.1 or vers=4.2"),
    **refuse("export", "the exported filesystem stands in parentheses", "write nfs(xfs)"),
    **refuse("retry bg fg", "an unresponsive server is reported after one attempt (retry=0)", LEAVE_OUT),
    **refuse("softerr softreval nosoftreval", "what a time-out does is one option", "write soft or hard"),
    **refuse("intr nointr posix noposix sloppy udpport lookup", "the kernel ignores it or has removed it", LEAVE_OUT),
    **refuse("fsc nofsc", "it needs cachefilesd, whose cache pgstrata neither empties nor attests"),
    **refuse("max_connect trunkdiscovery notrunkdiscovery", "the server of a stack has one address"),
    **refuse("migration nomigration namlen bsize local_lock",
             "it does not change how PostgreSQL reads and writes, or the kernel shows another value than requested"),
    **refuse("alignwrite noalignwrite", "the kernel does not show it before Linux 6.10"),
    **refuse("no_wdelay wdelay root_squash no_root_squash all_squash subtree_check no_subtree_check secure insecure "
             "fsid crossmnt", "it is an option of the export, of which pgstrata chooses sync or async alone"),
}  # fmt: skip


class Nfs(Filesystem):
    """An NFS mount: exported on this host over `export`, or an existing `server:/path`."""

    kind: Literal["nfs"] = "nfs"
    assembles: ClassVar[bool] = True
    one_server: ClassVar[bool] = True

    aliases: ClassVar[Mapping[str, str]] = {"vers": "version", "sync": "export_sync"}
    also: ClassVar[Mapping[str, str]] = {"nfsvers": "version"}
    opposites: ClassVar[Mapping[str, str]] = {"async": "export_sync", "soft": "hard"}
    implied: ClassVar[frozenset[str]] = IMPLIED_MOUNT_WORDS | {"proto=tcp", "tcp", "sec=sys", "retry=0", "nofsc"}
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED
    not_options: ClassVar[frozenset[str]] = frozenset({"export"})

    server: str | None = Field(None, description="existing export as host:/path; by default exported on this host")
    version: Literal["3", "4.0", "4.1", "4.2"] = Field("4.2", description="protocol")
    export_sync: bool = Field(
        True, description="false: the server acknowledges before it has written (async); loses data on power loss"
    )
    rsize: SizeBytes | None = Field(None, description="bytes of a read request")
    wsize: SizeBytes | None = Field(None, description="bytes of a write request")
    nconnect: int | None = Field(None, ge=1, le=16, description="TCP connections")
    hard: bool = Field(True, description="false: give up after a time-out (soft); risks corruption")
    noatime: bool = Field(False, description="do not record when files are read")
    timeo: int | None = Field(None, ge=1, le=6000, description="tenths of a second until a request is sent again")
    retrans: int | None = Field(None, ge=0, le=1000, description="times it is sent again before more is done")
    ac: bool = Field(True, description="false: attributes are not cached and writes are synchronous (noac)")
    actimeo: int | None = Field(None, ge=0, le=86400, description="seconds: all four of acregmin to acdirmax")
    acregmin: int | None = Field(None, ge=0, le=86400, description="seconds that attributes of files are held at least")
    acregmax: int | None = Field(None, ge=0, le=86400, description="the same at most")
    acdirmin: int | None = Field(None, ge=0, le=86400, description="seconds for directories, at least")
    acdirmax: int | None = Field(None, ge=0, le=86400, description="the same at most")
    cto: bool = Field(True, description="false: files are not revalidated when they are opened (nocto)")
    lookupcache: Literal["all", "none", "pos", "positive"] | None = Field(None, description="names that are cached")
    rdirplus: bool = Field(True, description="false: directories are read without attributes (nordirplus)")
    sharecache: bool = Field(True, description="false: caches are not shared with other mounts (nosharecache)")
    resvport: bool = Field(True, description="false: ports above 1023 are used (noresvport)")
    lock: bool = Field(True, description="false: locks are local, NFS 3 alone (nolock)")
    acl: bool = Field(True, description="false: no access control lists, NFS 3 alone (noacl)")
    write: Literal["lazy", "eager", "wait"] | None = Field(None, description="when written data are sent, Linux 5.13")
    export: LocalFilesystem | None = Field(None, description="filesystem below the export on this host")

    @model_validator(mode="after")
    def _coherent(self) -> Nfs:
        times = [name for name in ("actimeo", *_TIMES) if getattr(self, name) is not None]
        if times and not self.ac:
            raise ValueError(f"noac caches no attributes, and {times[0]} says how long: choose one")
        if self.actimeo is not None and len(times) > 1:
            raise ValueError(f"actimeo sets {times[1]} too: choose one")
        if self.export is not None and self.export.own_devices:
            raise ValueError(f"the {self.export.kind} below an export has no log on a device of its own")
        if self.version != "3" and not (self.lock and self.acl):
            raise ValueError("nolock and noacl are of NFS 3: add vers=3")
        return self

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
        """Filesystem that is exported on this host; None for an export of another one."""
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
