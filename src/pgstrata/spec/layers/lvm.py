"""LVM: a volume group over all devices below. Options: lvcreate(8). Caches: lvmcache(7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from pgstrata.spec.layers.kind import BlockLayer, Device, parse_own_devices, render_own_devices
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import LEAVE_OUT, YOURSELF, Call, Refusal, refuse, spelled

_REFUSED: Mapping[str, Refusal] = {
    **refuse("stripes -i --stripes", "a striped volume takes all devices, whose number stands in parentheses",
             "write lvm(striped,4)"),
    **refuse("layout type --type", "the layout stands in parentheses", "write lvm(striped,4) or lvm(thin)"),
    **refuse("mirrors -m --mirrors mirrorlog --mirrorlog nosync --nosync regionsize -R --regionsize raidintegrity "
             "--raidintegrity raidintegrityblocksize --raidintegrityblocksize raidintegritymode --raidintegritymode "
             "maxrecoveryrate --maxrecoveryrate --raidmaxrecoveryrate minrecoveryrate --minrecoveryrate "
             "--raidminrecoveryrate raid0 raid1 raid4 raid5 raid6 raid10 mirror writemostly",
             "redundancy is built by md below LVM", "put md below, as in md(raid1,2)/lvm/ext4"),
    **refuse("cache -H --cache cachedevice --cachedevice cachesize --cachesize", "the device of a cache follows a plus "
             "sign, and the cache takes it as a whole", "write lvm+cache(media(nvme))/xfs or lvm+writecache(2G)/xfs"),
    **refuse("writecache --writecache", "the device of a cache follows a plus sign", "write lvm+writecache/xfs"),
    **refuse("cachepool --cachepool cachevol --cachevol poolmetadata --poolmetadata cachemetadataformat "
             "--cachemetadataformat cachepolicy --cachepolicy", "the cache is one volume of its device (cachevol) with "
             "LVM's own format and policy, smq", "write lvm+cache/xfs"),
    **refuse("cachesettings --cachesettings", "each setting of a cache is an option",
             "write lvm:cache_settings.high_watermark=90+writecache/xfs"),
    **refuse("vdo --vdo vdopool --vdopool vdosettings --vdosettings compression --compression deduplication "
             "--deduplication", "pgstrata does not build VDO"),
    **refuse("discards --discards zero -Z --zero errorwhenfull --errorwhenfull "
             "poolmetadatasize --poolmetadatasize poolmetadataspare --poolmetadataspare thinpool --thinpool",
             "the thin pool is made with LVM's defaults, and what lvs prints of it is not compared"),
    **refuse("-T --thin", "the layout stands in parentheses", "write lvm(thin)/xfs"),
    **refuse("size -L --size extents -l --extents virtualsize -V --virtualsize",
             "the volume takes the group as a whole, snapshots apart", "give the devices a size: loop(4,size=20G)/lvm"),
    **refuse("-s --snapshot snapshot", "the number of snapshots is one option", "write snapshots=2"),
    **refuse("readahead -r --readahead", "it is a setting of the block queue", "write @queue.read_ahead_kb=N"),
    **refuse("alloc --alloc contiguous -C --contiguous", "the volume takes all devices in order", LEAVE_OUT),
    **refuse("permission -p --permission", "the volume is written to", LEAVE_OUT),
    **refuse("persistent -M --persistent major -j --major minor --minor name -n --name addtag --addtag activate -a "
             "--activate setactivationskip -k --setactivationskip setautoactivation --setautoactivation "
             "ignoreactivationskip -K --ignoreactivationskip monitor --monitor ignoremonitoring --ignoremonitoring "
             "autobackup -A --autobackup commandprofile --commandprofile metadataprofile --metadataprofile profile "
             "--profile config --config devices --devices devicesfile --devicesfile driverloaded --driverloaded "
             "journal --journal lockopt --lockopt nohints --nohints nolocking --nolocking noudevsync --noudevsync "
             "wipesignatures -W --wipesignatures yes -y --yes quiet -q --quiet verbose -v --verbose debug -d --debug "
             "test -t --test help -h --help longhelp --longhelp version --version reportformat --reportformat",
             "it is about how LVM's programs run or name the volume, and pgstrata decides that", LEAVE_OUT),
    **refuse("physicalextentsize -s~physicalextentsize dataalignment --dataalignment pvmetadatacopies",
             "the group is made with LVM's own extents and alignment", YOURSELF),
}  # fmt: skip

CACHE_SETTINGS: Mapping[str, frozenset[str]] = {
    "cache": frozenset({"migration_threshold"}),
    "writecache": frozenset(
        {"high_watermark", "low_watermark", "writeback_jobs", "autocommit_blocks", "autocommit_time"}
    ),
}
"""Settings of each kind of cache that take a number."""
_LEAST_CHUNK, _LARGEST_CHUNK = 32 << 10, 1 << 30


class Lvm(BlockLayer):
    """LVM: all devices below become PVs of one VG, which carries one LV."""

    kind: Literal["lvm"] = "lvm"

    gives: ClassVar[str] = "LV"
    assembles: ClassVar[bool] = True
    under_pool: ClassVar[str] = "doubles the pooling and hides flush errors of single disks: give the disks to {fs}"
    own_names: ClassVar[tuple[str, ...]] = ("cache", "writecache")
    known_as: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("dm-cache", "dmcache", "lvmcache"), "lvm+cache"),
        **dict.fromkeys(("writecache", "dm-writecache"), "lvm+writecache"),
        **dict.fromkeys(("lv", "vg", "lvm2"), "lvm"),
        **dict.fromkeys(("lvm-thin", "lvmthin", "thinpool"), "lvm(thin)"),
        "stripe": "lvm(striped)",
    }
    units: ClassVar[Mapping[str, str]] = dict.fromkeys(("-I", "--stripesize", "-c", "--chunksize", "chunksize"), "k")
    also: ClassVar[Mapping[str, str]] = spelled(
        stripe_size="stripesize -I --stripesize", cache_mode="cachemode --cachemode",
        cache_chunk="chunksize chunk_size -c --chunksize",
    )  # fmt: skip
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED
    not_options: ClassVar[frozenset[str]] = frozenset({"layout", *own_names})
    layout_field: ClassVar[str] = "layout"
    layout_minimum: ClassVar[Mapping[str, int]] = {"striped": 2}

    layout: Literal["linear", "striped", "thin"] = Field(
        "linear", description="linear concatenates the PVs; striped writes round them; thin allocates on first write"
    )
    stripe_size: SizeBytes | None = Field(None, description="with striped: bytes on one PV before the next")
    snapshots: int = Field(0, ge=0, le=16, description="snapshots of the LV kept during the run")
    cache: Device | None = Field(None, description="device of a dm-cache, which holds what is used often")
    writecache: Device | None = Field(None, description="device of a dm-writecache, which takes every write first")
    cache_mode: Literal["writethrough", "writeback"] | None = Field(
        None, description="with cache: writeback writes to the cache alone, for now; LVM takes writethrough"
    )
    cache_chunk: SizeBytes | None = Field(None, description="with cache: bytes of a block of it; LVM takes 64k")
    cache_settings: dict[str, int] = Field(
        default_factory=dict, description="settings of the cache by name, as high_watermark of a writecache"
    )

    @model_validator(mode="after")
    def _cached(self) -> Lvm:
        names = list(self.own_devices)
        if len(names) > 1:
            raise ValueError("cache and writecache exclude each other: a volume has one cache")
        if names and (self.layout == "thin" or self.snapshots):
            what = "thin volume" if self.layout == "thin" else "volume with snapshots"
            raise ValueError(f"{names[0]} goes with a linear or striped volume, not with a {what}")
        if self.cache is None and (self.cache_mode is not None or self.cache_chunk is not None):
            raise ValueError("cache_mode and cache_chunk are of a dm-cache: add +cache (cache: loop)")
        unknown = sorted(self.cache_settings.keys() - (CACHE_SETTINGS[names[0]] if names else frozenset()))
        if unknown:
            known = ", ".join(sorted(CACHE_SETTINGS[names[0]])) if names else "it has no cache"
            raise ValueError(f"{unknown[0]} is no setting of this volume's cache that takes a number: {known}")
        chunk = self.cache_chunk
        if chunk is not None and (not _LEAST_CHUNK <= chunk <= _LARGEST_CHUNK or chunk % _LEAST_CHUNK):
            raise ValueError(f"cache_chunk {chunk} is not a multiple of 32k up to 1g")
        return self

    @model_validator(mode="after")
    def _coherent(self) -> Lvm:
        size = self.stripe_size
        if size is not None and (size < 4096 or size & (size - 1)):
            raise ValueError(f"stripe_size {size} is not a power of two from 4k (for example 64k)")
        return self

    @property
    def capabilities(self) -> tuple[str, ...]:
        further = ("thin",) if self.layout == "thin" else tuple(self.own_devices)
        return ("block.lvm", *(f"block.lvm.{one}" for one in further))

    def copies(self, devices: int) -> float:
        """Snapshots diverge from the LV while it is written to."""
        return 1.0 + self.snapshots

    @classmethod
    def parse_rest(cls, call: Call) -> dict[str, Any]:
        return parse_own_devices(cls, call)

    def render(self, count: str) -> str:
        return super().render(count) + render_own_devices(self)
