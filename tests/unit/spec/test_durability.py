"""Durability classes from configuration."""

from __future__ import annotations

import pytest

from pgstrata.spec.durability import durability_class, is_off, parse_configuration
from pgstrata.spec.durability_class import LOSES, LOSES_RECENT, SURVIVES, UNKNOWN, BackingFs
from pgstrata.spec.notation.stack import parse_stack

CASES = [
    ("ext4", SURVIVES, "flushed"),
    ("ext4:data=writeback,noatime", SURVIVES, "flushed"),
    ("zfs:sync=always+log", SURVIVES, "flushed"),
    ("md(raid10,4)/xfs@wal=ext4", SURVIVES, "flushed"),
    ("nfs(xfs)", SURVIVES, "flushed"),
    ("ext4@fsync=on@synchronous_commit=local", SURVIVES, "flushed"),
    ("zfs@full_page_writes=off", SURVIVES, "flushed"),
    ("btrfs@full_page_writes=off", LOSES, "torn pages"),
    ("ext4:data=journal", SURVIVES, "flushed"),
    ("ext4:data=journal@full_page_writes=off", LOSES, "torn pages"),
    ("ext4@synchronous_commit=off", LOSES_RECENT, "synchronous_commit=off"),
    ("ext4@fsync=off", LOSES, "fsync=off"),
    ("ext4@fsync=false@synchronous_commit=off", LOSES, "fsync=off"),
    ("ext4@fsync=f", LOSES, "fsync=off"),
    ("ext4@fsync=Of", LOSES, "fsync=off"),
    ("ext4@full_page_writes=n", LOSES, "torn pages"),
    ("ext4@synchronous_commit=FALSE", LOSES_RECENT, "synchronous_commit=off"),
    ("ext4:nobarrier", LOSES, "barrier=0"),
    ("btrfs:nobarrier", LOSES, "barrier=0"),
    ("ext4:fast_commit", UNKNOWN, "e2fsck"),
    ("ext4:nojournal", UNKNOWN, "no journal on the data directory: after a power cut it must be repaired by hand"),
    ("xfs@wal=ext4:nojournal", UNKNOWN, "no journal on pg_wal"),
    ("nfs(ext4:nojournal)", UNKNOWN, "repaired by hand (e2fsck -y)"),
    ("ext4@wal=ext4:barrier=0", LOSES, "pg_wal"),
    ("zfs:sync=disabled", LOSES, "sync=disabled"),
    ("zvol:sync=disabled/ext4", LOSES, "zvol sync=disabled below the data directory"),
    ("zvol:sync=always/ext4@wal=luks/lvm:cache_mode=writeback+cache/xfs", SURVIVES, "flushed"),
    ("lvm+writecache/ext4:nobarrier", LOSES, "barrier=0"),
    ("zfs:wal_dataset.sync=disabled", LOSES, "sync=disabled"),
    ("zfs:module.zfs_nocacheflush=1", LOSES, "zfs_nocacheflush=1"),
    ("zfs:module.zfs_nocacheflush=0", SURVIVES, "flushed"),
    ("nfs:async", LOSES, "async"),
    ("nfs:server=store:/pg", UNKNOWN, "store:/pg"),
    ("tmpfs", LOSES, "the data directory is on tmpfs"),
    ("ext4@wal=tmpfs", LOSES, "pg_wal is on tmpfs: memory; the server does not start after a power cut"),
    ("ext4@tablespace.fast=tmpfs", LOSES, "tablespace fast is on tmpfs"),
    ('ext4@queue.write_cache="write through"', LOSES, "write through"),
    ("ext4@full_page_writes=off", LOSES, "torn pages"),
    ("xfs@full_page_writes=off", LOSES, "torn pages"),
    ("btrfs:nodatacow@full_page_writes=off", LOSES, "torn pages"),
    ("zfs:recordsize=4k@full_page_writes=off", LOSES, "torn pages"),
    ("media(nvme)/ext4:nobarrier", SURVIVES, "the medium keeps it"),
    ("media(nvme)/ext4", SURVIVES, "flushed"),
    ("media(sata-ssd)/ext4:nobarrier", LOSES, "barrier=0"),
    ("media(none)/ext4:nobarrier", LOSES, "barrier=0"),
    ("media(nvme)/btrfs:nobarrier@wal=media(sata-ssd)/btrfs:nobarrier", LOSES, "pg_wal"),
    ("media(nvme)/ext4:nobarrier@fsync=off", LOSES, "fsync=off"),
    ('media(nvme)/ext4@queue.write_cache="write through"', SURVIVES, "the medium keeps it"),
    ("ext4@postgresql_conf=/etc/pg.conf", UNKNOWN, "postgresql.conf"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "class_", "reason"), CASES, ids=[c[0] for c in CASES])
def test_the_class_of_a_stack(text: str, class_: str, reason: str) -> None:
    found = durability_class(parse_stack(text))
    assert found.class_ == class_
    assert reason in found.reason


GROUNDS = [
    ("dir:/srv", None, UNKNOWN, "was not looked at"),
    ("dir:/srv", BackingFs("ext4", frozenset({"rw", "relatime"})), SURVIVES, "flushed"),
    ("dir:/srv", BackingFs("btrfs"), SURVIVES, "flushed"),
    ("dir:/dev/shm/x", BackingFs("tmpfs"), LOSES, "lies on tmpfs: memory"),
    ("ext4@wal=dir:/srv", BackingFs("tmpfs"), LOSES, "the server does not start after a power cut: its WAL is gone"),
    ("dir:/srv", BackingFs("ramfs"), LOSES, "memory"),
    ("dir:/srv", BackingFs("ext4", frozenset({"nobarrier"})), LOSES, "without barriers"),
    ("dir:/srv", BackingFs("ext4", frozenset({"barrier=0"})), LOSES, "without barriers"),
    ("dir:/srv", BackingFs("overlay", frozenset({"volatile"})), LOSES, "volatile"),
    ("dir:/srv", BackingFs("overlay"), UNKNOWN, "overlay"),
    ("dir:/srv", BackingFs("nfs4"), UNKNOWN, "nfs4"),
    ("dir:/srv", BackingFs("zfs"), UNKNOWN, "zfs"),
    ("dir:/srv", BackingFs("fuse.sshfs"), UNKNOWN, "fuse.sshfs"),
    ("dir:/srv@fsync=off", BackingFs("ext4"), LOSES, "fsync=off"),
    ("dir:/srv@full_page_writes=off", BackingFs("xfs"), LOSES, "torn pages"),
    ("dir:/srv@full_page_writes=off", BackingFs("btrfs"), LOSES, "torn pages"),
    ("ext4", BackingFs("ext4"), SURVIVES, "flushed"),
    ("ext4", BackingFs("nfs4"), SURVIVES, "flushed"),
    ("ext4", BackingFs("tmpfs"), LOSES, "the loop file of the data directory lies on tmpfs"),
    ("md(raid5,3)/ext4", None, SURVIVES, "write hole"),
    ("md(raid1,2)/ext4", None, SURVIVES, "every commit is flushed to the medium before it is acknowledged"),
    ("btrfs(raid5,3)", None, SURVIVES, "write hole"),
    ("md(raid6,4,state=degraded)/ext4", None, LOSES, "lacks a disk"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "ground", "class_", "reason"), GROUNDS)
def test_what_a_volume_lies_on_counts(text: str, ground: BackingFs | None, class_: str, reason: str) -> None:
    found = durability_class(parse_stack(text), grounds=dict.fromkeys(("data", "wal"), ground) if ground else None)
    assert (found.class_, reason in found.reason) == (class_, True), found


@pytest.mark.parametrize("value", ["of", "off", "OFF", "f", "fa", "fal", "fals", "False", "n", "No", "0"])
def test_every_false_spelling_of_the_server_is_known(value: str) -> None:
    assert is_off(value)


@pytest.mark.parametrize("value", [None, "", "o", "on", "offf", "t", "true", "y", "1", "00", "none", "falsee", "local"])
def test_other_values_are_not_off(value: str | None) -> None:
    assert not is_off(value)


def test_a_configuration_file_counts_once_it_is_read() -> None:
    stack = parse_stack("ext4@postgresql_conf=/etc/pg.conf")
    assert durability_class(stack, "shared_buffers = 1GB\nfsync off  # fast\n").class_ == LOSES
    assert durability_class(stack, "#fsync = off\n").class_ == SURVIVES
    own = parse_stack("ext4@postgresql_conf=/etc/pg.conf@fsync=on")
    assert durability_class(own, "fsync = off\n").class_ == SURVIVES


def test_a_configuration_file_is_read_as_the_server_reads_it() -> None:
    text = "# fsync = off\nFsync = 'on'\nwork_mem 4MB # note\nfsync = off\n"
    assert parse_configuration(text) == {"fsync": "off", "work_mem": "4mb"}
