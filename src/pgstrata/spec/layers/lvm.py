"""LVM: a volume group over all devices below. Options: lvcreate(8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pgstrata.spec.layers.kind import BlockLayer
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.refusals import LEAVE_OUT, YOURSELF, Refusal, refuse

_REFUSED: Mapping[str, Refusal] = {
    **refuse("stripes -i --stripes", "a striped volume takes all devices, whose number stands in parentheses",
             "write lvm(striped,4)"),
    **refuse("layout type --type", "the layout stands in parentheses", "write lvm(striped,4) or lvm(thin)"),
    **refuse("mirrors -m --mirrors mirrorlog --mirrorlog nosync --nosync regionsize -R --regionsize raidintegrity "
             "--raidintegrity raidintegrityblocksize --raidintegrityblocksize raidintegritymode --raidintegritymode "
             "maxrecoveryrate --maxrecoveryrate --raidmaxrecoveryrate minrecoveryrate --minrecoveryrate "
             "--raidminrecoveryrate raid0 raid1 raid4 raid5 raid6 raid10 mirror writemostly",
             "redundancy is built by md below LVM", "write md(raid1,2)/lvm/ext4"),
    **refuse("cache -H --cache cachedevice --cachedevice cachemetadataformat --cachemetadataformat cachemode "
             "--cachemode cachepolicy --cachepolicy cachepool --cachepool cachesettings --cachesettings cachesize "
             "--cachesize cachevol --cachevol writecache --writecache",
             "a cache takes a device of its own and is filled over hours, which pgstrata does not build or empty"),
    **refuse("vdo --vdo vdopool --vdopool vdosettings --vdosettings compression --compression deduplication "
             "--deduplication", "pgstrata does not build VDO"),
    **refuse("chunksize chunk_size -c --chunksize discards --discards zero -Z --zero errorwhenfull --errorwhenfull "
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


class Lvm(BlockLayer):
    """LVM: all devices below become PVs of one VG, which carries one LV."""

    kind: Literal["lvm"] = "lvm"

    gives: ClassVar[str] = "LV"
    assembles: ClassVar[bool] = True
    under_pool: ClassVar[str] = "doubles the pooling and hides flush errors of single disks: give the disks to {fs}"
    units: ClassVar[Mapping[str, str]] = {"-I": "k", "--stripesize": "k"}
    also: ClassVar[Mapping[str, str]] = {
        "stripesize": "stripe_size",
        "-I": "stripe_size",
        "--stripesize": "stripe_size",
    }
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED
    not_options: ClassVar[frozenset[str]] = frozenset({"layout"})
    layout_field: ClassVar[str] = "layout"
    layout_minimum: ClassVar[Mapping[str, int]] = {"striped": 2}

    layout: Literal["linear", "striped", "thin"] = Field(
        "linear", description="linear concatenates the PVs; striped writes round them; thin allocates on first write"
    )
    stripe_size: SizeBytes | None = Field(None, description="with striped: bytes on one PV before the next")
    snapshots: int = Field(0, ge=0, le=16, description="snapshots of the LV kept during the run")

    @model_validator(mode="after")
    def _coherent(self) -> Lvm:
        size = self.stripe_size
        if size is not None and (size < 4096 or size & (size - 1)):
            raise ValueError(f"stripe_size {size} is not a power of two from 4k (for example 64k)")
        return self

    @property
    def capabilities(self) -> tuple[str, ...]:
        return ("block.lvm", "block.lvm.thin") if self.layout == "thin" else ("block.lvm",)

    def copies(self, devices: int) -> float:
        """Snapshots diverge from the LV while it is written to."""
        return 1.0 + self.snapshots
