"""xfs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.host.capabilities import Capability, everywhere, filesystem, program
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.xfs import INODES, METADATA, Xfs
from pgstrata.stack import mounts
from pgstrata.stack.fs.own_log import LogdevCheck, node_of, plan_log, prefixed, with_log
from pgstrata.stack.kind import Below, FilesystemKind, Geometry, PlannedFilesystem, block_size_problem, release_problem
from pgstrata.stack.mounts import MountCheck, MountOption, plan_mount
from pgstrata.stack.place import Place
from pgstrata.stack.safety import LABEL
from pgstrata.stack.step import Argument, Attested, Step, compare_or_record, mount_stage, planned

MKFS_TIMEOUT_S = 600.0
DEFAULT_BLOCK_BYTES = 4096
OWN_LOG_BYTES = 512 << 20
"""Size of a log on a device of its own if none is given: mkfs.xfs would take the whole device, and allows less than
2 GiB."""


@dataclass(frozen=True)
class Stripe:
    """Stripe unit in bytes and stripe width in units."""

    su_bytes: int
    sw: int


def plan_xfs(fs: Xfs, below: Below, place: Place) -> PlannedFilesystem:
    """Plan making and mounting xfs on the one node below, aligned to its geometry unless the stack says how."""
    node = below.nodes[0]
    stripe, notes = _alignment(fs, below.geometry)
    log = plan_log(fs, place)
    logdev = () if log is None else (prefixed("logdev=", node_of(log)),)
    options = _mount_options(fs)
    mount = plan_mount("xfs", (*options, *logdev), node, place)
    mkfs = planned(
        "mkfs.xfs", _mkfs_options(fs, stripe), ["-l", *logdev] if logdev else [], node, timeout_s=MKFS_TIMEOUT_S
    )
    repair = planned("xfs_repair", "-n", ["-l", node_of(log)] if log else [], node)
    found = PlannedFilesystem(
        steps=(
            Step(name=f"make xfs for {place.role}", commands=(mkfs,)),
            mount,
        ),
        mount_point=place.mount_point,
        checks=(
            MountCheck(place.role, place.mount_point, "xfs", node, options),
            XfsCheck(place.role, place.mount_point, fs, stripe),
        ),
        notes=notes,
        stages=(mount_stage(mount, place.mount_point, options=("nouuid",), examine=(repair,)),),
    )
    return found if log is None else with_log(found, log, LogdevCheck(place.role, place.mount_point, node_of(log)))


def _alignment(fs: Xfs, geometry: Geometry | None) -> tuple[Stripe | None, tuple[str, ...]]:
    asked = Stripe(fs.su, fs.sw) if fs.su is not None and fs.sw is not None else None
    if geometry is None:
        return asked, ()
    fitting = Stripe(geometry.chunk_bytes, geometry.data_disks)
    if asked is not None and asked != fitting:
        note = (
            f"xfs is misaligned: su {asked.su_bytes} bytes, sw {asked.sw}, "
            f"the array below has {fitting.su_bytes} and {fitting.sw}"
        )
        return asked, (note,)
    block_bytes = fs.block_size or DEFAULT_BLOCK_BYTES
    if fitting.su_bytes % block_bytes:
        return None, (f"xfs is not aligned: a block of {block_bytes} bytes does not fit into the array's chunk",)
    return fitting, ()


def _mkfs_options(fs: Xfs, stripe: Stripe | None) -> list[Argument]:
    options: list[Argument] = ["-q", "-L", LABEL]
    options += ["-b", f"size={fs.block_size}"] if fs.block_size else []
    options += ["-s", f"size={fs.sector_size}"] if fs.sector_size else []
    data = [f"su={stripe.su_bytes},sw={stripe.sw}"] if stripe else []
    data += [f"agcount={fs.agcount}"] if fs.agcount else []
    data += [f"agsize={fs.agsize}"] if fs.agsize else []
    options += ["-d", ",".join(data)] if data else []
    log_size = fs.log_size or (OWN_LOG_BYTES if fs.log else None)
    log = [f"size={log_size}"] if log_size else []
    log += [f"su={fs.log_su}"] if fs.log_su else []
    options += ["-l", ",".join(log)] if log else []
    metadata = [f"{name}={int(wanted)}" for name, wanted in _switches(fs, METADATA) if wanted is not None]
    options += ["-m", ",".join(metadata)] if metadata else []
    inodes = [f"{name}={int(wanted)}" for name, wanted in _switches(fs, INODES) if wanted is not None]
    inodes += [f"size={fs.inode_size}"] if fs.inode_size else []
    inodes += [f"maxpct={fs.inode_maxpct}"] if fs.inode_maxpct is not None else []
    options += ["-i", ",".join(inodes)] if inodes else []
    options += ["-n", f"size={fs.directory_block_size}"] if fs.directory_block_size else []
    return options


def _switches(fs: Xfs, names: tuple[str, ...]) -> tuple[tuple[str, bool | None], ...]:
    return tuple((name, getattr(fs, name)) for name in names)


_FLAGS = ("lazytime", "inode32", "noalign", "swalloc", "wsync")
"""Mount options that are off by default and shown by their own names."""


def _mount_options(fs: Xfs) -> tuple[MountOption, ...]:
    # kernels differ in whether they show the default of logbufs and logbsize, so these count when asked for alone
    return (
        *mounts.access_times(fs),
        mounts.switch("discard", fs.discard, on="discard"),
        mounts.setting("logbufs", fs.logbufs, 8),
        mounts.setting("logbsize", fs.logbsize, "32k", shown=_kib(fs.logbsize)),
        mounts.setting("allocsize", fs.allocsize, "dynamic", shown=_kib(fs.allocsize), always=True),
        mounts.switch("largeio", fs.largeio, on="largeio"),
        *mounts.switched_on(fs, _FLAGS),
    )


def _kib(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes // 1024}k"


def parse_xfs_info(text: str) -> dict[str, str]:
    """Parse the fields of `xfs_info` as `section.name`: `data.bsize`, `log.blocks`, `meta-data.reflink`.

    Each line is a section (or blanks, for the one above), `=`, and fields `name=value`.
    """
    fields: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if not line.strip():
            continue
        match = re.fullmatch(r"([a-z-]*)\s*=(.*)", line)
        if match is None:
            raise ValueError(f"not a line of xfs_info: {line!r}")
        section = match[1] or section
        for name, field in re.findall(r"([a-z][\w-]*)=([^\s,]+)", match[2]):
            fields[f"{section}.{name}"] = field
    return fields


@dataclass(frozen=True)
class XfsCheck:
    """Checks that the superblock matches the options passed to mkfs."""

    role: str
    mount_point: str
    fs: Xfs
    stripe: Stripe | None

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        return self.compare(parse_xfs_info(host.run(command("xfs_info", self.mount_point)).stdout))

    def compare(self, fields: Mapping[str, str]) -> tuple[Attested, ...]:
        """Compare configured with actual values; record what mkfs chose. Stripes are printed in blocks."""
        fs = self.fs
        block_bytes = int(fields["data.bsize"])
        su_bytes = int(fields["data.sunit"]) * block_bytes
        sw = int(fields["data.swidth"]) // max(1, int(fields["data.sunit"]))
        rows: list[tuple[str, object, object]] = [
            ("block_size_bytes", fs.block_size, block_bytes),
            ("sector_size_bytes", fs.sector_size, fields["meta-data.sectsz"]),
            ("log_size_bytes", fs.log_size, int(fields["log.blocks"]) * int(fields["log.bsize"])),
            ("su_bytes", self.stripe.su_bytes if self.stripe else None, su_bytes),
            ("sw", self.stripe.sw if self.stripe else None, sw),
            ("agcount", fs.agcount, fields["meta-data.agcount"]),
        ]
        rows += [
            (name, None if wanted is None else int(wanted), fields.get(f"meta-data.{name}", "unknown"))
            for name, wanted in _switches(fs, METADATA[:2])
        ]
        rows += self._configured_rows(fields, block_bytes)
        return tuple(compare_or_record(f"{self.role} xfs {what}", asked, actual) for what, asked, actual in rows)

    def _configured_rows(self, fields: Mapping[str, str], block_bytes: int) -> list[tuple[str, object, object]]:
        """Return what is compared only where it was configured."""
        fs = self.fs
        rows: list[tuple[str, object, object]] = [
            (name, None if wanted is None else int(wanted), fields.get(f"meta-data.{name}", "unknown"))
            for name, wanted in _switches(fs, (*METADATA[2:], *INODES))
        ]
        rows += [
            ("agsize_bytes", fs.agsize, int(fields["meta-data.agsize"]) * block_bytes),
            ("inode_size", fs.inode_size, fields["meta-data.isize"]),
            ("inode_maxpct", fs.inode_maxpct, fields["data.imaxpct"]),
            ("log_su_bytes", fs.log_su, int(fields["log.sunit"]) * int(fields["log.bsize"])),
            ("directory_block_size", fs.directory_block_size, fields["naming.bsize"]),
        ]
        return [row for row in rows if row[1] is not None]


BLOCKS_ABOVE_PAGES = (6, 12)
"""The first Linux whose xfs can have blocks larger than a page."""
NREXT64 = (5, 19)
"""The first Linux that mounts a filesystem with nrext64."""


def _kernel_problem(host: Host, fs: Xfs) -> str:
    problem = release_problem(host, "xfs nrext64", NREXT64) if fs.nrext64 else ""
    return problem or block_size_problem(host, fs.kind, fs.block_size, BLOCKS_ABOVE_PAGES)


KIND = FilesystemKind(
    Xfs,
    plan_xfs,
    capabilities=(Capability("fs.xfs", "build xfs", (filesystem("xfs"), program("mkfs.xfs", everywhere("xfsprogs")))),),
    kernel_problem=_kernel_problem,
)
