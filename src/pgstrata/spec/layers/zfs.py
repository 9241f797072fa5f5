"""zfs: a pool over all devices below, with datasets for files, or a volume (zvol) for a filesystem.

Minima: zpoolconcepts(7). Properties: zfsprops(7), zpoolprops(7). Durability: zfsprops(7) (sync), zfs(4)
(zfs_nocacheflush).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from pgstrata.errors import UsageError
from pgstrata.spec.durability_class import LOSES, LOSES_CACHE, PAGE_BYTES, BackingFs, Promises
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.layers.kind import (
    BlockLayer,
    Device,
    Filesystem,
    Kind,
    Switch,
    parse_own_device,
    redundancy,
    render_own_device,
)
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import LEAVE_OUT, Call, Refusal, parse_options, refuse, render_call, render_options
from pgstrata.spec.notation.tokens import split_call, split_top

_PARITY_DISKS = {"raidz1": 1, "raidz2": 2, "raidz3": 3}
VDEVS = ("log", "cache", "special")
OTHER_NAMES = {"slog": "log", "zil": "log", "logs": "log", "l2arc": "cache", "metadata": "special"}
_LAYOUTS = ("mirror", "raidz", "raidz1", "raidz2", "raidz3", "draid", "stripe")

NO_VDEV: Mapping[str, Refusal] = {
    **refuse(
        "dedup", "a device for the table of deduplication is not built; the table lies in the pool or on +special"
    ),
    **refuse("spare", "a spare takes over when a device fails, and no device of a stack fails", LEAVE_OUT),
}
REFUSED: Mapping[str, Refusal] = {
    **refuse("available avail compressratio createtxg creation clones defer_destroy encryptionroot filesystem_count "
             "keystatus guid logicalreferenced lrefer logicalused lused mounted objsetid origin receive_resume_token "
             "redact_snaps referenced refer refcompressratio snapshot_count type used usedbychildren usedbydataset "
             "usedbyrefreservation usedbysnapshots userused userobjused userrefs groupused groupobjused projectused "
             "projectobjused volblocksize_used written snapshots_changed allocated bcloneratio bclonesaved bcloneused "
             "capacity cap dedupcached dedup_table_size dedupratio expandsize expandsz fragmentation frag free freeing "
             "health leaked load_guid maxblocksize maxdnodesize unsupported last_scrubbed_txg",
             "it is a reading and cannot be set", LEAVE_OUT),
    **refuse("size", "the pool takes its devices as a whole", "give the devices a size: loop(4,size=20G)/zfs(raid10)"),
    **refuse("keyformat keylocation pbkdf2iters pbkdf2salt",
             "the key is made for the trial, lies in memory, and is wiped with it", "write encryption=aes-256-gcm"),
    **refuse("volsize volblocksize volmode snapdev volthreading refreservation_auto",
             "it is of a zvol, which is a layer below a filesystem", "write zvol:volblocksize=16k/ext4"),
    **refuse("quota refquota reservation refreservation userquota userobjquota groupquota groupobjquota projectquota "
             "projectobjquota defaultuserquota defaultgroupquota defaultprojectquota defaultuserobjquota "
             "defaultgroupobjquota defaultprojectobjquota filesystem_limit snapshot_limit",
             "it bounds or reserves space, and the datasets have the pool for themselves"),
    **refuse("mountpoint canmount overlay altroot cachefile bootfs readonly rdonly jailed zoned mlslabel",
             "pgstrata decides where the pool is mounted, and that no other program finds it", LEAVE_OUT),
    **refuse("devices exec setuid nbmand vscan sharenfs sharesmb snapdir delegation aclinherit aclmode context "
             "fscontext defcontext rootcontext listsnapshots listsnaps comment version longname",
             "it is about access to files or how they are listed and does not change how PostgreSQL reads and writes"),
    **refuse("casesensitivity normalization utf8only", "it changes how names of files are compared, and PostgreSQL's "
             "names are lower-case ASCII"),
    **refuse("autoexpand expand autoreplace replace", "it is for devices that grow or are replaced, and those of a "
             "stack stay"),
    **refuse("lz4 zstd gzip zle lzjb", "it is a value of compression", "write compression=lz4"),
    **refuse("vdev", "the layout stands in parentheses", "write zfs(mirror,2)"),
    **refuse("log cache special log_mirror special_mirror", "further vdevs follow a plus sign or stand in parentheses",
             "write zfs+log(mirror)+special(mirror)"),
    **refuse("xattr=dir", "it is another word for xattr=on", "write xattr=on"),
    **refuse("dedup=edonr", "zfs takes edonr for deduplication only with a comparison", 'write dedup="edonr,verify"'),
    **refuse("failmode=panic", "a pool without its devices would take the host down", "write failmode=continue"),
    **refuse("multihost", "it is for pools on storage that several hosts share, and delays every import"),
    **refuse("feature", "features follow the version of OpenZFS, or one list of it",
             "write compatibility=openzfs-2.1-linux"),
    **refuse("dedup_table_quota dedupditto", "the table of a benchmark's pool is as large as its data make it"),
    **refuse("-f -n -d -R -m -t -o~cachefile -O~mountpoint -O~canmount", "pgstrata decides how zpool create runs",
             LEAVE_OUT),
    **refuse("spare draid", "pgstrata does not build this vdev"),
}  # fmt: skip


class ZfsPool(Kind):
    """The requested half of a kind that makes a pool of zfs."""

    aliases: ClassVar[Mapping[str, str]] = {"copies": "data_copies"}
    also: ClassVar[Mapping[str, str]] = {"compress": "compression"}
    implied: ClassVar[frozenset[str]] = frozenset({"canmount=off", "cachefile=none"})
    refused: ClassVar[Mapping[str, Refusal]] = REFUSED
    not_options: ClassVar[frozenset[str]] = frozenset(
        {"vdev", "log", "log_mirror", "cache", "special", "special_mirror"}
    )
    own_names: ClassVar[tuple[str, ...]] = VDEVS
    layout_field: ClassVar[str] = "vdev"
    layout_minimum: ClassVar[Mapping[str, int]] = {"mirror": 2, "raid10": 4, "raidz1": 2, "raidz2": 3, "raidz3": 4}
    layout_usual: ClassVar[Mapping[str, int]] = {"raidz1": 3, "raidz2": 4, "raidz3": 5}
    assembles: ClassVar[bool] = True

    vdev: Literal["stripe", "mirror", "raid10", "raidz1", "raidz2", "raidz3"] = Field(
        "stripe", description="how the devices form the pool; raid10 stripes over mirrors of two"
    )
    ashift: int | None = Field(None, ge=9, le=16, description="sector size as a power of two; 12 is 4k")
    log: Device | None = Field(None, description="device of the intent log, which commits wait for")
    log_mirror: bool = Field(False, description="mirror the log over two devices")
    cache: Device | None = Field(None, description="second-level read cache")
    special: Device | None = Field(None, description="device for metadata and small blocks")
    special_mirror: bool = Field(
        False, description="mirror the special device over two; by default like the pool: mirrored if that is redundant"
    )
    compression: str | None = Field(
        None,
        pattern=r"^(on|off|lz4|zstd|zstd-fast|gzip|zle|lzjb)(-\d+)?$",
        description="lz4, zstd, zstd-3, gzip-6, off",
    )
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
    autotrim: Switch = Field(None, description="trim freed space of the pool")
    failmode: Literal["wait", "continue"] | None = Field(None, description="what a pool without its devices does")
    compatibility: str | None = Field(
        None, pattern=r"^[a-z0-9][a-z0-9.-]*$", description="features of another version, as openzfs-2.1-linux"
    )
    checksum: (
        Literal["on", "off", "fletcher2", "fletcher4", "sha256", "noparity", "sha512", "skein", "edonr", "blake3"]
        | None
    ) = Field(None, description="algorithm for blocks of data")
    data_copies: int | None = Field(None, ge=1, le=3, description="copies of each block of data (copies)")
    dedup: str | None = Field(
        None,
        pattern=r"^(on|off|verify|(sha256|sha512|skein|blake3)(,verify)?|edonr,verify)$",
        description="on, off, verify, or a checksum: store equal blocks once",
    )
    secondarycache: Literal["all", "metadata", "none"] | None = Field(None, description="what the cache device holds")
    encryption: (
        Literal["on", "off", "aes-128-ccm", "aes-192-ccm", "aes-256-ccm", "aes-128-gcm", "aes-192-gcm", "aes-256-gcm"]
        | None
    ) = Field(None, description="cipher of everything in the pool, with a key of the trial; on is aes-256-gcm")
    known_key: bool = Field(
        False, description="a key that is the same everywhere and no secret: states of crash trials are opened later"
    )

    @field_validator("compression", "checksum", "dedup", "encryption", mode="before")
    @classmethod
    def _word(cls, value: object) -> object:
        """YAML reads `off` as a truth value."""
        return ("on" if value else "off") if isinstance(value, bool) else value

    @property
    def encrypted(self) -> bool:
        return self.encryption not in (None, "off")

    def on_recorded(self) -> Self:
        """With a known key: what is recorded is a made-up ledger, and its states are opened when the trial is over."""
        return self.model_copy(update={"known_key": self.encrypted})

    def count_problem(self, count: int) -> str | None:
        if problem := self.layout_problem(self.vdev, count):
            return problem
        if self.vdev == "raid10" and count % 2:
            return f"{self.kind} raid10 stripes over mirrors of two, so it needs an even number of devices, not {count}"
        if self.log_mirror and self.log is None:
            return "log_mirror without a log device"
        if self.log_mirror and self.log is not None and self.log.count < 2:
            return "a mirrored log needs 2 devices"
        if self.special_mirror and (self.special is None or self.special.count < 2):
            return "a mirrored special vdev needs 2 devices"
        return None

    def copies(self, devices: int) -> float:
        mirrored = {"mirror": float(devices), "raid10": 2.0}
        each = mirrored.get(self.vdev) or redundancy(_PARITY_DISKS.get(self.vdev, 0), devices)
        return each * (self.data_copies or 1)

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        if self.sync == "disabled":
            yield LOSES, f"{self.kind} sync=disabled below {where}: fsync returns without writing"

    @classmethod
    def parse_rest(cls, call: Call) -> dict[str, Any]:
        """Options, then vdevs behind plus signs."""
        rest, *vdevs = split_top(call.rest, "+")
        found = call.options(cls, rest)
        for vdev in vdevs:
            found |= parse_vdev(vdev, call.text)
        return found

    def render(self, count: str = "") -> str:
        vdev = "" if self.vdev == "stripe" else self.vdev
        text = render_call(self.kind, [vdev, count], render_options(self))
        return text + "".join(f"+{self._render_vdev(name, device)}" for name, device in self.own_devices.items())

    def _render_vdev(self, name: str, device: Device) -> str:
        mirrored = (name == "log" and self.log_mirror) or (name == "special" and self.special_mirror)
        return render_call(name, ["mirror" if mirrored else "", render_own_device(device, 2 if mirrored else 1)])


def parse_vdev(text: str, whole: str) -> dict[str, Any]:
    name, arguments, rest = split_call(text)
    if name in NO_VDEV:
        raise UsageError(f"+{text} in {whole!r} is not taken: {NO_VDEV[name].reason}", hint=NO_VDEV[name].hint)
    if name in VDEVS and rest.startswith(":"):
        raise UsageError(f"{rest} in +{text} is no part of a vdev: properties stand before the first +",
                         hint=f"write zfs{rest}+{name}")  # fmt: skip
    if name not in VDEVS or rest:
        raise UsageError(
            f"+{text} in {whole!r} is not a vdev of zfs",
            hint=f"write +{OTHER_NAMES[name]}" if name in OTHER_NAMES else render_nearest(name, VDEVS),
        )
    words = split_top(arguments, ",") if arguments else []
    mirrored = "mirror" in words and name in ("log", "special")
    words = [word for word in words if not (mirrored and word == "mirror")]
    for word in words:
        if word in _LAYOUTS:
            raise UsageError(f"{word} in +{text} is not taken: zfs builds no such {name} vdev, or pgstrata does not",
                             hint=f"write +{name} or +log(mirror), +special(mirror)")  # fmt: skip
    if mirrored:
        return {f"{name}_mirror": True, name: parse_own_device(words, count="2")}
    return {name: parse_own_device(words)}


WAL_DATASET_PROPERTIES = (
    *("atime", "checksum", "compression", "copies", "dnodesize", "logbias", "primarycache", "recordsize"),
    *("redundant_metadata", "relatime", "secondarycache", "special_small_blocks", "sync", "xattr"),
    *("acltype", "dedup", "direct", "prefetch"),
)


class Zfs(ZfsPool, Filesystem):
    """A zfs pool and its datasets (one for data, one for pg_wal where `wal_dataset` is set)."""

    kind: Literal["zfs"] = "zfs"

    known_as: ClassVar[Mapping[str, str]] = {"zpool": "zfs", "raidz": "zfs(raidz1)"}
    also: ClassVar[Mapping[str, str]] = {**ZfsPool.also, "recsize": "recordsize"}
    implied: ClassVar[frozenset[str]] = ZfsPool.implied | {"special_small_blocks=0"}
    spans_devices: ClassVar[bool] = True
    pools_disks: ClassVar[bool] = True
    copy_on_write: ClassVar[bool] = True

    recordsize: SizeBytes | None = Field(None, description="largest block of a file; zfs takes 128k")
    atime: Switch = Field(None, description="record when files are read")
    relatime: Switch = Field(None, description="record it rarely")
    xattr: Literal["on", "off", "sa"] | None = Field(None, description="sa keeps extended attributes in the inode")
    dnodesize: str | None = Field(None, pattern=r"^(legacy|auto|\d+k?)$", description="size of an inode")
    special_small_blocks: SizeBytes | None = Field(None, description="blocks up to this go to the special device")
    prefetch: Literal["all", "metadata", "none"] | None = Field(None, description="what is read ahead, OpenZFS 2.3")
    direct: Literal["standard", "always", "disabled"] | None = Field(
        None, description="direct I/O past the ARC, OpenZFS 2.3"
    )
    acltype: Literal["off", "noacl", "posix", "posixacl", "nfsv4"] | None = Field(
        None, description="access control lists of files"
    )
    wal_dataset: dict[str, str] | None = Field(None, description="properties of a dataset of its own for pg_wal")
    module: dict[str, int] = Field(default_factory=dict, description="zfs module parameters, restored afterwards")

    @field_validator("xattr", "acltype", mode="before")
    @classmethod
    def _further_word(cls, value: object) -> object:
        """YAML reads `off` as a truth value."""
        return ("on" if value else "off") if isinstance(value, bool) else value

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

    @property
    def places_wal(self) -> bool:
        return self.wal_dataset is not None

    @property
    def host_settings(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.module.items()}

    def count_problem(self, count: int) -> str | None:
        if problem := super().count_problem(count):
            return problem
        if self.special_small_blocks and self.special is None:
            return "special_small_blocks needs a special vdev: add +special"
        return None

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        yield from super().promises(where, ground)
        if (self.wal_dataset or {}).get("sync") == "disabled" != self.sync:
            yield LOSES, f"zfs sync=disabled below {where}: fsync returns without writing"
        if self.module.get("zfs_nocacheflush", 0):
            yield LOSES_CACHE, f"zfs_nocacheflush=1 below {where}: flushes are not sent to the device"
        if self.module.get("zil_nocacheflush", 0):
            yield LOSES_CACHE, f"zil_nocacheflush=1 below {where}: the intent log is written without flushes"

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """A page over several records: each is replaced as a whole, the page is not."""
        return self.recordsize is not None and self.recordsize < PAGE_BYTES

    @classmethod
    def parse_call(cls, call: Call) -> dict[str, Any]:
        return cls.parse_words(call) | cls.parse_rest(call)

    @classmethod
    def parse_words(cls, call: Call) -> dict[str, Any]:
        """Layout and count; properties and vdevs may stand there too: `zfs(mirror,ashift=12,special(mirror))`."""
        found: dict[str, Any] = {}
        plain = []
        for word in call.words:
            if split_call(word)[0] in (*VDEVS, *NO_VDEV) and "=" not in split_call(word)[2]:
                found |= parse_vdev(word, call.text)
            elif "=" in word:
                found |= parse_options(cls, word)
            else:
                plain.append(word)
        inner = Call(call.text, call.name, ",".join(plain), call.rest, call.volume)
        return super().parse_words(inner) | found


_LEAST, _LARGEST = 512, 128 << 10
_OF_VOLUMES = ("volblocksize", "volsize", "volmode", "snapdev", "volthreading", "refreservation_auto")
_REFUSED_OF_VOLUMES: Mapping[str, Refusal] = {
    **{name: refusal for name, refusal in REFUSED.items() if name not in _OF_VOLUMES},
    **refuse("volsize -V -s", "the volume takes 9/10 of what is free in the pool",
             "give the devices a size: loop(size=20G)/zvol/ext4"),
    **refuse("volmode snapdev volthreading refreservation_auto",
             "it is about how the volume is shown, counted or served, and pgstrata leaves it as it is"),
    **refuse("recordsize recsize atime relatime xattr dnodesize acltype special_small_blocks prefetch direct",
             "it is of a dataset with files, and a zvol has blocks", "write zvol:volblocksize=16k/ext4"),
}  # fmt: skip


class Zvol(ZfsPool, BlockLayer):
    """A zfs pool over all devices below, and a volume in it."""

    kind: Literal["zvol"] = "zvol"

    gives: ClassVar[str] = "volume"
    under_pool: ClassVar[str] = "puts a pool on a pool: give the disks to {fs}"
    also: ClassVar[Mapping[str, str]] = {**ZfsPool.also, "-b": "volblocksize"}
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED_OF_VOLUMES

    volblocksize: SizeBytes | None = Field(None, description="block of the volume; zfs takes 8k, or 16k since 2.2")

    @classmethod
    def layouts(cls) -> tuple[str, ...]:
        """No layout: the name of a pool's layout alone means zfs."""
        return ()

    @field_validator("volblocksize")
    @classmethod
    def _block(cls, size: int | None) -> int | None:
        if size is not None and (not _LEAST <= size <= _LARGEST or size & (size - 1)):
            raise ValueError(f"volblocksize {size} is not a power of two from 512 to 128k (for example 16k)")
        return size

    def order_problem(self, below: Sequence[BlockLayer]) -> str | None:
        wrong = next((layer for layer in below if layer.under_pool), None)
        if wrong is not None:
            return f"{self.kind} over {wrong.kind} {wrong.under_pool.format(fs=self.kind)}"
        return super().order_problem(below)
