"""ext4 without lazy initialisation, so that no background zeroing is measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.host.capabilities import Capability, everywhere, filesystem, program
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.ext4 import FEATURES, Ext4
from pgstrata.stack import mounts
from pgstrata.stack.fs.own_log import JournalCheck, node_of, plan_log, prefixed, with_log
from pgstrata.stack.kind import Below, FilesystemKind, Geometry, PlannedFilesystem, block_size_problem, release_problem
from pgstrata.stack.mounts import MountCheck, MountOption, plan_mount
from pgstrata.stack.place import Place
from pgstrata.stack.safety import LABEL
from pgstrata.stack.step import Argument, Attested, Step, compare_or_record, mount_stage, planned, resolve

MKFS_TIMEOUT_S = 1800.0
"""Without lazy initialisation the inode tables of a large slow disk are written in full."""

DEFAULT_BLOCK_BYTES = 4096


def plan_ext4(fs: Ext4, below: Below, place: Place) -> PlannedFilesystem:
    """Plan making and mounting ext4 on the one node below, aligned to its geometry unless the stack says how."""
    node = below.nodes[0]
    stride, width, notes = _alignment(fs, below.geometry)
    log = plan_log(fs, place)
    journal = None if log is None else node_of(log)
    at = [] if journal is None else [prefixed("journal_path=", journal)]
    options = _mount_options(fs)
    mount = plan_mount("ext4", (*options, *at), node, place)
    besides = [] if journal is None else ["-j", journal]
    found = PlannedFilesystem(
        steps=(_plan_mkfs(fs, node, stride, width, place.role, journal), mount),
        mount_point=place.mount_point,
        checks=(
            MountCheck(place.role, place.mount_point, "ext4", node, options),
            Ext4Check(place.role, node, fs, stride, width),
        ),
        notes=notes,
        stages=(
            mount_stage(
                mount,
                place.mount_point,
                # one without a journal is checked before it is mounted, by the start of the machine or else by hand
                first=() if fs.has_journal else (planned("e2fsck", "-p", node),),
                mend=(planned("e2fsck", ["-p"] if fs.has_journal else ["-f", "-y"], besides, node),),
                examine=(planned("e2fsck", "-f", "-n", besides, node),),
            ),
        ),
    )
    return found if log is None else with_log(found, log, JournalCheck(place.role, node_of(log)))


def _alignment(fs: Ext4, geometry: Geometry | None) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Return stride and stripe width in blocks, with a note if the stack's differ from the array below."""
    if geometry is None:
        return fs.stride_blocks, fs.stripe_width_blocks, ()
    fitting_stride = geometry.chunk_bytes // (fs.block_size or DEFAULT_BLOCK_BYTES)
    stride = fs.stride_blocks or fitting_stride
    fitting_width = fitting_stride * geometry.data_disks
    width = fs.stripe_width_blocks or (stride * geometry.data_disks)
    if (stride, width) == (fitting_stride, fitting_width):
        return stride, width, ()
    note = (
        f"ext4 is misaligned: stride {stride} and stripe width {width} blocks, "
        f"the array below has {fitting_stride} and {fitting_width}"
    )
    return stride, width, (note,)


def _plan_mkfs(
    fs: Ext4, node: Argument, stride: int | None, width: int | None, role: str, journal: Argument | None
) -> Step:
    extended = ["lazy_itable_init=0", "lazy_journal_init=0"]
    extended += [f"stride={stride}"] if stride else []
    extended += [f"stripe_width={width}"] if width else []
    features = [] if fs.has_journal else ["^has_journal"]
    features += ["bigalloc"] if fs.bigalloc_cluster else []
    features += ["fast_commit"] if fs.fast_commit else []
    features += [name if wanted else f"^{name}" for name, wanted in _features(fs).items()]
    block_size = fs.block_size or (DEFAULT_BLOCK_BYTES if stride else None)
    options: list[Argument] = ["-q", "-L", LABEL, "-E", ",".join(extended)]
    options += ["-b", str(block_size)] if block_size else []
    # mke2fs asks back about blocks that older kernels cannot mount; whether this one can was checked before
    options += ["-F"] if block_size and block_size > DEFAULT_BLOCK_BYTES else []
    options += ["-O", ",".join(features)] if features else []
    options += ["-C", str(fs.bigalloc_cluster)] if fs.bigalloc_cluster else []
    options += ["-J", f"size={fs.journal_size // 2**20}"] if fs.journal_size else []
    options += ["-I", str(fs.inode_size)] if fs.inode_size else []
    options += ["-m", str(fs.reserved_percent)] if fs.reserved_percent is not None else []
    options += ["-g", str(fs.blocks_per_group)] if fs.blocks_per_group else []
    options += ["-G", str(fs.flex_bg_size)] if fs.flex_bg_size else []
    if journal is None:
        return Step(
            name=f"make ext4 for {role}", commands=(planned("mkfs.ext4", options, node, timeout_s=MKFS_TIMEOUT_S),)
        )
    # both have blocks of one size
    same = ["-q", "-b", str(block_size or DEFAULT_BLOCK_BYTES)]
    make = planned("mke2fs", same, "-O", "journal_dev", journal, timeout_s=MKFS_TIMEOUT_S)
    given = [] if block_size else ["-b", str(DEFAULT_BLOCK_BYTES)]
    mkfs = planned("mkfs.ext4", options, given, "-J", prefixed("device=", journal), node, timeout_s=MKFS_TIMEOUT_S)
    return Step(name=f"make ext4 for {role}", commands=(make, mkfs))


def _features(fs: Ext4) -> dict[str, bool]:
    """Return the features that are switched on or off, by the names of mke2fs."""
    asked = {name: getattr(fs, field) for field, name in FEATURES.items()}
    return {name: wanted for name, wanted in asked.items() if wanted is not None}


def _mount_options(fs: Ext4) -> tuple[MountOption, ...]:
    return (
        *mounts.access_times(fs),
        mounts.setting("data", fs.data, "ordered", always=True, checked=fs.has_journal),
        mounts.switch("barrier", fs.barrier, off="nobarrier", given="barrier=0"),
        mounts.switch("discard", fs.discard, on="discard"),
        mounts.setting("commit", fs.commit_s, 5, always=True),
        # data=journal makes the kernel turn delayed allocation off (ext4(5))
        mounts.switch("delalloc", fs.delalloc, off="nodelalloc", checked=fs.data != "journal"),
        *mounts.switched_on(fs, ("lazytime",)),
        *mounts.switched_off(fs, _CLEARED),
        *_direct_reads(fs),
        *(mounts.setting(name, getattr(fs, name), usual) for name, usual in _VALUES.items()),
    )


def _direct_reads(fs: Ext4) -> tuple[MountOption, ...]:
    if fs.dioread_nolock is None:
        return ()
    readings = (("dioread_nolock", "on"), ("dioread_lock", "off"), ("nodioread_nolock", "off"))
    expected = mounts.Expectation("dioread_nolock", _on(fs.dioread_nolock), readings, "on")
    return (MountOption(("dioread_nolock" if fs.dioread_nolock else "dioread_lock",), expected),)


_CLEARED = {
    "auto_da_alloc": "noauto_da_alloc",
    "block_validity": "noblock_validity",
    "prefetch_block_bitmaps": "no_prefetch_block_bitmaps",
}
"""Mount options that are on by default, with the words that clear them."""
_VALUES = {
    "inode_readahead_blks": 32,
    "stripe": 0,
    "max_batch_time": 15000,
    "min_batch_time": 0,
    "errors": "continue",
    "data_err": "ignore",
}
"""Mount options with a value, and the kernel's default, which it does not show."""


def parse_dumpe2fs(text: str) -> dict[str, str]:
    """Parse the fields of `dumpe2fs -h` by their printed names; a line without a colon is an error."""
    fields = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, separator, field = line.partition(":")
        if not separator:
            raise ValueError(f"not a line of dumpe2fs -h: {line!r}")
        fields[name.strip()] = field.strip()
    return fields


def parse_journal_bytes(text: str) -> int:
    """Parse the bytes of `Total journal size`, printed by dumpe2fs as `64M` or `4096k`."""
    match = re.fullmatch(r"(\d+)([kMG]?)", text)
    if match is None:
        raise ValueError(f"not a journal size of dumpe2fs: {text!r}")
    return int(match[1]) * {"": 1, "k": 2**10, "M": 2**20, "G": 2**30}[match[2]]


@dataclass(frozen=True)
class Ext4Check:
    """Checks that the superblock matches the options passed to mkfs."""

    role: str
    node: Argument
    fs: Ext4
    stride: int | None
    width: int | None

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        printed = host.run(command("dumpe2fs", "-h", resolve(self.node, bindings))).stdout
        return self.compare(parse_dumpe2fs(printed))

    def compare(self, fields: Mapping[str, str]) -> tuple[Attested, ...]:
        """Compare configured with actual values; record what mkfs chose (a stride may come from the device)."""
        fs = self.fs
        features = fields["Filesystem features"].split()
        journal_bytes = fs.journal_size // 2**20 * 2**20 if fs.journal_size else None
        rows = [
            ("has_journal", _on(fs.has_journal), _on("has_journal" in features)),
            ("bigalloc", _on(fs.bigalloc_cluster is not None), _on("bigalloc" in features)),
            ("fast_commit", _on(fs.fast_commit), _on("fast_commit" in features)),
            ("stride", self.stride, fields.get("RAID stride", "0")),
            ("stripe_width", self.width, fields.get("RAID stripe width", "0")),
            ("block_size_bytes", fs.block_size, fields["Block size"]),
            ("cluster_bytes", fs.bigalloc_cluster, fields.get("Cluster size", "none")),
        ]
        if fs.log is None:
            actual = str(parse_journal_bytes(fields.get("Total journal size", "0")))
            rows.append(("journal_size_bytes", journal_bytes, actual))
        rows += [(name, _on(wanted), _on(name in features)) for name, wanted in _features(fs).items()]
        sizes = {
            "inode_size": "Inode size",
            "blocks_per_group": "Blocks per group",
            "flex_bg_size": "Flex block group size",
        }
        rows += [
            (name, asked, fields.get(printed, "none"))
            for name, printed in sizes.items()
            if (asked := getattr(fs, name)) is not None
        ]
        if fs.reserved_percent is not None:
            share = 100 * int(fields["Reserved block count"]) / int(fields["Block count"])
            rows.append(("reserved_percent", fs.reserved_percent, str(round(share))))
        return tuple(compare_or_record(f"{self.role} ext4 {what}", asked, actual) for what, asked, actual in rows)


def _on(value: bool) -> str:
    return "on" if value else "off"


BLOCKS_ABOVE_PAGES = (6, 19)
"""The first Linux whose ext4 can have blocks larger than a page."""
ORPHAN_FILE = (5, 15)
"""The first Linux that mounts a filesystem with orphan_file."""


def _kernel_problem(host: Host, fs: Ext4) -> str:
    problem = release_problem(host, "ext4 orphan_file", ORPHAN_FILE) if fs.orphan_file else ""
    return problem or block_size_problem(host, fs.kind, fs.block_size, BLOCKS_ABOVE_PAGES)


KIND = FilesystemKind(
    Ext4,
    plan_ext4,
    capabilities=(
        Capability("fs.ext4", "build ext4", (filesystem("ext4"), program("mkfs.ext4", everywhere("e2fsprogs")))),
    ),
    kernel_problem=_kernel_problem,
)
