"""A stack: everything between PostgreSQL and the medium, as a composition of layers.

A volume is read from the bottom up: `device` (what it sits on), `layers` (LVM, md) and `fs` (the filesystem
or pool that PostgreSQL sees). A stack puts the data directory, pg_wal and tablespaces on volumes and adds the
settings of kernel and server. Every kind is a noun of its own with `kind` as discriminator, so that a new
layer is a new class here and one module in `stack/`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from pgstrata.spec.checks import ext4_problem, stack_problem, volume_problem, xfs_problem
from pgstrata.spec.model import Model, SizeBytes

Self = TypeVar("Self", bound=Model)


def _checked(value: Self, problem: str | None) -> Self:
    if problem is not None:
        raise ValueError(problem)
    return value


# ---------------------------------------------------------------- devices


class LoopDevice(Model):
    """Sparse files in the scratch folder, attached as loop devices with direct I/O."""

    kind: Literal["loop"] = "loop"
    count: int = Field(1, ge=1, le=64)
    size: SizeBytes | None = Field(None, description="size of each file; by default enough for the scale")


class DiskDevice(Model):
    """Real block devices, named by stable id (by-id, by-path, PARTUUID, or path+size+major:minor)."""

    kind: Literal["disk"] = "disk"
    ids: tuple[str, ...] = Field(min_length=1)

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
        return ids

    @property
    def count(self) -> int:
        return len(self.ids)


Device = Annotated[LoopDevice | DiskDevice, Field(discriminator="kind")]

# ---------------------------------------------------------------- block layers


class Lvm(Model):
    """LVM: all devices below become PVs of one VG, which carries one LV."""

    kind: Literal["lvm"] = "lvm"
    layout: Literal["linear", "striped", "thin"] = "linear"
    stripe_size: SizeBytes | None = None
    snapshots: int = Field(0, ge=0, le=16, description="snapshots of the LV kept during the run")


class Md(Model):
    """Linux software RAID over all devices below."""

    kind: Literal["md"] = "md"
    level: Literal["raid0", "raid1", "raid10", "raid5", "raid6"]
    chunk: SizeBytes | None = None
    bitmap: Literal["internal", "none"] = "none"
    assume_clean: bool = False
    state: Literal["clean", "degraded", "rebuilding"] = "clean"

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
    block_size: SizeBytes | None = None
    stride_blocks: int | None = Field(None, ge=1)
    stripe_width_blocks: int | None = Field(None, ge=1)
    journal_size: SizeBytes | None = None
    has_journal: bool = True
    bigalloc_cluster: SizeBytes | None = Field(None, description="cluster size; turns on bigalloc")
    fast_commit: bool = False
    data: Literal["ordered", "writeback", "journal"] | None = None
    noatime: bool = False
    nodiratime: bool = False
    barrier: bool = True
    discard: bool = False
    commit_s: int | None = Field(None, ge=1)
    delalloc: bool = True

    @model_validator(mode="after")
    def _coherent(self) -> Ext4:
        return _checked(self, ext4_problem(self))


class Xfs(Model):
    """xfs: mkfs and mount options."""

    kind: Literal["xfs"] = "xfs"
    block_size: SizeBytes | None = None
    sector_size: SizeBytes | None = None
    log_size: SizeBytes | None = None
    su: SizeBytes | None = Field(None, description="stripe unit of the layer below")
    sw: int | None = Field(None, ge=1, description="stripe width in stripe units")
    agcount: int | None = Field(None, ge=1)
    reflink: Switch = None
    bigtime: Switch = None
    noatime: bool = False
    nodiratime: bool = False
    discard: bool = False
    logbufs: int | None = Field(None, ge=2, le=8)
    logbsize: SizeBytes | None = None
    allocsize: SizeBytes | None = None
    largeio: bool = False

    @model_validator(mode="after")
    def _coherent(self) -> Xfs:
        return _checked(self, xfs_problem(self))


BtrfsProfile = Literal["single", "dup", "raid0", "raid1", "raid10", "raid5", "raid6"]


class Btrfs(Model):
    """btrfs on one or several devices."""

    kind: Literal["btrfs"] = "btrfs"
    data: BtrfsProfile | None = None
    metadata: BtrfsProfile | None = None
    nodesize: SizeBytes | None = None
    nodatacow: bool = False
    nodatasum: bool = False
    compress: str | None = Field(None, pattern=r"^(zlib|lzo|zstd)(:\d+)?$|^no$")
    autodefrag: bool = False
    ssd: Switch = None
    noatime: bool = False
    nodiratime: bool = False
    discard: Literal["async", "sync", "off"] | None = None
    space_cache: Literal["v1", "v2"] | None = None
    barrier: bool = True
    commit_s: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _coherent(self) -> Btrfs:
        if self.nodatacow and self.compress not in (None, "no"):
            raise ValueError("nodatacow turns compression off: choose one")
        return self


class Zfs(Model):
    """A zfs pool and its datasets (one for data, one for pg_wal where `wal_dataset` is set)."""

    kind: Literal["zfs"] = "zfs"
    vdev: Literal["stripe", "mirror", "raid10", "raidz1", "raidz2", "raidz3"] = "stripe"
    ashift: int | None = Field(None, ge=9, le=16)
    log: Device | None = None
    log_mirror: bool = False
    cache: Device | None = None
    special: Device | None = None
    recordsize: SizeBytes | None = None
    compression: str | None = Field(None, pattern=r"^(on|off|lz4|zstd|zstd-fast|gzip|zle|lzjb)(-\d+)?$")
    atime: Switch = None
    relatime: Switch = None
    logbias: Literal["latency", "throughput"] | None = None
    redundant_metadata: Literal["all", "most", "some", "none"] | None = None
    primarycache: Literal["all", "metadata", "none"] | None = None
    sync: Literal["standard", "always", "disabled"] | None = None
    xattr: Literal["on", "off", "sa"] | None = None
    dnodesize: str | None = None
    wal_dataset: dict[str, str] | None = Field(None, description="properties of a dataset of its own for pg_wal")
    module: dict[str, int] = Field(default_factory=dict, description="zfs module parameters, restored afterwards")


class Tmpfs(Model):
    """Memory; nothing survives a power cut."""

    kind: Literal["tmpfs"] = "tmpfs"
    size: SizeBytes | None = None
    huge: Literal["never", "always", "within_size", "advise"] | None = None
    noatime: bool = False


class Nfs(Model):
    """An NFS mount: exported on this host over `export`, or an existing `server:/path`."""

    kind: Literal["nfs"] = "nfs"
    server: str | None = Field(None, description="existing export as host:/path; by default exported on this host")
    version: Literal["3", "4.2"] = "4.2"
    export_sync: bool = True
    rsize: SizeBytes | None = None
    wsize: SizeBytes | None = None
    nconnect: int | None = Field(None, ge=1, le=16)
    hard: bool = True
    noatime: bool = False
    export: Annotated[Ext4 | Xfs | Btrfs, Field(discriminator="kind")] | None = Field(
        None, description="filesystem below the export on this host"
    )


class Existing(Model):
    """A directory that is already there; works without root, is never formatted."""

    kind: Literal["dir"] = "dir"
    path: str


class Imported(Model):
    """A stack that somebody else measured: known by name alone, cannot be built."""

    kind: Literal["imported"] = "imported"


Filesystem = Annotated[Ext4 | Xfs | Btrfs | Zfs | Tmpfs | Nfs | Existing | Imported, Field(discriminator="kind")]

WITHOUT_DEVICE = ("tmpfs", "dir", "imported")


class Volume(Model):
    """A mounted filesystem, from the device up."""

    device: Device = Field(default_factory=LoopDevice)
    layers: tuple[Layer, ...] = ()
    fs: Filesystem

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

    scheduler: str | None = None
    nr_requests: int | None = Field(None, ge=1)
    read_ahead_kb: int | None = Field(None, ge=0)
    rotational: bool | None = None
    write_cache: Literal["write back", "write through"] | None = None


class Kernel(Model):
    """Host-wide kernel settings, set for the trial, attested, and restored afterwards."""

    sysctl: dict[str, str] = Field(default_factory=dict)
    transparent_hugepage: Literal["always", "madvise", "never"] | None = None
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
        return value


class Postgres(Model):
    """The server of a stack: which binaries, how the cluster is made, how it is set."""

    major: int | None = Field(None, ge=13, description="by default the newest on the host")
    source: Literal["system", "embedded"] | None = None
    data_checksums: bool | None = None
    initdb: tuple[str, ...] = ()
    settings: dict[str, str] = Field(default_factory=dict)
    postgresql_conf: str | None = Field(None, description="a whole postgresql.conf to use, a file")

    @field_validator("settings", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {k: ("on" if v else "off") if isinstance(v, bool) else str(v) for k, v in value.items()}


class Stack(Model):
    """A named level of the factor under test, with inheritance and defaults already resolved."""

    name: str
    note: str = ""
    data: Volume
    wal: Volume | None = Field(None, description="where pg_wal lives, if not with the data")
    tablespaces: dict[str, Volume] = Field(default_factory=dict)
    kernel: Kernel = Kernel()
    postgresql: Postgres = Postgres()

    @model_validator(mode="after")
    def _coherent(self) -> Stack:
        return _checked(self, stack_problem(self))

    @property
    def volumes(self) -> dict[str, Volume]:
        """All volumes by role: `data`, `wal`, `tablespace.NAME`."""
        wal = {"wal": self.wal} if self.wal is not None else {}
        return {"data": self.data, **wal, **{f"tablespace.{n}": v for n, v in self.tablespaces.items()}}
