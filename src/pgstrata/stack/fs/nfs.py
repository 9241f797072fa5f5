"""NFS: an export of this host mounted over loopback by its only client, or an existing export of another server.

Options: nfs(5), exports(5). Tested with nfs-utils 2.6.2.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pgstrata.errors import TrialError
from pgstrata.host.capabilities import Capability, filesystem, named, program
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.stack import mounts
from pgstrata.stack.kind import Below, FilesystemKind, PlannedFilesystem, plan_filesystem, release_problem
from pgstrata.stack.mounts import MountCheck, MountOption, plan_mount
from pgstrata.stack.place import Place
from pgstrata.stack.step import Attested, FreePath, OnHost, Stage, Step, mount_stage, planned
from pgstrata.stack.undo import RemovePath, Undo
from pgstrata.stack.undoing import UNMOUNT_TIMEOUT_S, ask_tool

CLIENT = "127.0.0.1"
UNIT = "nfs-server.service"
COMPANIONS = ("rpcbind.socket", "rpcbind.service", "rpc-statd.service")
"""Units that start with a server or with an NFS 3 mount, and stay when it stops; the last one is stopped first."""
START_TIMEOUT_S = 120.0

EXPORTS, EXPORTS_FOLDER = "/etc/exports", "/etc/exports.d"
CACHES = tuple(f"/proc/net/rpc/nfsd.{cache}/content" for cache in ("export", "fh"))
"""The kernel's export caches. An entry keeps its filesystem mounted, even after the export is withdrawn."""
FLUSH = planned("exportfs", "-f")
FLUSHES, FLUSH_PAUSE_S = 30, 2.1
"""The caches are flushed by whole seconds. A flush within a second of the previous one is postponed by one, and has no
effect until the kernel's own scan, every 30 s or later. So the next one has to wait for more than a second."""
GRACES = ("/proc/fs/nfsd/v4_end_grace", "/proc/fs/lockd/nlm_end_grace")
"""A newly started server lets clients of the previous one reclaim their files for 90 s and keeps everybody else
waiting. No server ran before, so this is ended immediately."""


def plan_nfs(fs: Nfs, below: Below, place: Place) -> PlannedFilesystem:
    """Plan an export of a filesystem made on what is below and its mount, or mount an existing export."""
    return _plan_existing(fs, place) if fs.server is not None else _plan_own(fs, below, place)


def _plan_own(fs: Nfs, below: Below, place: Place) -> PlannedFilesystem:
    inner = plan_filesystem(fs.stores, below, place.beside("export"))
    path = inner.mount_point
    source = f"{CLIENT}:{path}"
    export, mount = _plan_export(fs, path, place), plan_mount("nfs", mount_options(fs), source, place)
    return PlannedFilesystem(
        steps=(
            _plan_server(),
            *inner.steps,
            export,
            mount,
        ),
        mount_point=place.mount_point,
        checks=(*inner.checks, ExportCheck(place.role, path, fs.export_sync), _mount_check(fs, source, place)),
        extra_media=inner.extra_media,
        notes=inner.notes,
        stages=(*inner.stages, _export_again(export, path), mount_stage(mount, place.mount_point)),
    )


def _export_again(export: Step, path: str) -> Stage:
    """Export again; the server opens files by name, so the exported filesystem must be mounted where it looks."""
    return Stage(
        name=export.name,
        up=export.commands,
        down=(planned("exportfs", "-u", f"{CLIENT}:{path}"),),
        write_back=(planned("sync", "--file-system", path),),
        alone=True,
        in_sight=True,
        frees=(FLUSH,),
        undo=export.undo,
        readies=(_plan_server(),),
    )


def _plan_existing(fs: Nfs, place: Place) -> PlannedFilesystem:
    """Plan a folder of our own in the export, removed again before the export is unmounted."""
    assert fs.server is not None
    folder = f"{place.mount_point}/{place.name}"
    make = Step(
        name=f"folder for {place.role}",
        commands=(planned("mkdir", ["--mode", "0755"], folder),),
        undo=(RemovePath(path=folder, mount_source=fs.server),),
        requires=(FreePath(folder),),
    )
    return PlannedFilesystem(
        steps=(plan_mount("nfs", mount_options(fs), fs.server, place), make),
        mount_point=folder,
        checks=(_mount_check(fs, fs.server, place),),
        notes=("what the server does with a commit (sync or async) cannot be seen from here",),
    )


def _plan_server() -> Step:
    return Step(
        name="NFS server",
        commands=(planned("systemctl", "start", UNIT, timeout_s=START_TIMEOUT_S),),
        undo=tuple(StopUnit(unit=unit) for unit in (*COMPANIONS, UNIT)),
        host_wide=True,
        act=_start_server,
        tells=("end the grace period of a server that was not running",),
        requires=(NothingServed(),),
        undoes=_stopped_before,
    )


def _is_active(host: Host, unit: str) -> bool:
    return host.run(command("systemctl", "is-active", "--quiet", unit), check=False).exit_code == 0


def _stopped_before(host: Host, undo: Undo) -> bool:
    return not (isinstance(undo, StopUnit) and _is_active(host, undo.unit))


def _start_server(context: OnHost) -> None:
    host = context.host
    with host.looking():
        ran_before = _is_active(host, UNIT)
    host.run(command("systemctl", "start", UNIT, timeout_s=START_TIMEOUT_S))
    for grace in () if ran_before else GRACES:
        if host.status(grace) is not None:
            _end_grace(host, grace)


def _end_grace(host: Host, grace: str) -> None:
    try:
        host.write_text(grace, "Y\n")
    except OSError as error:
        if error.errno != errno.EBUSY:  # it has ended by itself
            raise


@dataclass(frozen=True)
class NothingServed:
    """Requires that a stopped server has no exports: they would be served to the network once it starts."""

    @property
    def told(self) -> str:
        return f"refuse when {UNIT} is stopped and {EXPORTS} names folders"

    def require(self, host: Host, bindings: Mapping[str, str]) -> None:
        if _is_active(host, UNIT):
            return
        there = host.status(EXPORTS_FOLDER) is not None
        names = [name for name in (host.list_directory(EXPORTS_FOLDER) if there else ()) if name.endswith(".exports")]
        for path in (EXPORTS, *(f"{EXPORTS_FOLDER}/{name}" for name in sorted(names))):
            if host.status(path) is not None and names_folders(host.read_text(path)):
                raise TrialError(
                    f"{UNIT} of {host.name} is stopped, and {path} names folders that would be served to the network "
                    "if it were started",
                    hint=f"start it yourself if they may be, or empty {path}",
                )


def names_folders(exports: str) -> bool:
    """True if exports(5) has a line that is not a comment."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in exports.splitlines())


def _plan_export(fs: Nfs, path: str, place: Place) -> Step:
    # no_root_squash: the server's folders are made and handed over by root; the client is this host alone
    options = ["rw", "sync" if fs.export_sync else "async", "no_subtree_check", "no_root_squash"]
    options += [] if fs.resvport else ["insecure"]  # a client that asks from a port above 1023 is refused otherwise
    return Step(
        name=f"NFS export for {place.role}",
        commands=(planned("exportfs", ["-o", ",".join(options)], f"{CLIENT}:{path}"),),
        undo=(Unexport(client=CLIENT, path=path),),
        host_wide=True,
    )


def mount_options(fs: Nfs) -> tuple[MountOption, ...]:
    """Return options for mount(8). retry=0: an unresponsive server is reported after one attempt, not after two
    minutes. Client and server negotiate sizes that are not configured."""
    recovery = (("hard", "hard"), ("soft", "soft"), ("softerr", "softerr"))
    how = "hard" if fs.hard else "soft"
    return (
        MountOption(
            (f"vers={fs.version}", "proto=tcp"), mounts.Expectation("vers", fs.version, (("vers=", ""),), "none")
        ),
        MountOption((how, "retry=0"), mounts.Expectation("recovery", how, recovery, "none")),
        mounts.setting("rsize", fs.rsize, "none"),
        mounts.setting("wsize", fs.wsize, "none"),
        mounts.setting("nconnect", fs.nconnect, 1, always=True),
        mounts.setting("timeo", fs.timeo, -1),
        mounts.setting("retrans", fs.retrans, -1),
        mounts.setting("actimeo", fs.actimeo, "", checked=False),
        *(_attribute_time(fs, name, usual) for name, usual in _ATTRIBUTE_TIMES_S.items()),
        mounts.setting("lookupcache", fs.lookupcache, "all", shown=(fs.lookupcache or "").removesuffix("itive")),
        mounts.setting("write", fs.write, "lazy"),
        *mounts.switched_off(fs, {name: f"no{name}" for name in _SWITCHES}),
        *mounts.access_times(fs),
    )


def _attribute_time(fs: Nfs, name: str, usual: int) -> MountOption:
    """Return a time of the attribute cache; `actimeo` sets those that are not configured."""
    own = mounts.setting(name, getattr(fs, name), usual)
    of_all = mounts.setting(name, fs.actimeo, usual)
    return own if own.words else replace(of_all, words=())


_SWITCHES = ("ac", "cto", "rdirplus", "sharecache", "resvport", "lock", "acl")
"""Options that are on by default; the kernel shows them with `no` when they are off."""
_ATTRIBUTE_TIMES_S = {"acregmin": 3, "acregmax": 60, "acdirmin": 30, "acdirmax": 60}
"""The kernel's defaults, which it does not show."""


def _mount_check(fs: Nfs, source: str, place: Place) -> MountCheck:
    fstype = "nfs" if fs.version == "3" else "nfs4"
    return MountCheck(place.role, place.mount_point, fstype, source, mount_options(fs))


@dataclass(frozen=True)
class Export:
    """One line of `exportfs -s`: a folder exported to a client."""

    path: str
    client: str
    options: tuple[str, ...]


_EXPORT = re.compile(r"^(?P<path>/.*?)\s+(?P<client>[^\s(]+)\((?P<options>[^)]*)\)$")


def parse_exports(text: str) -> tuple[Export, ...]:
    """Parse `exportfs -s`; a line that is not an export is an error."""
    found = []
    for line in text.splitlines():
        match = _EXPORT.match(line)
        if match is None:
            raise ValueError(f"not a line of exportfs -s: {line!r}")
        found.append(Export(match["path"], match["client"], tuple(match["options"].split(","))))
    return tuple(found)


@dataclass(frozen=True)
class ExportCheck:
    """Checks that the folder is exported to its one client with the configured commit mode, immediate or not."""

    role: str
    path: str
    sync: bool

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        return self.compare(parse_exports(host.run(command("exportfs", "-s")).stdout))

    def compare(self, exports: tuple[Export, ...]) -> tuple[Attested, ...]:
        """Compare configured with actual values."""
        found = [export for export in exports if export.path == self.path]
        prefix = f"{self.role} nfs export"
        clients = " ".join(export.client for export in found) or "not exported"
        rows = [Attested(f"{prefix} client", CLIENT, clients)]
        for export in found:
            durability = "async" if "async" in export.options else "sync"
            rows.append(Attested(f"{prefix} commits", "sync" if self.sync else "async", durability))
            rows.append(Attested(f"{prefix} access", "rw", "rw" if "rw" in export.options else "ro"))
        return tuple(rows)


class StopUnit(Undo):
    """Stop a systemd unit that was not running before."""

    this_boot_only = True

    kind: Literal["stop_unit"] = "stop_unit"
    unit: str


class Unexport(Undo):
    """Withdraw an NFS export."""

    kind: Literal["unexport"] = "unexport"
    client: str
    path: str


def _stop_unit(host: Host, undo: StopUnit) -> str:
    if not _is_active(host, undo.unit):
        return ""
    host.run(command("systemctl", "stop", undo.unit, timeout_s=UNMOUNT_TIMEOUT_S))
    return f"stopped {undo.unit}"


def _unexport(host: Host, undo: Unexport) -> str:
    exported = ask_tool(host, "exportfs", "-s").stdout
    stands = re.search(rf"^{re.escape(undo.path)}\s", exported, re.MULTILINE) is not None
    if stands:
        host.run(command("exportfs", "-u", f"{undo.client}:{undo.path}"))
    for _ in range(FLUSHES):
        if not _is_known(host, undo.path):
            break
        time.sleep(FLUSH_PAUSE_S)
        host.run(command("exportfs", "-f"))
    return f"withdrew the export of {undo.path}" if stands else ""


def _is_known(host: Host, path: str) -> bool:
    """True if the kernel still holds an export of this folder, in force or not."""
    told = [host.read_text(cache) for cache in CACHES if host.status(cache) is not None]
    return any(path in line.split() for text in told for line in text.splitlines())


WRITE = (5, 13)
"""The first Linux whose client takes write=."""

KIND = FilesystemKind(
    Nfs,
    plan_nfs,
    capabilities=(
        Capability(
            "fs.nfs.client",
            "mount NFS",
            (filesystem("nfs"), program("mount.nfs", named("nfs-common", "nfs-utils", "nfs-client", "nfs-utils"))),
        ),
        Capability(
            "fs.nfs.server",
            "export over NFS",
            (
                filesystem("nfsd"),
                program("exportfs", named("nfs-kernel-server", "nfs-utils", "nfs-kernel-server", "nfs-utils")),
            ),
        ),
    ),
    kernel_problem=lambda host, fs: release_problem(host, "NFS write=", WRITE) if fs.write else "",
    undos={StopUnit: _stop_unit, Unexport: _unexport},
)
