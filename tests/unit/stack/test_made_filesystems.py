"""Filesystems made in sparse files with every accepted option of mkfs, read back by the checks of a trial."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.kind import Filesystem
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.stack import Stack
from pgstrata.stack.fs.btrfs import BtrfsCheck, parse_superblock
from pgstrata.stack.fs.ext4 import Ext4Check, parse_dumpe2fs
from pgstrata.stack.fs.xfs import XfsCheck, parse_xfs_info
from pgstrata.stack.plan import PlanContext, plan_stack
from pgstrata.stack.step import Attested

CONTEXT = PlanContext("b0-t1", "/scratch", 4 * 2**30, owner="postgres", mount_root="/run")
DISK_BYTES = 2**30
MADE: dict[str, tuple[str, ...]] = {
    "ext4": (
        *("64bit=off", "dir_index=off", "dir_nlink=off", "ext_attr=on", "extra_isize=off", "filetype=off"),
        *("flex_bg=off", "huge_file=off", "inline_data", "large_dir", "metadata_csum=off", "metadata_csum_seed"),
        *("orphan_file", "project", "quota", "resize_inode=off", "sparse_super2", "inode_size=512"),
        *("reserved_percent=0", "reserved_percent=1", "blocks_per_group=16384", "flex_bg_size=32", "bigalloc"),
        *("extent=off,64bit=off", "meta_bg,resize_inode=off", "sparse_super=off,resize_inode=off", "fast_commit"),
        *("uninit_bg,metadata_csum=off", "nojournal", "journal_size=64m", "block_size=1k,inode_size=256"),
    ),
    "xfs": (
        *("reflink=off", "bigtime=off", "rmapbt", "finobt=off,inobtcount=off", "inobtcount=off", "sparse=off"),
        *("nrext64", "nrext64=off", "agsize=128m", "agcount=8", "inode_size=1024", "inode_maxpct=10", "log_su=64k"),
        *("directory_block_size=8k", "log_size=128m", "sector_size=4k", "su=64k,sw=4"),
    ),
    "btrfs": (
        *("csum=crc32c", "csum=xxhash", "csum=sha256", "csum=blake2", "sectorsize=4k", "no_holes=off", "no_holes"),
        *("skinny_metadata=off", "skinny_metadata", "nodesize=32k"),
    ),
}
READERS = {"ext4": ("dumpe2fs", "-h"), "xfs": ("xfs_info",), "btrfs": ("btrfs", "inspect-internal", "dump-super")}


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout


def planned_mkfs(stack: Stack) -> list[str]:
    plan = plan_stack(stack, CONTEXT)
    commands = (c for step in plan.steps for c in step.commands)
    return next([w for w in c.argv if isinstance(w, str)] for c in commands if str(c.argv[0]).startswith("mkfs"))


def attested(fs: Filesystem, stack: Stack, text: str) -> tuple[Attested, ...]:
    checks = plan_stack(stack, CONTEXT).checks
    match fs:
        case Ext4():
            return next(c for c in checks if isinstance(c, Ext4Check)).compare(parse_dumpe2fs(text))
        case Xfs():
            return next(c for c in checks if isinstance(c, XfsCheck)).compare(parse_xfs_info(text))
        case Btrfs():
            return next(c for c in checks if isinstance(c, BtrfsCheck)).compare_superblock(parse_superblock(text))
    raise AssertionError(fs)


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind, options in MADE.items() for option in options])
def test_an_option_of_mkfs_is_made_and_read_back(kind: str, option: str, tmp_path: Path) -> None:
    if missing := [p for p in (f"mkfs.{kind}", READERS[kind][0]) if shutil.which(p) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    stack = parse_stack(f"{kind}:{option}")
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    run(*planned_mkfs(stack), str(disk))
    rows = attested(stack.data.fs, stack, run(*READERS[kind], str(disk)))
    assert [(row.what, row.actual) for row in rows] == [(row.what, row.expected) for row in rows]
    plain = planned_mkfs(parse_stack(kind))
    assert planned_mkfs(stack) != plain
