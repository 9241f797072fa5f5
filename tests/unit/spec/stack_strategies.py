"""Hypothesis strategies for valid stacks."""

from __future__ import annotations

from hypothesis import strategies as st

from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.devices import DiskDevice, LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.luks import Luks
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.spec.layers.md import Md
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.layers.zfs import Zfs, Zvol
from pgstrata.spec.stack import Kernel, Postgres, Queue, Stack, Volume

KIB = 1024
sizes = st.sampled_from([4 * KIB, 64 * KIB, 2 * KIB**2, 3 * KIB**3, 5 * KIB**2 + 512])
switches = st.sampled_from([None, True, False])
# Any text that a person may put into a path, a setting or an option, separators of the notation among them.
texts = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=1, max_size=12)

ext4 = st.builds(
    Ext4,
    journal_size=st.none() | sizes.filter(lambda size: size >= KIB**2),
    fast_commit=st.booleans(),
    data=st.sampled_from([None, "ordered", "writeback"]),
    noatime=st.booleans(),
    nodiratime=st.booleans(),
    barrier=st.booleans(),
    discard=st.booleans(),
    delalloc=st.booleans(),
    commit_s=st.none() | st.integers(1, 300),
    bigalloc_cluster=st.sampled_from([None, 64 * KIB]),
)
xfs = st.builds(
    Xfs,
    block_size=st.sampled_from([None, 4 * KIB, 64 * KIB]),
    log_size=st.none() | sizes,
    reflink=switches,
    bigtime=switches,
    noatime=st.booleans(),
    largeio=st.booleans(),
    logbufs=st.none() | st.integers(2, 8),
)
btrfs_options = {
    "nodatasum": st.booleans(),
    "compress": st.sampled_from([None, "no", "zstd", "zstd:3", "lzo"]),
    "autodefrag": st.booleans(),
    "ssd": switches,
    "discard": st.sampled_from([None, "async", "off"]),
    "space_cache": st.sampled_from([None, "v2"]),
    "barrier": st.booleans(),
    "commit_s": st.none() | st.integers(1, 300),
}
device = st.one_of(
    st.builds(LoopDevice, size=st.none() | sizes),
    st.builds(DiskDevice, ids=st.tuples(texts.map(lambda t: f"/dev/disk/by-id/{t}"))),
)


def _devices(count: int) -> st.SearchStrategy[LoopDevice | DiskDevice]:
    return st.one_of(
        st.builds(LoopDevice, count=st.just(count), size=st.none() | sizes),
        st.lists(
            texts.filter(lambda t: not t.isdigit() and not t.startswith("-")),
            min_size=count,
            max_size=count,
            unique=True,
        ).map(lambda ids: DiskDevice(ids=tuple(ids))),
    )


zfs = st.builds(
    Zfs,
    vdev=st.sampled_from(["stripe", "mirror", "raidz1", "raidz2"]),
    ashift=st.none() | st.integers(9, 16),
    log=st.none() | st.builds(LoopDevice, count=st.just(2), size=st.none() | sizes),
    log_mirror=st.just(False),
    cache=st.none() | device,
    recordsize=st.sampled_from([None, 8 * KIB, 16 * KIB]),
    compression=st.sampled_from([None, "lz4", "zstd-3", "off"]),
    atime=switches,
    sync=st.sampled_from([None, "disabled"]),
    wal_dataset=st.sampled_from([None, {}, {"logbias": "latency"}]),
    module=st.sampled_from([{}, {"zfs_txg_timeout": 1}]),
)

luks = st.builds(
    Luks,
    format=st.just("luks2"),
    cipher=st.sampled_from([None, "aes-cbc-essiv:sha256"]),
    key_size=st.sampled_from([None, 256]),
    sector_size=st.sampled_from([None, 512, 4096]),
    discards=st.booleans(),
    no_read_workqueue=st.booleans(),
)
zvol = st.builds(
    Zvol,
    vdev=st.sampled_from(["stripe", "mirror", "raidz1"]),
    volblocksize=st.sampled_from([None, 16 * KIB]),
    encryption=st.sampled_from([None, "on", "off"]),
    sync=st.sampled_from([None, "always"]),
    log=st.none() | device,
)
cached = st.builds(
    Lvm,
    layout=st.sampled_from(["linear", "striped"]),
    cache=device,
    cache_mode=st.sampled_from([None, "writeback"]),
    cache_chunk=st.sampled_from([None, 128 * KIB]),
    cache_settings=st.sampled_from([{}, {"migration_threshold": 4096}]),
) | st.builds(Lvm, writecache=device, cache_settings=st.sampled_from([{}, {"high_watermark": 60}]))

volumes = st.one_of(
    st.builds(Volume, device=device, fs=ext4 | xfs),
    st.builds(Volume, device=_devices(4), layers=st.sampled_from([(Md(level="raid10", chunk=64 * KIB),)]), fs=ext4),
    st.builds(Volume, device=_devices(3), layers=st.sampled_from([(Lvm(snapshots=2),), (Lvm(layout="thin"),)]), fs=xfs),
    st.builds(Volume, device=_devices(2), layers=st.tuples(cached), fs=xfs),
    st.builds(Volume, device=_devices(5), layers=st.tuples(luks), fs=zfs),
    st.builds(Volume, device=_devices(5), layers=st.tuples(zvol) | st.tuples(zvol, luks), fs=ext4),
    st.builds(
        Volume,
        device=_devices(4),
        fs=st.builds(
            Btrfs,
            data=st.sampled_from([None, "raid0", "raid10"]),
            metadata=st.sampled_from([None, "raid1", "raid10"]),
            **btrfs_options,
        ),
    ),
    st.builds(Volume, device=_devices(5), fs=zfs),
    st.builds(Volume, fs=st.builds(Tmpfs, size=st.none() | sizes, huge=st.sampled_from([None, "always"]))),
    st.builds(Volume, fs=st.builds(Existing, path=texts.map(lambda t: f"/{t}"))),
    st.builds(
        Volume,
        fs=st.builds(
            Nfs,
            server=st.none() | texts.map(lambda path: f"db2:/{path}"),
            version=st.sampled_from(["3", "4.2"]),
            export_sync=st.booleans(),
            hard=st.booleans(),
            nconnect=st.none() | st.integers(1, 16),
        ),
    ),
    st.builds(Volume, fs=st.builds(Nfs, export=st.none() | ext4 | xfs)),
)
kernels = st.builds(
    Kernel,
    sysctl=st.sampled_from([{}, {"vm.dirty_ratio": "99", "vm.swappiness": "0"}]),
    transparent_hugepage=st.sampled_from([None, "never"]),
    queue=st.builds(
        Queue,
        scheduler=st.sampled_from([None, "none", "mq-deadline"]),
        rotational=switches,
        write_cache=st.sampled_from([None, "write back"]),
    ),
)
servers = st.builds(
    Postgres,
    major=st.none() | st.integers(13, 18),
    source=st.sampled_from([None, "embedded"]),
    data_checksums=switches,
    initdb=st.lists(
        st.sampled_from(["--wal-segsize=64", "--icu-rules=&a < b", "--no-sync", "--locale-provider=icu"]), max_size=2
    ).map(tuple),
    settings=st.dictionaries(st.sampled_from(["fsync", "shared_buffers", "my.setting"]), texts, max_size=3),
    postgresql_conf=st.none() | texts,
) | st.builds(
    Postgres,
    major=st.none() | st.integers(13, 18),
    installation=st.sampled_from(["/usr/local/pgsql-18.1", "/opt/pg_18+x/~b"]),
)


def _distinct(stack: dict[str, object]) -> bool:
    try:
        Stack.model_validate(stack)
    except ValueError:
        return False
    return True


stacks = (
    st.fixed_dictionaries(
        {
            "name": st.just("a stack"),
            "data": volumes,
            "wal": st.none() | volumes,
            "tablespaces": st.dictionaries(st.sampled_from(["fast", "slow"]), volumes, max_size=2),
            "kernel": kernels,
            "postgresql": servers,
        }
    )
    .filter(_distinct)
    .map(Stack.model_validate)
)
