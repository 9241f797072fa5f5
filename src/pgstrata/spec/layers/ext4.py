"""ext4. Barriers and mount options: ext4(5); features: ext4(5), FILE SYSTEM FEATURES; flags: mke2fs(8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pgstrata.spec.durability_class import LOSES_CACHE, UNKNOWN, BackingFs, Promises
from pgstrata.spec.layers.kind import Device, LoggingFilesystem, Switch
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import (
    IMPLIED_MOUNT_WORDS,
    LEAVE_OUT,
    MOUNT_WORDS,
    SYNCHRONOUS,
    YOURSELF,
    Refusal,
    refuse,
    spelled,
)

FEATURES: Mapping[str, str] = {
    "bits_64": "64bit",
    **{
        name: name
        for name in (
            *("dir_index", "dir_nlink", "ext_attr", "extent", "extra_isize", "filetype", "flex_bg", "huge_file"),
            *("inline_data", "large_dir", "meta_bg", "metadata_csum", "metadata_csum_seed"),
            *("orphan_file", "project", "quota", "resize_inode", "sparse_super", "sparse_super2", "uninit_bg"),
        )
    },
}
"""Features of mke2fs -O that are switched by fields of their own; those with values of their own are not among them."""
_FEATURE = "mke2fs -O; mke2fs.conf of the host decides by default"
_BY_ONE_WRITER = "it is for filesystems that several hosts share"
_REFUSED: Mapping[str, Refusal] = {
    **MOUNT_WORDS,
    **SYNCHRONOUS,
    **refuse("mmp mmp_update_interval -E~mmp_update_interval", "after a power cut a mount waits for tens of seconds"),
    **refuse("casefold encrypt verity stable_inodes encoding encoding_flags inlinecrypt test_dummy_encryption",
             "it changes only directories that are marked for it, and PostgreSQL marks none"),
    **refuse("ea_inode user_xattr grpid bsdgroups nogrpid sysvgroups resuid resgid nouid32 minixdf bsddf usrquota "
             "grpquota prjquota usrjquota grpjquota jqfmt quota_type quotatype root_owner root_perms no_copy_xattrs",
             "it is about owners, limits or attributes of files and does not change how PostgreSQL reads and writes"),
    **refuse("journal_dev journal_path logdev device location -J~device -J~location",
             "an external journal takes a device of its own, which is named as a device", "write ext4+log(DEVICE)"),
    **refuse("fast_commit_size -J~fast_commit_size orphan_file_size",
             "dumpe2fs does not print it, so that it could not be attested"),
    **refuse("lazy_itable_init lazy_journal_init init_itable noinit_itable",
             "a kernel thread would write inode tables during the first minutes and be measured; pgstrata writes them "
             "whole before (lazy_itable_init=0, lazy_journal_init=0)"),
    **refuse("journal_checksum nojournal_checksum",
             "with metadata_csum the journal has checksums anyway, and the kernel shows none of the two then",
             "switch metadata_csum"),
    **refuse("journal_async_commit", "the kernel refuses it with data=ordered, and what it means for acknowledged "
             "commits is not classified"),
    **refuse("journal_ioprio mb_optimize_scan", "the kernel does not show it among the options of the mount, so that "
             "it could not be attested"),
    **refuse("noload norecovery abort debug nombcache no_mbcache",
             "it is for repairs and debugging of the filesystem", LEAVE_OUT),
    **refuse("sb", "pgstrata mounts by the first superblock, which it has just made", LEAVE_OUT),
    **refuse("errors=panic -e=panic", "an error of the filesystem would take the host down",
             "write errors=remount-ro"),
    **refuse("max_dir_size_kb", "it bounds the size of directories, and those of PostgreSQL are small"),
    **refuse("dax", "it needs persistent memory, which pgstrata does not build on"),
    **refuse("bh nobh mblk_io_submit nomblk_io_submit oldalloc orlov i_version nouser_xattr reservation noreservation "
             "check nocheck", "kernels of today ignore it or have removed it", LEAVE_OUT),
    **refuse("-i inode_ratio bytes_per_inode -N number_of_inodes -T usage_type",
             "mke2fs rounds it to whole groups, so that the result could not be compared", f"{YOURSELF}; inode_size "
             "can be chosen"),
    **refuse("-c -l -d -D -F -n -q -S -v -V -z -t -o~Linux -o~Hurd -r revision packed_meta_blocks offset "
             "num_backup_sb hash_seed resize test_fs assume_storage_prezeroed -E~discard -E~nodiscard hash_alg -M "
             "desc_size",
             "it is about how mke2fs runs or what it leaves for other tools, and pgstrata decides that", LEAVE_OUT),
    **refuse("-L -U label uuid", "pgstrata names and finds the filesystem by its own label", LEAVE_OUT),
    **refuse("large_file", "ext4 sets it by itself with the first large file", LEAVE_OUT),
    **refuse("shared_blocks snapshot_bitmap compression imagic_inodes exclude_bitmap needs_recovery orphan_present",
             "mke2fs does not make it", LEAVE_OUT),
}  # fmt: skip


class Ext4(LoggingFilesystem):
    """ext4: mke2fs and mount options that matter to PostgreSQL."""

    kind: Literal["ext4"] = "ext4"
    assembles: ClassVar[bool] = True

    aliases: ClassVar[Mapping[str, str]] = {
        "commit": "commit_s",
        "stride": "stride_blocks",
        "stripe_width": "stripe_width_blocks",
        "bigalloc": "bigalloc_cluster",
        "journal": "has_journal",
        "64bit": "bits_64",
    }
    units: ClassVar[Mapping[str, str]] = {"-J size": "m"}
    also: ClassVar[Mapping[str, str]] = spelled(
        block_size="-b blocksize", stripe_width_blocks="stripe-width", bigalloc_cluster="-C cluster_size",
        journal_size="-J~size", inode_size="-I", reserved_percent="-m reserved_ratio", blocks_per_group="-g",
        flex_bg_size="-G", errors="-e", extent="extents",
    )  # fmt: skip
    bare: ClassVar[Mapping[str, Mapping[str, str]]] = {"bigalloc": {"bigalloc_cluster": "64k"}}
    opposites: ClassVar[Mapping[str, str]] = {
        "dioread_lock": "dioread_nolock",
        "no_prefetch_block_bitmaps": "prefetch_block_bitmaps",
    }
    implied: ClassVar[frozenset[str]] = IMPLIED_MOUNT_WORDS | {*("async", "lazy_itable_init=0", "lazy_journal_init=0")}
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED

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
    bits_64: Switch = Field(None, description=f"block numbers of 64 bits; {_FEATURE}")
    dir_index: Switch = Field(None, description=f"hashed directories; {_FEATURE}")
    dir_nlink: Switch = Field(None, description=f"more than 65000 subdirectories; {_FEATURE}")
    ext_attr: Switch = Field(None, description=f"extended attributes; {_FEATURE}")
    extent: Switch = Field(None, description=f"extents in place of block lists; {_FEATURE}")
    extra_isize: Switch = Field(None, description=f"room in inodes for nanoseconds; {_FEATURE}")
    filetype: Switch = Field(None, description=f"types of files in directories; {_FEATURE}")
    flex_bg: Switch = Field(None, description=f"metadata of several groups together; {_FEATURE}")
    huge_file: Switch = Field(None, description=f"files above 2 TiB; {_FEATURE}")
    inline_data: Switch = Field(None, description=f"tiny files in the inode; {_FEATURE}")
    large_dir: Switch = Field(None, description=f"directories above 2 GiB; {_FEATURE}")
    meta_bg: Switch = Field(None, description=f"group descriptors in their groups; {_FEATURE}")
    metadata_csum: Switch = Field(None, description=f"checksums of metadata and journal; {_FEATURE}")
    metadata_csum_seed: Switch = Field(None, description=f"checksums do not depend on the UUID; {_FEATURE}")
    orphan_file: Switch = Field(None, description=f"deleted open files in a file, Linux 5.15; {_FEATURE}")
    project: Switch = Field(None, description=f"project ids in inodes; {_FEATURE}")
    quota: Switch = Field(None, description=f"use of space counted by user and group; {_FEATURE}")
    resize_inode: Switch = Field(None, description=f"room to grow the group descriptors; {_FEATURE}")
    sparse_super: Switch = Field(None, description=f"fewer copies of the superblock; {_FEATURE}")
    sparse_super2: Switch = Field(None, description=f"at most two copies of the superblock; {_FEATURE}")
    uninit_bg: Switch = Field(None, description=f"checksums of group descriptors alone; {_FEATURE}")
    inode_size: int | None = Field(None, ge=128, le=65536, description="bytes of an inode, mke2fs -I")
    reserved_percent: int | None = Field(None, ge=0, le=50, description="blocks kept for root, mke2fs -m")
    blocks_per_group: int | None = Field(None, ge=256, description="mke2fs -g, a multiple of 8")
    flex_bg_size: int | None = Field(None, ge=2, description="groups whose metadata lie together, mke2fs -G")
    strictatime: bool = Field(False, description="record every reading of a file")
    lazytime: bool = Field(False, description="keep timestamps in memory until the inode is written anyway")
    auto_da_alloc: bool = Field(True, description="false: no flush when a file is replaced by rename or truncation")
    dioread_nolock: Switch = Field(None, description="false: reads of files being extended are locked (dioread_lock)")
    block_validity: bool = Field(True, description="false: no check of blocks against metadata")
    prefetch_block_bitmaps: bool = Field(True, description="false: read block bitmaps when they are needed")
    errors: Literal["continue", "remount-ro"] | None = Field(None, description="what an error of the filesystem does")
    data_err: Literal["ignore", "abort"] | None = Field(
        None, description="abort: an error of file data in the journal ends it"
    )
    inode_readahead_blks: int | None = Field(None, ge=0, description="blocks of inode tables read ahead; kernel: 32")
    stripe: int | None = Field(None, ge=1, description="mount option: blocks to align allocation to")
    max_batch_time: int | None = Field(None, ge=0, description="microseconds a commit waits for others; kernel: 15000")
    min_batch_time: int | None = Field(None, ge=0, description="the least of it; the kernel takes 0")

    log: Device | None = Field(None, description="device of its own for the journal, which takes the whole of it")

    @model_validator(mode="after")
    def _coherent(self) -> Ext4:
        block = self.block_size or 4096
        if self.block_size is not None and self.block_size not in (1024, 2048, 4096, 8192, 16384, 32768, 65536):
            raise ValueError(f"block_size {self.block_size} is not a power of two from 1k to 64k")
        if self.journal_size is not None and self.journal_size < 2**20:
            raise ValueError(f"journal_size {self.journal_size} is below 1 MiB (for example 1g)")
        if not self.has_journal and (self.journal_size or self.fast_commit or self.data):
            raise ValueError("without a journal there is no journal_size, fast_commit or data mode")
        if self.bigalloc_cluster is not None and (
            self.bigalloc_cluster <= block or self.bigalloc_cluster & (self.bigalloc_cluster - 1)
        ):
            raise ValueError(
                f"bigalloc_cluster is a power of two above the block size ({block}), not {self.bigalloc_cluster}"
            )
        if self.data == "journal" and self.fast_commit:
            raise ValueError("fast_commit does nothing with data=journal (ext4 falls back to full commits): choose one")
        if self.stripe_width_blocks and self.stride_blocks and self.stripe_width_blocks % self.stride_blocks:
            raise ValueError("stripe_width_blocks is a multiple of stride_blocks (stride x data disks)")
        return self

    @model_validator(mode="after")
    def _coherent_features(self) -> Ext4:
        size = self.inode_size
        if size is not None and (size & (size - 1) or size > (self.block_size or 4096)):
            raise ValueError(f"inode_size {size} is not a power of two up to the block size")
        if self.blocks_per_group is not None and self.blocks_per_group % 8:
            raise ValueError(f"blocks_per_group {self.blocks_per_group} is not a multiple of 8")
        if self.flex_bg_size is not None and (self.flex_bg_size & (self.flex_bg_size - 1) or self.flex_bg is False):
            raise ValueError("flex_bg_size is a power of two and needs flex_bg")
        if self.log is not None and (not self.has_journal or self.journal_size or self.fast_commit):
            raise ValueError("a journal on a device of its own takes the whole device: no journal_size, no fast_commit")
        if self.orphan_file and not self.has_journal:
            raise ValueError("orphan_file needs a journal")
        if self.extent is False and (self.bits_64 is not False or self.bigalloc_cluster or self.fast_commit):
            raise ValueError("without extents there is no 64bit, which is usual, and no bigalloc: add 64bit=off")
        if self.meta_bg and self.resize_inode is not False:
            raise ValueError("meta_bg excludes resize_inode, which is usual: add resize_inode=off")
        if self.sparse_super is False and self.resize_inode is not False:
            raise ValueError("resize_inode, which is usual, needs sparse_super: add resize_inode=off")
        if self.metadata_csum_seed and self.metadata_csum is False:
            raise ValueError("metadata_csum_seed needs metadata_csum")
        if self.uninit_bg and self.metadata_csum is not False:
            raise ValueError("metadata_csum, which is usual, takes the place of uninit_bg: add metadata_csum=off")
        ahead = self.inode_readahead_blks
        if ahead is not None and ahead & (ahead - 1):
            raise ValueError(f"inode_readahead_blks {ahead} is neither 0 nor a power of two")
        if self.data == "journal" and self.dioread_nolock:
            raise ValueError("the kernel refuses dioread_nolock with data=journal: choose one")
        if self.noatime and self.strictatime:
            raise ValueError("noatime and strictatime exclude each other: choose one")
        return self

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        if not self.barrier:
            yield LOSES_CACHE, f"barrier=0 on {where}: no flush reaches the device"
        if not self.has_journal:
            yield (
                UNKNOWN,
                f"no journal on {where}: after a power cut it must be repaired by hand (e2fsck -y) before PostgreSQL "
                "can start",
            )
        if self.fast_commit:
            # docs/crash.md, "Controls": the first block of the fast-commit area, torn at 512 bytes.
            yield (
                UNKNOWN,
                f"fast_commit on {where}: a disk that does not write 4096 bytes as a whole can leave a journal that "
                "Linux refuses to mount, and e2fsck then drops commits",
            )

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """With data=journal too: its journal takes the two blocks of a page one by one (docs/crash.md, "Controls")."""
        return True
