"""xfs. Sections and their options: mkfs.xfs(8); mount options: xfs(5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pgstrata.spec.durability_class import BackingFs
from pgstrata.spec.layers.kind import Device, LoggingFilesystem, Switch
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import (
    IMPLIED_MOUNT_WORDS,
    LEAVE_OUT,
    MOUNT_WORDS,
    SYNCHRONOUS,
    Refusal,
    refuse,
    spelled,
)

METADATA = ("reflink", "bigtime", "rmapbt", "finobt", "inobtcount")
"""Switches of mkfs.xfs -m."""
INODES = ("sparse", "nrext64")
"""Switches of mkfs.xfs -i."""
_REFUSED: Mapping[str, Refusal] = {
    **MOUNT_WORDS,
    **SYNCHRONOUS,
    **refuse("logdev -l~logdev -l~name -l~file -l~internal",
             "an external log takes a device of its own, which is named as a device", "write xfs+log(DEVICE)"),
    **refuse("rtdev -r -r~rtdev -r~size -r~extsize -r~name -r~file -r~noalign rtinherit rtname max_open_zones "
             "lifetime nolifetime zoned",
             "a realtime section takes a device of its own, and xfs of pgstrata has one device"),
    **refuse("sunit swidth -d~sunit -d~swidth", "it counts sectors of 512 bytes at mkfs and at mount and is shown as "
             "su and sw", "write su=64k,sw=4"),
    **refuse("log_sunit -l~sunit", "it is su of the log in other units", "write log_su=64k"),
    **refuse("-d~size -d~name -d~file", "the filesystem takes the whole device below", "give the device a size: "
             "loop(size=20G)/xfs"),
    **refuse("dax daxinherit", "it needs persistent memory, which pgstrata does not build on"),
    **refuse("cowextsize extszinherit projinherit", "it is a flag of the root directory, which xfs_info does not "
             "print, so that it could not be attested"),
    **refuse("concurrency -d~concurrency -l~concurrency -r~concurrency",
             "the number of allocation groups would follow the processors of the host", "write agcount=N"),
    **refuse("filestreams", "it spreads directories of streams over allocation groups, and PostgreSQL has one"),
    **refuse("ikeep noikeep attr2 noattr2", "it is deprecated, and Linux 6.18 has removed it", LEAVE_OUT),
    **refuse("barrier nobarrier delaylog nodelaylog ihashsize irixsgid osyncisdsync osyncisosync",
             "the kernel has removed it; barriers are always on since Linux 4.19", LEAVE_OUT),
    **refuse("norecovery nouuid", "pgstrata mounts what it made, with its log", LEAVE_OUT),
    **refuse("noquota quota usrquota uquota uqnoenforce qnoenforce grpquota gquota gqnoenforce prjquota pquota "
             "pqnoenforce grpid bsdgroups nogrpid sysvgroups",
             "it is about owners and limits of files, which a benchmark has none of"),
    **refuse("max_atomic_write", "PostgreSQL does not ask for atomic writes, so that nothing would change"),
    **refuse("perblock -i~align -i~attr attr projid32bit -i~projid32bit -i~perblock -i~exchange exchange parent "
             "metadir autofsck -n~version -n~parent ftype -l~version lazy-count -l~sectsize -l~sectlog -l~agnum "
             "-l~lazy-count agnum version lazy_count -m~crc crc",
             "mkfs.xfs of today has one sensible value for it, or it is experimental; pgstrata takes the default"),
    **refuse("-m~uuid uuid -L label -c -q -f -N -K -V -p protofile -n~nosort",
             "it is about how mkfs.xfs runs or names the filesystem, and pgstrata decides that", LEAVE_OUT),
    **refuse("-b~log -s~log -i~log -n~log", "it is the power of two of a size", "write the size"),
}  # fmt: skip


class Xfs(LoggingFilesystem):
    """xfs: mkfs and mount options."""

    kind: Literal["xfs"] = "xfs"
    assembles: ClassVar[bool] = True
    also: ClassVar[Mapping[str, str]] = spelled(
        block_size="-b~size", sector_size="-s~size", log_size="-l~size", log_su="-l~su", inode_size="-i~size isize",
        inode_maxpct="-i~maxpct maxpct imaxpct", directory_block_size="-n~size",
    )  # fmt: skip
    implied: ClassVar[frozenset[str]] = IMPLIED_MOUNT_WORDS | {
        *("async", "inode64", "nolargeio", "crc=1", "ftype=1", "lazy-count=1", "version=2")
    }
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED

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
    rmapbt: Switch = Field(None, description="index of the owner of each block, mkfs.xfs -m")
    finobt: Switch = Field(None, description="index of free inodes, mkfs.xfs -m")
    inobtcount: Switch = Field(None, description="blocks of inode indexes are counted, mkfs.xfs -m")
    sparse: Switch = Field(None, description="inodes in smaller chunks, mkfs.xfs -i")
    nrext64: Switch = Field(None, description="more extents in a file, mkfs.xfs -i")
    agsize: SizeBytes | None = Field(None, description="size of an allocation group, mkfs.xfs -d agsize")
    inode_size: int | None = Field(None, ge=512, le=2048, description="bytes of an inode, mkfs.xfs -i size")
    inode_maxpct: int | None = Field(None, ge=0, le=100, description="share of space for inodes, mkfs.xfs -i maxpct")
    log_su: SizeBytes | None = Field(None, description="stripe unit of the log, mkfs.xfs -l su")
    directory_block_size: SizeBytes | None = Field(None, description="mkfs.xfs -n size")
    strictatime: bool = Field(False, description="record every reading of a file")
    lazytime: bool = Field(False, description="keep timestamps in memory until the inode is written anyway")
    inode32: bool = Field(False, description="inodes in the first terabyte alone")
    noalign: bool = Field(False, description="do not align allocation to the stripe")
    swalloc: bool = Field(False, description="align large files to the stripe width")
    wsync: bool = Field(False, description="create, remove and rename files synchronously")
    log: Device | None = Field(
        None, description="device of its own for the log, of which log_size (512M where none is given) is used"
    )

    @model_validator(mode="after")
    def _coherent(self) -> Xfs:
        if (self.su is None) != (self.sw is None):
            raise ValueError("su and sw go together")
        size = self.block_size
        if size is not None and (size & (size - 1) or not 1024 <= size <= 65536):
            raise ValueError(f"block_size {self.block_size} is not a power of two from 1k to 64k")
        if self.su is not None and self.su % (self.block_size or 4096):
            raise ValueError(f"su {self.su} is not a multiple of the block size")
        if self.sector_size is not None and self.sector_size > (self.block_size or 4096):
            raise ValueError("sector_size is larger than the block size")
        if self.agsize is not None and self.agcount is not None:
            raise ValueError("agsize and agcount say the same: choose one")
        for name in ("inode_size", "directory_block_size"):
            bytes_ = getattr(self, name)
            if bytes_ is not None and (bytes_ & (bytes_ - 1) or bytes_ > 65536):
                raise ValueError(f"{name} {bytes_} is not a power of two up to 64k")
        block = self.block_size or 4096
        if self.inode_size is not None and self.inode_size > block // 2:
            raise ValueError(f"inode_size {self.inode_size} is larger than half of a block")
        if self.directory_block_size is not None and self.directory_block_size < block:
            raise ValueError("directory_block_size is smaller than the block size")
        if self.log_su is not None and (self.log_su % block or self.log_su > 256 * 1024):
            raise ValueError("log_su is a multiple of the block size up to 256k")
        if self.noatime and self.strictatime:
            raise ValueError("noatime and strictatime exclude each other: choose one")
        return self

    def tears_pages(self, ground: BackingFs | None) -> bool:
        return True
