"""A stack: everything between PostgreSQL and the medium, as a composition of layers.

A volume is read from the bottom up: `device` (what it sits on), `layers` (LVM, md) and `fs` (the filesystem
or pool that PostgreSQL sees). A stack puts the data directory, pg_wal and tablespaces on volumes and adds the
settings of kernel and server. Every kind is a noun of its own with `kind` as discriminator, so that a new
layer is a new class here and one module in `stack/`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from pgstrata.spec.checks import ext4_problem, stack_problem, volume_problem, xfs_problem
from pgstrata.spec.initdb import initdb_problem
from pgstrata.spec.model import Model, Name, SizeBytes

Self = TypeVar("Self", bound=Model)


def _checked(value: Self, problem: str | None) -> Self:
    if problem is not None:
        raise ValueError(problem)
    return value


# ---------------------------------------------------------------- devices


class LoopDevice(Model):
    """Sparse files in the scratch folder, attached as loop devices with direct I/O."""

    kind: Literal["loop"] = "loop"
    count: int = Field(1, ge=1, le=64, description="how many; by default what the layout needs")
    size: SizeBytes | None = Field(None, description="size of each file; by default enough for the scale")


class DiskDevice(Model):
    """Real block devices, named by stable id (by-id, by-path, PARTUUID, or path+size+major:minor)."""

    kind: Literal["disk"] = "disk"
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


Device = Annotated[LoopDevice | DiskDevice, Field(discriminator="kind")]

# ---------------------------------------------------------------- block layers


class Lvm(Model):
    """LVM: all devices below become PVs of one VG, which carries one LV."""

    kind: Literal["lvm"] = "lvm"
    layout: Literal["linear", "striped", "thin"] = Field(
        "linear", description="linear concatenates the PVs; striped writes round them; thin allocates on first write"
    )
    stripe_size: SizeBytes | None = Field(None, description="with striped: bytes on one PV before the next")
    snapshots: int = Field(0, ge=0, le=16, description="snapshots of the LV kept during the run")


class Md(Model):
    """Linux software RAID over all devices below."""

    kind: Literal["md"] = "md"
    level: Literal["raid0", "raid1", "raid10", "raid5", "raid6"] = Field(description="RAID level")
    chunk: SizeBytes | None = Field(None, description="bytes on one device before the next; mdadm takes 512k")
    bitmap: Literal["internal", "none"] = Field(
        "none", description="write-intent bitmap, for a short resync after a crash"
    )
    assume_clean: bool = Field(False, description="skip the first resync; right for devices that read as zeros")
    state: Literal["clean", "degraded", "rebuilding"] = Field(
        "clean", description="degraded: one device missing; rebuilding: while it is being replaced"
    )

    @model_validator(mode="after")
    def _coherent(self) -> Md:
        if self.level == "raid0" and self.state != "clean":
            raise ValueError("raid0 has no redundancy: it cannot be degraded or rebuilding")
        if self.level == "raid1" and self.chunk is not None:
            raise ValueError("raid1 has no chunk size")
        return self


Layer = Annotated[Lvm | Md, Field(discriminator="kind")]

# ---------------------------------------------------------------- filesystems

Switch = bool | None
"""A mount option that is set, cleared or (None) left at the kernel's default."""


class Ext4(Model):
    """ext4: mke2fs and mount options that matter to PostgreSQL."""

    kind: Literal["ext4"] = "ext4"
    block_size: SizeBytes | None = Field(None, description="mke2fs -b")
    stride_blocks: int | None = Field(
        None, ge=1, description="blocks on one disk of the array below; taken from md by itself"
    )
    stripe_width_blocks: int | None = Field(None, ge=1, description="stride times data disks; taken from md by itself")
    journal_size: SizeBytes | None = Field(None, description="mke2fs -J size")
    has_journal: bool = Field(True, description="false: no journal at all")
    bigalloc_cluster: SizeBytes | None = Field(None, description="cluster size; turns on bigalloc")
    fast_commit: bool = Field(False, description="mke2fs -O fast_commit: smaller journal commits")
    data: Literal["ordered", "writeback", "journal"] | None = Field(
        None, description="journalling mode; the kernel takes ordered"
    )
    noatime: bool = Field(False, description="do not record when files are read")
    nodiratime: bool = Field(False, description="the same for directories only; noatime includes it")
    barrier: bool = Field(True, description="false: no flush reaches the device (barrier=0); loses data on power loss")
    discard: bool = Field(False, description="trim freed blocks at once")
    commit_s: int | None = Field(None, ge=1, description="seconds between journal commits; the kernel takes 5")
    delalloc: bool = Field(True, description="false: allocate blocks at write (nodelalloc)")

    @model_validator(mode="after")
    def _coherent(self) -> Ext4:
        return _checked(self, ext4_problem(self))


class Xfs(Model):
    """xfs: mkfs and mount options."""

    kind: Literal["xfs"] = "xfs"
    block_size: SizeBytes | None = Field(None, description="mkfs.xfs -b size; above the page size only on new kernels")
    sector_size: SizeBytes | None = Field(None, description="mkfs.xfs -s size")
    log_size: SizeBytes | None = Field(None, description="mkfs.xfs -l size")
    su: SizeBytes | None = Field(None, description="stripe unit of the layer below")
    sw: int | None = Field(None, ge=1, description="stripe width in stripe units")
    agcount: int | None = Field(None, ge=1, description="allocation groups")
    reflink: Switch = Field(None, description="shared extents; on by default in new xfsprogs")
    bigtime: Switch = Field(None, description="timestamps beyond 2038")
    noatime: bool = Field(False, description="do not record when files are read")
    nodiratime: bool = Field(False, description="the same for directories only")
    discard: bool = Field(False, description="trim freed blocks at once")
    logbufs: int | None = Field(None, ge=2, le=8, description="log buffers in memory")
    logbsize: SizeBytes | None = Field(None, description="bytes of a log buffer")
    allocsize: SizeBytes | None = Field(None, description="preallocation at the end of growing files")
    largeio: bool = Field(False, description="report the stripe width as preferred I/O size")

    @model_validator(mode="after")
    def _coherent(self) -> Xfs:
        return _checked(self, xfs_problem(self))


BtrfsProfile = Literal["single", "dup", "raid0", "raid1", "raid10", "raid5", "raid6"]


class Btrfs(Model):
    """btrfs on one or several devices."""

    kind: Literal["btrfs"] = "btrfs"
    data: BtrfsProfile | None = Field(None, description="profile of data; mkfs.btrfs takes single")
    metadata: BtrfsProfile | None = Field(
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

    @model_validator(mode="after")
    def _coherent(self) -> Btrfs:
        if self.nodatacow and self.compress not in (None, "no"):
            raise ValueError("nodatacow turns compression off: choose one")
        return self


WAL_DATASET_PROPERTIES = (
    *("atime", "checksum", "compression", "copies", "dnodesize", "logbias", "primarycache", "recordsize"),
    *("redundant_metadata", "relatime", "secondarycache", "special_small_blocks", "sync", "xattr"),
)


class Zfs(Model):
    """A zfs pool and its datasets (one for data, one for pg_wal where `wal_dataset` is set)."""

    kind: Literal["zfs"] = "zfs"
    vdev: Literal["stripe", "mirror", "raid10", "raidz1", "raidz2", "raidz3"] = Field(
        "stripe", description="how the devices form the pool; raid10 stripes over mirrors of two"
    )
    ashift: int | None = Field(None, ge=9, le=16, description="sector size as a power of two; 12 is 4k")
    log: Device | None = Field(None, description="device of the intent log, which commits wait for")
    log_mirror: bool = Field(False, description="mirror the log over two devices")
    cache: Device | None = Field(None, description="second-level read cache")
    special: Device | None = Field(None, description="device for metadata and small blocks")
    recordsize: SizeBytes | None = Field(None, description="largest block of a file; zfs takes 128k")
    compression: str | None = Field(
        None,
        pattern=r"^(on|off|lz4|zstd|zstd-fast|gzip|zle|lzjb)(-\d+)?$",
        description="lz4, zstd, zstd-3, gzip-6, off",
    )
    atime: Switch = Field(None, description="record when files are read")
    relatime: Switch = Field(None, description="record it rarely")
    logbias: Literal["latency", "throughput"] | None = Field(
        None, description="throughput writes large commits to the pool directly"
    )
    redundant_metadata: Literal["all", "most", "some", "none"] | None = Field(
        None, description="how much metadata has an extra copy"
    )
    primarycache: Literal["all", "metadata", "none"] | None = Field(None, description="what the ARC holds")
    sync: Literal["standard", "always", "disabled"] | None = Field(
        None, description="disabled: fsync returns without writing; loses data on power loss"
    )
    xattr: Literal["on", "off", "sa"] | None = Field(None, description="sa keeps extended attributes in the inode")
    dnodesize: str | None = Field(None, pattern=r"^(legacy|auto|\d+k?)$", description="size of an inode")
    wal_dataset: dict[str, str] | None = Field(None, description="properties of a dataset of its own for pg_wal")
    module: dict[str, int] = Field(default_factory=dict, description="zfs module parameters, restored afterwards")

    @field_validator("module")
    @classmethod
    def _parameters(cls, module: dict[str, int]) -> dict[str, int]:
        """The name is the last part of a path below /sys/module."""
        for name in module:
            if re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) is None:
                raise ValueError(f"{name!r} is no parameter of the zfs module (for example zfs_arc_max)")
        return module

    @field_validator("wal_dataset")
    @classmethod
    def _properties(cls, properties: dict[str, str] | None) -> dict[str, str] | None:
        """Only what concerns how data is stored: others share the dataset, mount it elsewhere or load keys."""
        for name, value in (properties or {}).items():
            if name not in WAL_DATASET_PROPERTIES:
                raise ValueError(
                    f"{name!r} cannot be set for wal_dataset; these can: {', '.join(WAL_DATASET_PROPERTIES)}"
                )
            if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", value) is None:
                raise ValueError(f"{value!r} is no value of the property {name}")
        return properties


class Tmpfs(Model):
    """Memory; nothing survives a power cut."""

    kind: Literal["tmpfs"] = "tmpfs"
    size: SizeBytes | None = Field(None, description="limit; by default half of the memory")
    huge: Literal["never", "always", "within_size", "advise"] | None = Field(None, description="huge pages")
    noatime: bool = Field(False, description="do not record when files are read")


class Nfs(Model):
    """An NFS mount: exported on this host over `export`, or an existing `server:/path`."""

    kind: Literal["nfs"] = "nfs"
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
    export: Annotated[Ext4 | Xfs | Btrfs, Field(discriminator="kind")] | None = Field(
        None, description="filesystem below the export on this host"
    )

    @field_validator("server")
    @classmethod
    def _host_and_path(cls, server: str | None) -> str | None:
        # a name or an address, never an option of mount(8)
        if server is not None and re.fullmatch(r"(\w[\w.-]*|\[[0-9A-Fa-f:.]+(%\w+)?\]):/\S*", server, re.ASCII) is None:
            raise ValueError(f"{server!r} is no export of a server (for example server=db2:/srv/postgres)")
        return server


class Existing(Model):
    """A directory that is already there; works without root, is never formatted."""

    kind: Literal["dir"] = "dir"
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


class Imported(Model):
    """A stack that somebody else measured: known by name alone, cannot be built."""

    kind: Literal["imported"] = "imported"


Filesystem = Annotated[Ext4 | Xfs | Btrfs | Zfs | Tmpfs | Nfs | Existing | Imported, Field(discriminator="kind")]

WITHOUT_DEVICE = ("tmpfs", "dir", "imported")


class Volume(Model):
    """A mounted filesystem, from the device up."""

    device: Device = Field(default_factory=LoopDevice, description="what it sits on; by default one sparse loop file")
    layers: tuple[Layer, ...] = Field((), description="LVM and md, from the bottom up")
    fs: Filesystem = Field(description="the filesystem")

    @model_validator(mode="after")
    def _coherent(self) -> Volume:
        # The default device stands for "none asked", so that a volume survives a round trip through JSON.
        return _checked(self, volume_problem(self, device_given=self.device != LoopDevice()))

    @property
    def needs_device(self) -> bool:
        if isinstance(self.fs, Nfs):
            return self.fs.server is None
        return self.fs.kind not in WITHOUT_DEVICE


# ---------------------------------------------------------------- settings


class Queue(Model):
    """Settings of the block queue of each device of the stack (/sys/block/X/queue)."""

    scheduler: str | None = Field(None, pattern=r"^[a-z][a-z0-9-]*$", description="none, mq-deadline, kyber, bfq")
    nr_requests: int | None = Field(None, ge=1, description="requests that the scheduler may hold")
    read_ahead_kb: int | None = Field(None, ge=0, description="read-ahead")
    rotational: bool | None = Field(None, description="whether the kernel takes the device for a disk that turns")
    write_cache: Literal["write back", "write through"] | None = Field(
        None, description="write through: the kernel sends no flushes"
    )


class Kernel(Model):
    """Host-wide kernel settings, set for the trial, attested, and restored afterwards."""

    sysctl: dict[str, str] = Field(default_factory=dict, description="vm., kernel. and fs. settings by name")
    transparent_hugepage: Literal["always", "madvise", "never"] | None = Field(
        None, description="/sys/kernel/mm/transparent_hugepage/enabled"
    )
    queue: Queue = Queue()

    @field_validator("sysctl", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return {k: str(v) for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("sysctl")
    @classmethod
    def _known(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            if not key.startswith(("vm.", "kernel.", "fs.")):
                raise ValueError(f"{key} is not a vm., kernel. or fs. setting")
            if re.fullmatch(r"[a-z]+([.][a-z0-9_-]+)+", key, re.IGNORECASE) is None:
                raise ValueError(f"{key!r} is no name of a kernel setting")
            if re.fullmatch(r"[\w +-]*", value[key], re.ASCII) is None:
                # What is left out by this names a program to run (kernel.core_pattern, kernel.modprobe).
                raise ValueError(f"{key} takes numbers and words, not {value[key]!r}")
        return value


class Postgres(Model):
    """The server of a stack: which binaries, how the cluster is made, how it is set."""

    major: int | None = Field(None, ge=13, description="by default the newest on the host")
    source: Literal["system", "embedded"] | None = Field(
        None,
        description="system packages, or the PostgreSQL that comes with pgstrata; by default system before embedded",
    )
    data_checksums: bool | None = Field(None, description="by default as initdb of that version does")
    initdb: tuple[str, ...] = Field(
        (), description="further options of initdb: what the cluster is made like, no files and no ways in"
    )
    settings: dict[str, str] = Field(default_factory=dict, description="settings by name, applied and read back")
    postgresql_conf: str | None = Field(
        None, description="a whole postgresql.conf, a file; docs/postgresql.md says what is taken over of it"
    )

    @field_validator("initdb")
    @classmethod
    def _harmless(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        if problem := initdb_problem(options):
            raise ValueError(problem)
        return options

    @field_validator("settings", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {k: ("on" if v else "off") if isinstance(v, bool) else str(v) for k, v in value.items()}


class Stack(Model):
    """A named level of the factor under test, with inheritance and defaults already resolved."""

    name: Name
    note: str = ""
    data: Volume = Field(description="the data directory")
    wal: Volume | None = Field(None, description="where pg_wal lives, if not with the data")
    tablespaces: dict[str, Volume] = Field(
        default_factory=dict, description="further tablespaces by name; workload.tablespace says which one pgbench uses"
    )
    kernel: Kernel = Kernel()
    postgresql: Postgres = Postgres()

    @field_validator("tablespaces")
    @classmethod
    def _plain_names(cls, tablespaces: dict[str, Volume]) -> dict[str, Volume]:
        """The name is part of mount points and of names of volume groups and pools."""
        for name in tablespaces:
            if re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name) is None or name.startswith("pg_"):
                raise ValueError(f"{name!r} is no name of a tablespace: small letters, digits and _, not beginning pg_")
        return tablespaces

    @model_validator(mode="after")
    def _coherent(self) -> Stack:
        return _checked(self, stack_problem(self))

    @property
    def volumes(self) -> dict[str, Volume]:
        """All volumes by role: `data`, `wal`, `tablespace.NAME`."""
        wal = {"wal": self.wal} if self.wal is not None else {}
        return {"data": self.data, **wal, **{f"tablespace.{n}": v for n, v in self.tablespaces.items()}}
