"""btrfs on one or several devices.

Minima: mkfs.btrfs(8), PROFILES. Write hole: btrfs(5), RAID56 status and recommended practices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pgstrata.spec.durability_class import LOSES_CACHE, BackingFs, Parity, Promises
from pgstrata.spec.layers.kind import LocalFilesystem, Switch, redundancy
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import (
    IMPLIED_MOUNT_WORDS,
    LEAVE_OUT,
    MOUNT_WORDS,
    SYNCHRONOUS,
    Refusal,
    refuse,
    render_call,
    render_options,
    spelled,
)

_COPIES = {"dup": 2.0, "raid1": 2.0, "raid10": 2.0, "raid1c3": 3.0, "raid1c4": 4.0}
_PARITY_DISKS = {"raid5": 1, "raid6": 2}
Profile = Literal["single", "dup", "raid0", "raid1", "raid1c3", "raid1c4", "raid10", "raid5", "raid6"]

_REFUSED: Mapping[str, Refusal] = {
    **MOUNT_WORDS,
    **SYNCHRONOUS,
    **refuse("zstd lzo zlib", "it is a value of compress", "write compress=zstd"),
    **refuse("check_int check_int_data check_int_print_mask enospc_debug noenospc_debug fatal_errors fragment "
             "ref_verify", "it is for debugging of btrfs", LEAVE_OUT),
    **refuse("degraded nologreplay norecovery recovery rescue usebackuproot rescan_uuid_tree skip_balance clear_cache "
             "ignorebadroots ignoredatacsums", "it is for damaged filesystems, and pgstrata mounts one that it made",
             LEAVE_OUT),
    **refuse("lazytime", "btrfs does not hold timestamps back, with it or without"),
    **refuse("device", "pgstrata names the devices of the stack itself", "write their number: btrfs(raid1,2)"),
    **refuse("subvol subvolid user_subvol_rm_allowed", "the filesystem has one subvolume, which PostgreSQL lies in"),
    **refuse("thread_pool", "the kernel shows it only where it differs from a default that depends on the processors, "
             "so that it could not be attested"),
    **refuse("inode_cache noinode_cache alloc_start subvolrootid", "the kernel has removed it", LEAVE_OUT),
    **refuse("nospace_cache free-space-tree free_space_tree -R~free-space-tree",
             "how free space is remembered is one option", "write space_cache=v1 or space_cache=v2"),
    **refuse("-b byte-count --byte-count", "the filesystem takes all of the devices below",
             "give the devices a size: loop(size=20G)/btrfs"),
    **refuse("-M --mixed mixed-bg mixed_bg", "it is for filesystems below 1 GiB"),
    **refuse("zoned quota squota -R~quota raid-stripe-tree extent-tree-v2 remap-tree",
             "it is experimental, needs zoned disks, or counts quotas that a benchmark has none of"),
    **refuse("raid56 -O~raid56", "it follows from the profile", "write btrfs(raid5,3)"),
    **refuse("block-group-tree block_group_tree", "the mkfs.btrfs that pgstrata is tested with (6.2) does not make it"),
    **refuse("extref block-group-tree-v2 list-all", "every mkfs.btrfs of today decides it by itself", LEAVE_OUT),
    **refuse("-L --label label -U --uuid uuid -r --rootdir rootdir --shrink shrink --subvol --compress --reflink -K "
             "--nodiscard -f --force -q --quiet -v --verbose -V --version --help --device-uuid --param --inode-flags",
             "it is about how mkfs.btrfs runs or names and fills the filesystem, and pgstrata decides that", LEAVE_OUT),
    **refuse("-l --leafsize leafsize", "mkfs.btrfs has replaced it", "write nodesize=16k"),
}  # fmt: skip


class Btrfs(LocalFilesystem):
    """btrfs on one or several devices."""

    kind: Literal["btrfs"] = "btrfs"
    assembles: ClassVar[bool] = True

    aliases: ClassVar[Mapping[str, str]] = {"commit": "commit_s", "datacow": "nodatacow", "datasum": "nodatasum"}
    also: ClassVar[Mapping[str, str]] = spelled(
        data="-d --data", metadata="-m --metadata", nodesize="-n --nodesize", sectorsize="-s --sectorsize",
        csum="--csum --checksum checksum", no_holes="no-holes", skinny_metadata="skinny-metadata",
        compress_force="compress-force",
    )  # fmt: skip
    bare: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "discard": {"discard": "sync"},
        "nodiscard": {"discard": "off"},
        "compress": {"compress": "zlib"},
        "compress-force": {"compress_force": "zlib"},
        "space_cache": {"space_cache": "v1"},
    }
    implied: ClassVar[frozenset[str]] = IMPLIED_MOUNT_WORDS | {
        *("async", "noautodefrag", "noflushoncommit", "nossd_spread")
    }
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED
    layout_field: ClassVar[str] = "data"
    layout_minimum: ClassVar[Mapping[str, int]] = {
        "raid0": 2, "raid1": 2, "raid10": 4, "raid5": 2, "raid6": 3, "raid1c3": 3, "raid1c4": 4,
    }  # fmt: skip
    layout_usual: ClassVar[Mapping[str, int]] = {"raid5": 3, "raid6": 4}
    spans_devices: ClassVar[bool] = True
    copy_on_write: ClassVar[bool] = True

    data: Profile | None = Field(None, description="profile of data; mkfs.btrfs takes single")
    metadata: Profile | None = Field(
        None, description="profile of metadata; mkfs.btrfs takes dup, or raid1 over several devices"
    )
    nodesize: SizeBytes | None = Field(None, description="bytes of a metadata node")
    nodatacow: bool = Field(False, description="overwrite data in place, without checksums")
    nodatasum: bool = Field(False, description="no checksums of data")
    compress: str | None = Field(
        None, pattern=r"^(zlib|lzo|zstd)(:\d+)?$|^no$", description="zstd, lzo, zlib, with a level as zstd:3"
    )
    autodefrag: bool = Field(False, description="rewrite small random writes later")
    ssd: Switch = Field(None, description="allocate as on an SSD; told from the device by default")
    noatime: bool = Field(False, description="do not record when files are read")
    nodiratime: bool = Field(False, description="the same for directories only")
    discard: Literal["async", "sync", "off"] | None = Field(None, description="trim freed blocks")
    space_cache: Literal["v1", "v2"] | None = Field(None, description="how free space is remembered")
    barrier: bool = Field(True, description="false: no flush reaches the device (nobarrier); loses data on power loss")
    commit_s: int | None = Field(None, ge=1, description="seconds between commits; the kernel takes 30")
    csum: Literal["crc32c", "xxhash", "sha256", "blake2"] | None = Field(
        None, description="algorithm of all checksums, mkfs.btrfs --csum"
    )
    sectorsize: SizeBytes | None = Field(
        None, description="bytes of a block of data, mkfs.btrfs -s; not above the page size"
    )
    no_holes: Switch = Field(None, description="no entries for holes of files, mkfs.btrfs -O no-holes")
    skinny_metadata: Switch = Field(None, description="smaller extent references, mkfs.btrfs -O skinny-metadata")
    compress_force: str | None = Field(
        None,
        pattern=r"^(zlib|lzo|zstd)(:\d+)?$",
        description="compress also what seems incompressible; values of compress",
    )
    flushoncommit: bool = Field(False, description="write all data with every commit")
    max_inline: int | None = Field(None, ge=0, description="bytes of the largest file in metadata; kernel: 2048")
    metadata_ratio: int | None = Field(None, ge=1, description="allocate metadata for every so many chunks of data")
    ssd_spread: bool = Field(False, description="allocate in large free ranges")
    treelog: bool = Field(True, description="false: every fsync is a whole commit (notreelog)")
    strictatime: bool = Field(False, description="record every reading of a file")

    @field_validator("compress", "discard", mode="before")
    @classmethod
    def _word(cls, value: object, info: ValidationInfo) -> object:
        """YAML reads `no` and `off` as a truth value."""
        return {"compress": "no", "discard": "off"}[str(info.field_name)] if value is False else value

    @model_validator(mode="after")
    def _coherent(self) -> Btrfs:
        if self.nodatacow and self.compress not in (None, "no"):
            raise ValueError("nodatacow turns compression off: choose one")
        if self.compress_force is not None and (self.nodatacow or self.compress is not None):
            raise ValueError("compress_force excludes compress and nodatacow: choose one")
        if self.ssd_spread and self.ssd is False:
            raise ValueError("ssd_spread is a way of ssd: leave out nossd")
        if self.noatime and self.strictatime:
            raise ValueError("noatime and strictatime exclude each other: choose one")
        return self

    @property
    def _profiles(self) -> dict[str, str]:
        asked = {"data": self.data, "metadata": self.metadata}
        return {what: profile for what, profile in asked.items() if profile is not None}

    def count_problem(self, count: int) -> str | None:
        for what, profile in self._profiles.items():
            if problem := self.layout_problem(profile, count):
                return f"{problem} ({what} profile)"
        return None

    def copies(self, devices: int) -> float:
        profile = self.data or "single"
        return _COPIES.get(profile) or redundancy(_PARITY_DISKS.get(profile, 0), devices)

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        if not self.barrier:
            yield LOSES_CACHE, f"barrier=0 on {where}: no flush reaches the device"

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """With copy on write too: it takes the two blocks of a page one by one (docs/crash.md, "Controls")."""
        return True

    @property
    def parity(self) -> tuple[Parity, ...]:
        return tuple(Parity(f"btrfs {p}") for p in dict.fromkeys(self._profiles.values()) if p in _PARITY_DISKS)

    @classmethod
    def parse_layouts(cls, layouts: Sequence[str]) -> dict[str, Any]:
        """One profile goes for data and metadata; `btrfs(raid0,raid1)` names both."""
        return {"data": layouts[0], "metadata": layouts[-1]}

    def render(self, count: str = "") -> str:
        """Profiles stand in parentheses where both are given, else as options."""
        options = render_options(self)
        if self.data is None or self.metadata is None:
            return render_call(self.kind, [count], options)
        shown = {f"data={self.data}", f"metadata={self.metadata}"}
        profiles = [self.data] if self.data == self.metadata else [self.data, self.metadata]
        return render_call(self.kind, [*profiles, count], ",".join(o for o in options.split(",") if o not in shown))
