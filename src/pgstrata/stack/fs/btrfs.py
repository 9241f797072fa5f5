"""btrfs on one or several devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgstrata.errors import TrialError
from pgstrata.host.capabilities import KERNEL, Capability, Packages, filesystem, named, program
from pgstrata.host.facts.system import Family
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.stack import mounts
from pgstrata.stack.kind import Below, FilesystemKind, PlannedFilesystem, release_problem
from pgstrata.stack.mounts import MountCheck, MountOption, plan_mount
from pgstrata.stack.place import Place
from pgstrata.stack.safety import LABEL
from pgstrata.stack.step import Argument, Attested, Ref, Step, compare_or_record, mount_stage, planned, resolve

MKFS_TIMEOUT_S = 600.0

_DEFAULT_LEVELS = {"zlib": "zlib:3", "zstd": "zstd:3"}
"""The kernel's level for a compression without one (btrfs(5))."""


def plan_btrfs(fs: Btrfs, below: Below, place: Place) -> PlannedFilesystem:
    """Plan making and mounting btrfs over all nodes below."""
    mkfs = planned("mkfs.btrfs", _mkfs_options(fs), below.nodes, timeout_s=MKFS_TIMEOUT_S)
    # naming each device makes the mount independent of what udev or an earlier scan knows
    others = tuple(_device_option(node) for node in below.nodes[1:])
    source = below.nodes[0] if len(below.nodes) == 1 else None
    options = _mount_options(fs)
    mount = plan_mount("btrfs", (*others, *options), below.nodes[0], place)
    # one over several devices is found by its identity: the kernel keeps those that it has seen
    forget = (planned("btrfs", "device", "scan", "--forget", below.nodes),) if len(below.nodes) > 1 else ()
    examine = planned("btrfs", "check", "--readonly", below.nodes[0])
    return PlannedFilesystem(
        steps=(
            Step(name=f"make btrfs for {place.role}", commands=(mkfs,)),
            mount,
        ),
        mount_point=place.mount_point,
        checks=(
            MountCheck(place.role, place.mount_point, "btrfs", source, options),
            BtrfsCheck(place.role, place.mount_point, fs, below.nodes),
        ),
        stages=(mount_stage(mount, place.mount_point, examine=(examine,), down=forget, alone=True),),
    )


def _device_option(node: Argument) -> Argument:
    return Ref(node.name, before="device=") if isinstance(node, Ref) else f"device={node}"


def _mkfs_options(fs: Btrfs) -> list[Argument]:
    options: list[Argument] = ["-q", "-L", LABEL]
    options += ["-d", fs.data] if fs.data else []
    options += ["-m", fs.metadata] if fs.metadata else []
    options += ["-n", str(fs.nodesize)] if fs.nodesize else []
    options += ["-s", str(fs.sectorsize)] if fs.sectorsize else []
    options += ["--csum", fs.csum] if fs.csum else []
    features = [name if wanted else f"^{name}" for name, (wanted, _) in _features(fs).items() if wanted is not None]
    options += ["-O", ",".join(features)] if features else []
    # the old cache cannot be had on a filesystem made with the free space tree, the default of mkfs
    options += ["-R", "^free-space-tree"] if fs.space_cache == "v1" else []
    return options


def _features(fs: Btrfs) -> dict[str, tuple[bool | None, str]]:
    """Return features of mkfs.btrfs: what was configured, and the flag of the superblock that shows it."""
    return {"no-holes": (fs.no_holes, "NO_HOLES"), "skinny-metadata": (fs.skinny_metadata, "SKINNY_METADATA")}


def _mount_options(fs: Btrfs) -> tuple[MountOption, ...]:
    datacow = ("nodatasum",) if fs.nodatasum and not fs.nodatacow else ()
    # nodatacow implies nodatasum (btrfs(5))
    sums = mounts.switch("nodatasum", fs.nodatasum or fs.nodatacow, on="nodatasum").expected
    compress, forced = (_DEFAULT_LEVELS.get(asked or "", asked) for asked in (fs.compress, fs.compress_force))
    return (
        *mounts.access_times(fs),
        mounts.switch("nodatacow", fs.nodatacow, on="nodatacow"),
        MountOption(datacow, sums),
        mounts.setting("compress", fs.compress, "no", shown=compress, always=True),
        mounts.switch("autodefrag", fs.autodefrag, on="autodefrag"),
        *_device_dependent(fs),
        mounts.switch("barrier", fs.barrier, off="nobarrier"),
        mounts.setting("commit", fs.commit_s, 30, always=True),
        mounts.setting("compress-force", fs.compress_force, "no", shown=forced),
        *mounts.switched_on(fs, ("flushoncommit", "ssd_spread")),
        *mounts.switched_off(fs, {"treelog": "notreelog"}),
        mounts.setting("max_inline", fs.max_inline, 2048),
        mounts.setting("metadata_ratio", fs.metadata_ratio, 0),
    )


def _device_dependent(fs: Btrfs) -> Iterator[MountOption]:
    """Yield options whose default depends on kernel and device; checked only when configured."""
    if fs.ssd is not None:
        shown = mounts.switch("ssd", fs.ssd, on="ssd", checked=not fs.ssd_spread)  # which the kernel shows instead
        yield MountOption(("ssd" if fs.ssd else "nossd",), shown.expected)
    if fs.discard is not None:
        readings = (("discard=async", "async"), ("discard", "sync"))
        word = "nodiscard" if fs.discard == "off" else f"discard={fs.discard}"
        yield MountOption((word,), mounts.Expectation("discard", fs.discard, readings, "off"))
    if fs.space_cache is not None:
        readings = (("space_cache=v2", "v2"), ("space_cache", "v1"))
        expected = mounts.Expectation("space_cache", fs.space_cache, readings, "none")
        yield MountOption((f"space_cache={fs.space_cache}",), expected)


def parse_filesystem_df(text: str) -> dict[str, tuple[str, ...]]:
    """Parse the profiles of each kind of block group from `btrfs filesystem df --raw`: `Data` -> (`raid10`,).

    Lines are `Data, RAID10: total=214695936, used=0`; a kind has several lines while it is being converted.
    """
    profiles: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+), (\w+): total=\d+, used=\d+", line.strip())
        if match is None:
            raise ValueError(f"not a line of btrfs filesystem df: {line!r}")
        profiles[match[1]] = (*profiles.get(match[1], ()), match[2].lower())
    return profiles


def parse_device_usage(text: str) -> tuple[str, ...]:
    """Parse the devices of a filesystem from `btrfs device usage --raw` (lines `/dev/loop0, ID: 1`)."""
    return tuple(re.findall(r"^(\S.*), ID: \d+$", text, re.MULTILINE))


def parse_nodesize(text: str) -> str:
    """Parse the bytes of a metadata node from `btrfs inspect-internal dump-super`."""
    match = re.search(r"^nodesize\s+(\d+)$", text, re.MULTILINE)
    if match is None:
        raise ValueError("no nodesize in the output of btrfs inspect-internal dump-super")
    return match[1]


_CSUMS = {"xxhash": "xxhash64"}
"""Names of dump-super that differ from those of mkfs.btrfs."""


def parse_superblock(text: str) -> dict[str, str]:
    """Parse checksum, block size and the names of feature flags from `btrfs inspect-internal dump-super`."""
    found = dict(re.findall(r"^(csum_type|sectorsize)\s+(.+)$", text, re.MULTILINE))
    flags = re.search(r"^incompat_flags\s+0x[0-9a-f]+\s*\(([^)]*)\)", text, re.MULTILINE)
    csum = re.search(r"\((.+)\)", found.get("csum_type", ""))
    return {
        "csum": csum[1] if csum else "unknown",
        "sectorsize": found.get("sectorsize", "unknown"),
        "flags": " ".join((flags[1] if flags else "").replace("|", " ").split()),
    }


@dataclass(frozen=True)
class BtrfsCheck:
    """Checks that profiles, devices and node size are as passed to mkfs."""

    role: str
    mount_point: str
    fs: Btrfs
    nodes: tuple[Argument, ...]

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        nodes = [resolve(node, bindings) for node in self.nodes]
        profiles = parse_filesystem_df(host.run(command("btrfs", "filesystem", "df", "--raw", self.mount_point)).stdout)
        named = parse_device_usage(host.run(command("btrfs", "device", "usage", "--raw", self.mount_point)).stdout)
        used = host.run(command("readlink", "--canonicalize", list(named))).stdout.split()  # /dev/mapper/... of lvm
        superblock = host.run(command("btrfs", "inspect-internal", "dump-super", nodes[0])).stdout
        rows = (
            ("data profile", self.fs.data, "+".join(profiles.get("Data", ()))),
            ("metadata profile", self.fs.metadata, "+".join(profiles.get("Metadata", ()))),
            ("nodesize_bytes", self.fs.nodesize, parse_nodesize(superblock)),
            ("devices", " ".join(sorted(nodes)), " ".join(sorted(used))),
        )
        compared = tuple(compare_or_record(f"{self.role} btrfs {what}", asked, got) for what, asked, got in rows)
        return (*compared, *self.compare_superblock(parse_superblock(superblock)))

    def compare_superblock(self, shown: Mapping[str, str]) -> tuple[Attested, ...]:
        """Compare what was configured; nothing else is recorded."""
        csum = _CSUMS.get(self.fs.csum or "", self.fs.csum)
        flags = shown["flags"].split()
        rows: list[tuple[str, object, object]] = [
            ("csum", csum, shown["csum"]),
            ("sectorsize_bytes", self.fs.sectorsize, shown["sectorsize"]),
        ]
        rows += [(name, wanted, shows in flags) for name, (wanted, shows) in _features(self.fs).items()]
        compared = (row for row in rows if row[1] is not None)
        return tuple(compare_or_record(f"{self.role} btrfs {what}", asked, got) for what, asked, got in compared)


_USED = re.compile(r"^\s+Used:\s+(\d+)\s*$", re.MULTILINE)


def parse_btrfs_used(text: str) -> int:
    """Parse the overall `Used:` of `btrfs filesystem usage --raw`; TrialError when it is missing."""
    match = _USED.search(text)
    if match is None:
        raise TrialError("btrfs filesystem usage printed no overall `Used:`")
    return int(match[1])


def _used_bytes(host: Host, mount_point: str, directory: str) -> int:
    """Return the bytes of all copies on all devices, which df divides out."""
    return parse_btrfs_used(host.run(command("btrfs", "filesystem", "usage", "--raw", mount_point)).stdout)


MORE_COPIES = {"raid1c3": (5, 5), "raid1c4": (5, 5)}
"""The first Linux that has a profile (btrfs(5)); all others predate the kernels that pgstrata supports."""


def _kernel_problem(host: Host, fs: Btrfs) -> str:
    asked = dict.fromkeys(profile for profile in (fs.data, fs.metadata) if profile in MORE_COPIES)
    problems = (release_problem(host, f"btrfs {profile}", MORE_COPIES[profile]) for profile in asked)
    return next(filter(None, problems), "")


_MODULE: Packages = {family: names for family, names in KERNEL.items() if family != "rhel"}
_NO_MODULE: dict[Family, str] = {"rhel": "the kernel of this distribution has no btrfs"}

KIND = FilesystemKind(
    Btrfs,
    plan_btrfs,
    capabilities=(
        Capability(
            "fs.btrfs",
            "build btrfs",
            (
                filesystem("btrfs", _MODULE, _NO_MODULE),
                program("mkfs.btrfs", named("btrfs-progs", "btrfs-progs", "btrfsprogs", "btrfs-progs")),
            ),
        ),
    ),
    used_bytes=_used_bytes,
    kernel_problem=_kernel_problem,
)
