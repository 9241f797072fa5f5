"""Every layer and kind on a real kernel: built, attested, a short pgbench, undone, nothing left; a line for each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest
from bench import GoldenCluster, live, stack_of
from remains import data_disks

from pgstrata.host.delivery import deliver
from pgstrata.host.protocol import Host, command

LOOP = "loop"
DISK = "disk"
MEDIA = "media"

STACKS: dict[str, tuple[str, int, dict[str, object]]] = {
    # device, how many, and the volume above it
    "lvm(1)/xfs": (DISK, 1, {"layers": [{"kind": "lvm"}], "fs": {"kind": "xfs"}}),
    "lvm(25)/xfs": (LOOP, 25, {"layers": [{"kind": "lvm"}], "fs": {"kind": "xfs"}}),
    "lvm(2)/btrfs": (LOOP, 2, {"layers": [{"kind": "lvm"}], "fs": {"kind": "btrfs"}}),
    "lvm striped(4)/ext4": (
        DISK,
        4,
        {"layers": [{"kind": "lvm", "layout": "striped", "stripe_size": "128k"}], "fs": {"kind": "ext4"}},
    ),
    "lvm thin/xfs": (LOOP, 2, {"layers": [{"kind": "lvm", "layout": "thin"}], "fs": {"kind": "xfs"}}),
    "lvm snapshots/ext4": (DISK, 2, {"layers": [{"kind": "lvm", "snapshots": 2}], "fs": {"kind": "ext4"}}),
    "lvm thin snapshots/xfs": (
        LOOP,
        2,
        {"layers": [{"kind": "lvm", "layout": "thin", "snapshots": 2}], "fs": {"kind": "xfs"}},
    ),
    "lvm writeback cache/ext4": (
        DISK,
        2,
        {
            "layers": [
                {
                    "kind": "lvm",
                    "layout": "striped",
                    "cache": {"kind": "loop"},
                    "cache_mode": "writeback",
                    "cache_chunk": "128k",
                    "cache_settings": {"migration_threshold": 8192},
                }
            ],
            "fs": {"kind": "ext4"},
        },
    ),
    "lvm writethrough cache/xfs": (
        LOOP,
        1,
        {"layers": [{"kind": "lvm", "cache": {"kind": "loop"}}], "fs": {"kind": "xfs"}},
    ),
    "lvm writecache/xfs": (
        DISK,
        2,
        {
            "layers": [
                {
                    "kind": "lvm",
                    "writecache": {"kind": "loop"},
                    "cache_settings": {"high_watermark": 60, "low_watermark": 40},
                }
            ],
            "fs": {"kind": "xfs"},
        },
    ),
    "luks/ext4": (DISK, 1, {"layers": [{"kind": "luks"}], "fs": {"kind": "ext4"}}),
    "luks options, md(raid1)/xfs": (
        DISK,
        2,
        {
            "layers": [
                {
                    "kind": "luks",
                    "cipher": "aes-cbc-essiv:sha256",
                    "key_size": 256,
                    "sector_size": 4096,
                    "discards": True,
                    "no_read_workqueue": True,
                    "no_write_workqueue": True,
                    "same_cpu_crypt": True,
                    "submit_from_crypt_cpus": True,
                },
                {"kind": "md", "level": "raid1", "assume_clean": True},
            ],
            "fs": {"kind": "xfs"},
        },
    ),
    "luks1/zfs mirror": (
        DISK,
        2,
        {"layers": [{"kind": "luks", "format": "luks1"}], "fs": {"kind": "zfs", "vdev": "mirror"}},
    ),
    "zvol/ext4": (DISK, 1, {"layers": [{"kind": "zvol", "sync": "always"}], "fs": {"kind": "ext4"}}),
    "zvol(mirror,2) + log, encrypted/luks/xfs": (
        LOOP,
        2,
        {
            "layers": [
                {
                    "kind": "zvol",
                    "vdev": "mirror",
                    "volblocksize": "16k",
                    "compression": "lz4",
                    "log": {"kind": "loop"},
                    "encryption": "on",
                },
                {"kind": "luks"},
            ],
            "fs": {"kind": "xfs"},
        },
    ),
    "zfs encryption + wal dataset": (DISK, 1, {"fs": {"kind": "zfs", "encryption": "aes-128-gcm", "wal_dataset": {}}}),
    "md(raid0,4,64k)/xfs": (
        DISK,
        4,
        {"layers": [{"kind": "md", "level": "raid0", "chunk": "64k"}], "fs": {"kind": "xfs"}},
    ),
    "md(raid1,2)/ext4": (DISK, 2, {"layers": [{"kind": "md", "level": "raid1"}], "fs": {"kind": "ext4"}}),
    "md(raid10,4,64k)/ext4": (
        DISK,
        4,
        {"layers": [{"kind": "md", "level": "raid10", "chunk": "64k", "bitmap": "internal"}], "fs": {"kind": "ext4"}},
    ),
    "md(raid5,3,64k)/xfs": (
        DISK,
        3,
        {"layers": [{"kind": "md", "level": "raid5", "chunk": "64k"}], "fs": {"kind": "xfs"}},
    ),
    "md(raid6,4,64k) assume clean/xfs": (
        LOOP,
        4,
        {"layers": [{"kind": "md", "level": "raid6", "chunk": "64k", "assume_clean": True}], "fs": {"kind": "xfs"}},
    ),
    "md(raid5,4) degraded/ext4": (
        DISK,
        4,
        {
            "layers": [{"kind": "md", "level": "raid5", "assume_clean": True, "state": "degraded"}],
            "fs": {"kind": "ext4"},
        },
    ),
    "md(raid10,4)/lvm/ext4": (
        DISK,
        4,
        {
            "layers": [{"kind": "md", "level": "raid10", "assume_clean": True}, {"kind": "lvm"}],
            "fs": {"kind": "ext4"},
        },
    ),
    "md(raid1,2)/btrfs": (
        LOOP,
        2,
        {"layers": [{"kind": "md", "level": "raid1", "assume_clean": True}], "fs": {"kind": "btrfs"}},
    ),
    "zfs defaults": (DISK, 1, {"fs": {"kind": "zfs"}}),
    "zfs tuned + log": (
        DISK,
        1,
        {
            "fs": {
                "kind": "zfs",
                "ashift": 12,
                "recordsize": "16k",
                "compression": "lz4",
                "atime": False,
                "relatime": True,
                "logbias": "latency",
                "redundant_metadata": "most",
                "primarycache": "all",
                "sync": "standard",
                "xattr": "sa",
                "dnodesize": "auto",
                "log": {"kind": "loop"},
                "module": {
                    "zfs_prefetch_disable": 1,
                    "zfs_nocacheflush": 1,
                    "zfs_arc_max": 1073741824,
                    "zfs_arc_min": 536870912,
                    "zfs_txg_timeout": 1,
                },
            }
        },
    ),
    "zfs mirror + wal dataset": (
        DISK,
        2,
        {
            "fs": {
                "kind": "zfs",
                "vdev": "mirror",
                "recordsize": "8k",
                "wal_dataset": {"recordsize": "128k", "compression": "zstd"},
            }
        },
    ),
    "zfs raid10 + mirrored log, cache, special": (
        LOOP,
        4,
        {
            "fs": {
                "kind": "zfs",
                "vdev": "raid10",
                "compression": "gzip",
                "log": {"kind": "loop", "count": 2},
                "log_mirror": True,
                "cache": {"kind": "loop"},
                "special": {"kind": "loop", "count": 2},
            }
        },
    ),
    "zfs stripe(2)": (LOOP, 2, {"fs": {"kind": "zfs", "vdev": "stripe"}}),
    "zfs raidz1(3)": (LOOP, 3, {"fs": {"kind": "zfs", "vdev": "raidz1", "compression": "off"}}),
    "zfs raidz2(4)": (LOOP, 4, {"fs": {"kind": "zfs", "vdev": "raidz2"}}),
    "zfs raidz3(5)": (LOOP, 5, {"fs": {"kind": "zfs", "vdev": "raidz3"}}),
    "nfs 4.2 sync/xfs": (
        DISK,
        1,
        {
            "fs": {
                "kind": "nfs",
                "export": {"kind": "xfs"},
                "rsize": "64k",
                "wsize": "64k",
                "nconnect": 4,
                "noatime": True,
            }
        },
    ),
    "nfs 3 async/ext4": (
        LOOP,
        1,
        {"fs": {"kind": "nfs", "version": "3", "export_sync": False, "export": {"kind": "ext4"}}},
    ),
    "media(2)/md(raid1)/ext4": (
        MEDIA,
        2,
        {"layers": [{"kind": "md", "level": "raid1", "assume_clean": True}], "fs": {"kind": "ext4"}},
    ),
    "media(3)/lvm/xfs": (MEDIA, 3, {"layers": [{"kind": "lvm"}], "fs": {"kind": "xfs"}}),
    "media(2)/zfs mirror": (MEDIA, 2, {"fs": {"kind": "zfs", "vdev": "mirror"}}),
    "lvm(2)/nfs 4.2/xfs": (LOOP, 2, {"layers": [{"kind": "lvm"}], "fs": {"kind": "nfs", "export": {"kind": "xfs"}}}),
}


def device(host: Host, kind: str, count: int) -> dict[str, object]:
    if kind == DISK:
        return {"kind": "disk", "ids": data_disks(host)[:count]}
    return {"kind": "loop", "count": count} if kind == LOOP else {"kind": "media", "count": count, "model": "none"}


PARTS_OF_OTHERS = {
    "lvm(1)/xfs", "lvm(25)/xfs", "lvm writecache/xfs", "luks/ext4", "zvol/ext4", "md(raid1,2)/ext4", "zfs defaults",
    "zfs mirror + wal dataset", "nfs 4.2 sync/xfs", "media(2)/zfs mirror",
}  # fmt: skip
"""Stacks whose layers and options also occur in a larger one here, or in a test of killed builds."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.every_layer) if n in PARTS_OF_OTHERS else n for n in STACKS]
)
def test_stack(host: Host, golden: GoldenCluster, tell: Callable[[str], None], name: str) -> None:
    kind, count, volume = STACKS[name]
    if kind == MEDIA:
        deliver(host)
    lived = live(host, golden, stack_of({"device": device(host, kind, count), **volume}))
    assert {row.what.partition(" ")[0] for row in lived.attested} >= {"data"}
    assert lived.tps > 0
    tell(f"{name:42s} {lived.line}")


def test_cost_of_a_command(host: Host, tell: Callable[[str], None]) -> None:
    """One round trip over ssh with a program at its end; the figure is told, as an emulated machine has no limit."""
    costs = []
    for _ in range(20):
        began = time.monotonic()
        assert host.run(command("true")).exit_code == 0
        costs.append(time.monotonic() - began)
    tell(f"{'a command over ssh':42s} {statistics.median(costs) * 1000:.1f} ms (median of 20, {host.kind})")
