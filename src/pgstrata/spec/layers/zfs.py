"""zfs: a pool over all devices below, and its datasets.

Properties: zfsprops(7), zpoolprops(7). Durability: zfsprops(7) (sync), zfs(4) (zfs_nocacheflush).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from pgstrata.spec.durability_class import LOSES, LOSES_CACHE, PAGE_BYTES, BackingFs, Promises
from pgstrata.spec.layers.kind import Filesystem, Switch
from pgstrata.spec.layers.zfs_pool import NO_VDEV, VDEVS, ZfsPool, parse_vdev
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import parse_options
from pgstrata.spec.notation.term import Call
from pgstrata.spec.notation.tokens import split_call

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
