"""zfs: a pool over all devices below, and its datasets.

Minima: zpoolconcepts(7). Durability: zfsprops(7) (sync), zfs(4) (zfs_nocacheflush).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from pgstrata.errors import UsageError
from pgstrata.spec.durability_class import LOSES, PAGE_BYTES, BackingFs, Promises
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.layers.kind import Device, Filesystem, Switch, redundancy
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import render_options
from pgstrata.spec.notation.term import Call, render_call
from pgstrata.spec.notation.tokens import split_call, split_top

WAL_DATASET_PROPERTIES = (
    *("atime", "checksum", "compression", "copies", "dnodesize", "logbias", "primarycache", "recordsize"),
    *("redundant_metadata", "relatime", "secondarycache", "special_small_blocks", "sync", "xattr"),
)
_PARITY_DISKS = {"raidz1": 1, "raidz2": 2, "raidz3": 3}
_VDEVS = ("log", "cache", "special")
_PLAIN = "loop"
"""The kind of device that a vdev is where nothing else is said."""


class Zfs(Filesystem):
    """A zfs pool and its datasets (one for data, one for pg_wal where `wal_dataset` is set)."""

    kind: Literal["zfs"] = "zfs"

    not_options: ClassVar[frozenset[str]] = frozenset({"vdev", "log", "log_mirror", "cache", "special"})
    layout_field: ClassVar[str] = "vdev"
    layout_minimum: ClassVar[Mapping[str, int]] = {"mirror": 2, "raid10": 4, "raidz1": 2, "raidz2": 3, "raidz3": 4}
    layout_usual: ClassVar[Mapping[str, int]] = {"raidz1": 3, "raidz2": 4, "raidz3": 5}
    spans_devices: ClassVar[bool] = True
    assembles: ClassVar[bool] = True
    pools_disks: ClassVar[bool] = True
    copy_on_write: ClassVar[bool] = True

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

    @property
    def own_devices(self) -> dict[str, Device]:
        asked = {"log": self.log, "cache": self.cache, "special": self.special}
        return {name: device for name, device in asked.items() if device is not None}

    @property
    def places_wal(self) -> bool:
        return self.wal_dataset is not None

    @property
    def host_settings(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.module.items()}

    def count_problem(self, count: int) -> str | None:
        if problem := self.layout_problem(self.vdev, count):
            return problem
        if self.vdev == "raid10" and count % 2:
            return f"zfs raid10 stripes over mirrors of two, so it needs an even number of devices, not {count}"
        if self.log_mirror and self.log is None:
            return "log_mirror without a log device"
        if self.log_mirror and self.log is not None and self.log.count < 2:
            return "a mirrored log needs 2 devices"
        return None

    def copies(self, devices: int) -> float:
        mirrored = {"mirror": float(devices), "raid10": 2.0}
        return mirrored.get(self.vdev) or redundancy(_PARITY_DISKS.get(self.vdev, 0), devices)

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        if "disabled" in (self.sync, (self.wal_dataset or {}).get("sync")):
            yield LOSES, f"zfs sync=disabled below {where}: fsync returns without writing"
        if self.module.get("zfs_nocacheflush", 0):
            yield LOSES, f"zfs_nocacheflush=1 below {where}: flushes are not sent to the device"
        if self.module.get("zil_nocacheflush", 0):
            yield LOSES, f"zil_nocacheflush=1 below {where}: the intent log is written without flushes"

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """A page over several records: each is replaced as a whole, the page is not."""
        return self.recordsize is not None and self.recordsize < PAGE_BYTES

    @classmethod
    def parse_call(cls, call: Call) -> dict[str, Any]:
        rest, *vdevs = split_top(call.rest, "+")
        found = cls.parse_words(call) | call.options(cls, rest)
        for vdev in vdevs:
            found |= _parse_vdev(vdev, call.text)
        return found

    def render(self, count: str = "") -> str:
        vdev = "" if self.vdev == "stripe" else self.vdev
        text = render_call(self.kind, [vdev, count], render_options(self))
        return text + "".join(f"+{self._render_vdev(name, device)}" for name, device in self.own_devices.items())

    def _render_vdev(self, name: str, device: Device) -> str:
        mirrored = name == "log" and self.log_mirror
        plain = device.kind == _PLAIN and not device.says_more and device.count == (2 if mirrored else 1)
        return render_call(name, ["mirror" if mirrored else "", "" if plain else device.render()])


def _parse_vdev(text: str, whole: str) -> dict[str, Any]:
    name, arguments, rest = split_call(text)
    if name not in _VDEVS or rest:
        raise UsageError(f"+{text} in {whole!r} is not a vdev of zfs", hint=render_nearest(name, _VDEVS))
    found: dict[str, Any] = {}
    device: dict[str, Any] = {"kind": _PLAIN}
    for word in split_top(arguments, ",") if arguments else []:
        if word == "mirror" and name == "log":
            found["log_mirror"] = True
            device.setdefault("count", "2")
        elif word.startswith(tuple(Device.kinds)):
            device = Device.parse(word)
        else:
            device["count" if word.isdigit() else "size"] = word.removeprefix("size=")
    return {**found, name: device}
