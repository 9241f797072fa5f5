"""zfs: a pool over all devices below, with log, cache and special devices of its own, and its datasets.

Properties: zfsprops(7), zpoolprops(7); vdevs: zpoolconcepts(7); module parameters: zfs(4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pgstrata.host.capabilities import Capability, Packages, filesystem, named, program
from pgstrata.host.facts.system import Family
from pgstrata.host.protocol import Command, Host, command
from pgstrata.spec.layers.zfs import Zfs, ZfsPool
from pgstrata.spec.units import parse_size_bytes
from pgstrata.stack.fs.zfs_status import (
    ROOT,
    DestroyPool,
    destroy_pool,
    parse_iostat,
    parse_properties,
    parse_zpool_status,
    read_arcstats,
    render_layout,
)
from pgstrata.stack.kind import Below, Check, FilesystemKind, PlannedFilesystem, PlannedLayer, plan_device
from pgstrata.stack.mounts import MountCheck
from pgstrata.stack.place import Place
from pgstrata.stack.secret_key import WipeKey, key_file, plan_key, wipe_key
from pgstrata.stack.step import (
    Argument,
    Attested,
    FreeName,
    PlannedCommand,
    Ref,
    Setting,
    Stage,
    Step,
    compare_or_record,
    planned,
    told,
)
from pgstrata.stack.tuning.setting import SettingCheck
from pgstrata.stack.undo import RemovePath, Unmount

CREATE_TIMEOUT_S = 300.0
"""zpool partitions each disk and waits for udev to announce the partitions."""
IMPORT_TIMEOUT_S = 600.0
"""Exporting writes everything back; importing looks at every device for labels and replays the intent log."""
PARAMETERS = "/sys/module/zfs/parameters"
_ARC_IN_EFFECT = {"zfs_arc_max": "c_max", "zfs_arc_min": "c_min"}
_PROPERTIES = (
    *("recordsize", "compression", "atime", "relatime", "logbias", "redundant_metadata"),
    *("primarycache", "sync", "xattr", "dnodesize"),
)
_FURTHER = (
    *(
        "checksum",
        "copies",
        "dedup",
        "special_small_blocks",
        "secondarycache",
        "prefetch",
        "direct",
        "acltype",
        "encryption",
    ),
)
"""Properties that are set and read only where they are configured: earlier versions lack some."""

_FIRST_NAME = {
    "gzip-6": "gzip",
    "zstd-fast-1": "zstd-fast",
    "posixacl": "posix",
    "noacl": "off",
    "encryption=on": "aes-256-gcm",
}
"""Names of one stored value; zfs prints the first."""

_SPACE = ("compressratio", "used", "logicalused")
"""Recorded with every attestation, so also after every run."""


def plan_zfs(fs: Zfs, below: Below, place: Place) -> PlannedFilesystem:
    """Plan the pool and its datasets, mounted by zfs; the pool is not entered into any cache file."""
    parts = {name: plan_device(device, place.beside(name)) for name, device in fs.own_devices.items()}
    wal = place.beside("wal").mount_point if fs.wal_dataset is not None else None
    datasets: dict[str, tuple[str, dict[str, str]]] = {"data": (place.mount_point, properties(fs))}
    if wal is not None:
        datasets["wal"] = (wal, {**properties(fs), **normalised(fs.wal_dataset or {})})
    steps = (
        *_plan_module(fs.module),
        *plan_pool(fs, below, parts, place),
        *(_plan_dataset(fs, name, mount, place) for name, (mount, _) in datasets.items()),
    )
    return PlannedFilesystem(
        steps=steps,
        mount_point=place.mount_point,
        checks=(
            pool_check(fs, below, parts, place),
            *(check for part in parts.values() for check in part.checks),
            *_checks(fs, datasets, place),
        ),
        wal_mount_point=wal,
        extra_media=tuple(node for part in parts.values() for node in part.above.media),
        counted=tuple(disks for part in parts.values() for disks in part.counted),
        notes=_notes(fs),
        stages=(_plan_again(fs, below, parts, place, tuple(datasets)),),
    )


def _notes(fs: Zfs) -> tuple[str, ...]:
    if (fs.wal_dataset or {}).get("special_small_blocks") and fs.special is None:
        return ("special_small_blocks does nothing: the pool has no special device (+special)",)
    return ()


def _plan_again(
    fs: Zfs, below: Below, parts: Mapping[str, PlannedLayer], place: Place, datasets: tuple[str, ...]
) -> Stage:
    up = (*plan_import(fs, below, parts, place), *map(PlannedCommand.of, _plan_mounts(fs, place, datasets)))
    return pool_stage(fs, place, up, _plan_module(fs.module))


def pool_stage(
    pool: ZfsPool, place: Place, up: tuple[PlannedCommand, ...], readies: tuple[Step, ...], node: Ref | None = None
) -> Stage:
    """Plan the restart of a pool. Importing it replays the intent log and mounts datasets that are not encrypted."""
    key = (plan_key(_key_place(place), known=pool.known_key),) if pool.encrypted else ()
    return Stage(
        name=f"import zfs pool {place.name}",
        up=up,
        down=(planned("zpool", "export", place.name, timeout_s=IMPORT_TIMEOUT_S),),
        write_back=(planned("zpool", "sync", place.name, timeout_s=IMPORT_TIMEOUT_S),),
        binds=node.name if node is not None else None,
        alone=True,
        undo=(DestroyPool(pool=place.name),),
        readies=(*readies, *key),
    )


def plan_import(
    pool: ZfsPool, below: Below, parts: Mapping[str, PlannedLayer], place: Place
) -> tuple[PlannedCommand, ...]:
    """Plan importing a pool, which is searched only on its own devices, and loading its key."""
    nodes = (*below.nodes, *(node for part in parts.values() for node in part.above.nodes))
    only = [word for node in nodes for word in ("-d", node)]
    come = planned("zpool", "import", only, "-o", "cachefile=none", place.name, timeout_s=IMPORT_TIMEOUT_S)
    return (come, *map(PlannedCommand.of, _plan_load_key(pool, place)))


def _key_place(place: Place) -> Place:
    """Return the place of the pool's key; a layer on it may have one of its own."""
    return place.beside("zfs")


def _plan_load_key(pool: ZfsPool, place: Place) -> tuple[Command, ...]:
    given = ["-L", f"file://{key_file(_key_place(place))}"]
    return (command("zfs", "load-key", given, place.name),) if pool.encrypted else ()


def _plan_mounts(fs: Zfs, place: Place, datasets: tuple[str, ...]) -> tuple[Command, ...]:
    """Plan mounting the datasets, which zpool import leaves alone where they are encrypted."""
    return tuple(command("zfs", "mount", f"{place.name}/{name}") for name in datasets) if fs.encrypted else ()


def _text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def properties(pool: ZfsPool) -> dict[str, str]:
    """Return configured properties as `zfs get -p` prints them."""
    asked = {name: getattr(pool, pool.aliases.get(name, name), None) for name in (*_PROPERTIES, *_FURTHER)}
    return normalised({name: _text(value) for name, value in asked.items() if value is not None})


def pool_properties(pool: ZfsPool) -> dict[str, str]:
    """Return the configured properties of the pool, ashift apart, as `zpool get -p` prints them."""
    asked = {"autotrim": pool.autotrim, "failmode": pool.failmode, "compatibility": pool.compatibility}
    return {name: _text(value) for name, value in asked.items() if value is not None}


def normalised(asked: Mapping[str, str]) -> dict[str, str]:
    """Normalise properties to the output of `zfs get -p`: sizes in bytes, the first name of a value that has
    several."""
    sizes = ("recordsize", "special_small_blocks")
    return {
        name: str(parse_size_bytes(value))
        if name in sizes
        else _FIRST_NAME.get(f"{name}={value}", _FIRST_NAME.get(value, value))
        for name, value in asked.items()
    }


def _plan_module(parameters: Mapping[str, int]) -> tuple[Step, ...]:
    if not parameters:
        return (LOAD_MODULE,)
    settings = tuple(Setting(f"{PARAMETERS}/{name}", str(value)) for name, value in parameters.items())
    return LOAD_MODULE, Step(name="zfs module parameters", commands=(), settings=settings, host_wide=True)


LOAD_MODULE = Step(name="load the zfs module", commands=(planned("modprobe", "zfs"),), host_wide=True)


def vdev_words(vdev: str, nodes: tuple[Argument, ...]) -> list[Argument]:
    """Return a layout as arguments of zpool create."""
    if vdev == "stripe":
        return list(nodes)
    if vdev == "raid10":
        pairs = zip(nodes[::2], nodes[1::2], strict=True)
        return [word for pair in pairs for word in ("mirror", *pair)]
    return [vdev, *nodes]


def _vdev_of(name: str, fs: ZfsPool, count: int) -> str:
    """Return the layout of log, cache and special devices: losing a special vdev loses the pool, so it is as safe as
    data."""
    if name == "log":
        return "mirror" if fs.log_mirror else "stripe"
    redundant = fs.vdev != "stripe" and count > 1
    return "mirror" if name == "special" and (fs.special_mirror or redundant) else "stripe"


def plan_pool(fs: ZfsPool, below: Below, parts: Mapping[str, PlannedLayer], place: Place) -> tuple[Step, ...]:
    """Plan the pool, after its own devices and its key."""
    # -f: every device was inspected and wiped by us; what zpool still finds are labels inside old partitions
    options = ["-f", "-o", "cachefile=none"]
    options += ["-o", f"ashift={fs.ashift}"] if fs.ashift else []
    options += [word for name, value in pool_properties(fs).items() for word in ("-o", f"{name}={value}")]
    # nothing but the datasets below is ever mounted, and they inherit what is set here
    options += ["-O", "mountpoint=none", "-O", "canmount=off"]
    for name, value in properties(fs).items():
        options += ["-O", f"{name}={value}"]
    options += (
        ["-O", "keyformat=raw", "-O", f"keylocation=file://{key_file(_key_place(place))}"] if fs.encrypted else []
    )
    vdevs = vdev_words(fs.vdev, below.nodes)
    for name, part in parts.items():
        vdevs += [name, *vdev_words(_vdev_of(name, fs, len(part.above.nodes)), part.above.nodes)]
    ids = (*below.ids, *(id_ for part in parts.values() for id_ in part.above.ids))
    key = (plan_key(_key_place(place), known=fs.known_key),) if fs.encrypted else ()
    create = Step(
        name=f"zfs pool {place.name}",
        commands=(planned("zpool", "create", options, place.name, vdevs, timeout_s=CREATE_TIMEOUT_S),),
        undo=(DestroyPool(pool=place.name, devices=ids),),
        requires=(FreeName("zfs pool", place.name, ("zpool", "list", place.name)),),
    )
    return (*(step for part in parts.values() for step in part.steps), *key, create)


def _plan_dataset(fs: Zfs, name: str, mount: str, place: Place) -> Step:
    options = ["-o", f"mountpoint={mount}"]
    for key, value in normalised(fs.wal_dataset or {}).items() if name == "wal" else ():
        options += ["-o", f"{key}={value}"]
    return Step(
        name=f"zfs dataset {place.name}/{name}",
        commands=(planned("zfs", "create", options, f"{place.name}/{name}"),),
        undo=(RemovePath(path=mount), Unmount(target=mount)),
    )


def pool_check(fs: ZfsPool, below: Below, parts: Mapping[str, PlannedLayer], place: Place) -> PoolCheck:
    """Return the check of a pool's vdevs and properties."""
    wanted = {ROOT: _layout(fs.vdev, len(below.nodes))}
    for name in ("log", "cache", "special"):
        count = len(parts[name].above.nodes) if name in parts else 0
        wanted["logs" if name == "log" else name] = _layout(_vdev_of(name, fs, count), count)
    return PoolCheck(place.role, place.name, wanted, fs.ashift, pool_properties(fs))


def _checks(fs: Zfs, datasets: Mapping[str, tuple[str, Mapping[str, str]]], place: Place) -> tuple[Check, ...]:
    checks: list[Check] = []
    for name, (mount, asked) in datasets.items():
        checks.append(MountCheck(f"{place.role} {name}", mount, "zfs", f"{place.name}/{name}"))
        checks.append(DatasetCheck(place.role, f"{place.name}/{name}", asked))
    for name, value in fs.module.items():
        checks.append(SettingCheck(f"zfs module {name}", f"{PARAMETERS}/{name}", str(value)))
        if name in _ARC_IN_EFFECT and value != 0:
            checks.append(ArcCheck(name, value))
    return tuple(checks)


def _layout(vdev: str, count: int) -> str:
    """Return a layout in the form of `render_layout`."""
    if count == 0:
        return "none"
    if vdev == "stripe":
        return "+".join(["disk"] * count)
    if vdev == "raid10":
        return "+".join(["mirror(2)"] * (count // 2))
    return f"{vdev}({count})"


@dataclass(frozen=True)
class PoolCheck:
    """Checks that the pool is healthy and has the configured vdevs."""

    role: str
    pool: str
    wanted: Mapping[str, str]
    """Layout by section of zpool status."""
    ashift: int | None
    asked: Mapping[str, str] = field(default_factory=dict)
    """Further properties of the pool."""

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        asked = command("zpool", "get", "-Hp", ["-o", "property,value"], "all", self.pool)
        printed = host.run(asked, check=False)
        if printed.exit_code != 0:
            return (Attested(f"{self.role} zfs pool", self.pool, "missing"),)
        status = host.run(command("zpool", "status", "-P", self.pool)).stdout
        rates = parse_iostat(host.run(command("zpool", "iostat", "-Hp", self.pool)).stdout)
        seen = " ".join(f"{name}={value}" for name, value in rates.items())
        io = told(f"{self.role} zfs io_since_import", seen)
        return (*self.compare(parse_properties(printed.stdout), status), io)

    def compare(self, found: Mapping[str, str], status: str) -> tuple[Attested, ...]:
        """Compare configured with actual values."""
        vdevs = parse_zpool_status(status)
        prefix = f"{self.role} zfs"
        return (
            Attested(f"{prefix} health", "ONLINE", found["health"]),
            compare_or_record(f"{prefix} ashift", self.ashift, found["ashift"]),
            *(Attested(f"{prefix} {s} vdevs", want, render_layout(vdevs, s)) for s, want in self.wanted.items()),
            *(Attested(f"{prefix} {name}", want, found.get(name, "none")) for name, want in self.asked.items()),
            told(f"{prefix} size_bytes", found["size"]),
            told(f"{prefix} allocated_bytes", found["allocated"]),
            told(f"{prefix} fragmentation_percent", found["fragmentation"]),
        )


@dataclass(frozen=True)
class DatasetCheck:
    """Checks the configured properties of a dataset; records other relevant ones."""

    role: str
    dataset: str
    asked: Mapping[str, str]
    recorded: tuple[str, ...] = _PROPERTIES
    """Properties that are recorded where they are not configured."""

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        names = ",".join(dict.fromkeys((*self.recorded, *self.asked, *_SPACE)))
        printed = host.run(command("zfs", "get", "-Hp", ["-o", "property,value"], names, self.dataset), check=False)
        if printed.exit_code != 0:
            return (Attested(f"{self.role} zfs dataset", self.dataset, "missing"),)
        return self.compare(parse_properties(printed.stdout))

    def compare(self, found: Mapping[str, str]) -> tuple[Attested, ...]:
        """Compare configured with actual values."""
        prefix = f"{self.role} zfs {self.dataset.rsplit('/', 1)[-1]}"
        return tuple(
            compare_or_record(f"{prefix} {name}", self.asked.get(name), value) for name, value in found.items()
        )


@dataclass(frozen=True)
class ArcCheck:
    """Checks that an ARC limit is in effect: zfs silently ignores values that do not fit the memory."""

    parameter: str
    value: int

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        counter = _ARC_IN_EFFECT[self.parameter]
        found = read_arcstats(host)
        return (Attested(f"zfs arc {counter}", str(self.value), str(found[counter])),)


def plan_empty_arc(fs: Zfs, place: Place) -> tuple[Command, ...]:
    """Plan emptying zfs's own cache, which only exporting and importing the pool does reliably."""
    # /dev, because loop devices have no links in /dev/disk, where zpool looks by itself
    options = ["-d", "/dev", "-o", "cachefile=none"]
    return (
        command("zpool", "export", place.name, timeout_s=IMPORT_TIMEOUT_S),
        command("zpool", "import", options, place.name, timeout_s=IMPORT_TIMEOUT_S),
        *_plan_load_key(fs, place),
        *_plan_mounts(fs, place, ("data", "wal") if fs.places_wal else ("data",)),
    )


def _used_bytes(host: Host, mount_point: str, directory: str) -> int:
    """Return the bytes allocated in the pool, parity and copies included; the pool has the mounted dataset's name."""
    source = host.run(command("findmnt", "--noheadings", ["--output", "SOURCE"], ["--mountpoint", mount_point]))
    pool = source.stdout.strip().split("/", 1)[0]
    return int(host.run(command("zpool", "list", "-Hp", ["-o", "allocated"], pool)).stdout)


def _limit_in_effect(counter: str) -> Callable[[Host], str]:
    return lambda host: str(read_arcstats(host)[counter])


FIRST_WITH = {
    "checksum=blake3": (2, 2), "dedup=blake3": (2, 2), "redundant_metadata=some": (2, 2),
    "redundant_metadata=none": (2, 2), "prefetch": (2, 3), "direct": (2, 3),
}  # fmt: skip
"""The first OpenZFS that has a property, or a value of it."""


def version_problem(host: Host, fs: Zfs) -> str:
    """Return the property that this host's module does not have; empty if it has all, or its version is unknown."""
    asked = properties(fs)
    wanted = {name: first for name, first in FIRST_WITH.items() if _is_configured(asked, name)}
    if not wanted:
        return ""
    printed = host.run(command("modinfo", ["--field", "version"], "zfs"), check=False).stdout
    version = re.match(r"(\d+)\.(\d+)", printed)
    if version is None:
        return ""
    actual = (int(version[1]), int(version[2]))
    lacking = [f"{name} needs OpenZFS {a}.{b}" for name, (a, b) in wanted.items() if actual < (a, b)]
    return f"zfs {lacking[0]}; the module is {printed.strip()}" if lacking else ""


def _is_configured(asked: Mapping[str, str], name: str) -> bool:
    key, _, value = name.partition("=")
    return key in asked and asked[key].startswith(value)


_MODULE: Packages = {
    "debian": ("linux-headers-{arch}", "zfs-dkms"),
    "ubuntu": ("linux-modules-extra-{release}",),
    "fedora": ("kernel-devel-{release}", "zfs"),
    "rhel": ("kernel-devel-{release}", "zfs"),
    "suse": ("zfs",),
    "alpine": ("zfs-lts",),
}
_SOURCE: dict[Family, str] = {
    "debian": "the packages of zfs are in the component contrib",
    "fedora": "the packages of zfs are in the repository of the OpenZFS project",
    "rhel": "the packages of zfs are in the repository of the OpenZFS project",
    "suse": "the packages of zfs are in the repository filesystems",
    "arch": "the packages of zfs are in the repository archzfs",
}

NEEDS = (filesystem("zfs", _MODULE, _SOURCE), program("zpool", named("zfsutils-linux", "zfs", "zfs", "zfs")))

KIND = FilesystemKind(
    Zfs,
    plan_zfs,
    capabilities=(
        Capability(
            "fs.zfs",
            "build zfs pools",
            NEEDS,
        ),
    ),
    undos={DestroyPool: destroy_pool, WipeKey: wipe_key},
    used_bytes=_used_bytes,
    plan_empty_caches=plan_empty_arc,
    kernel_problem=version_problem,
    settings_in_effect={f"{PARAMETERS}/{name}": _limit_in_effect(c) for name, c in _ARC_IN_EFFECT.items()},
)
