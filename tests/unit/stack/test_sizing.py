"""Estimates of space."""

from __future__ import annotations

import pytest

from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.devices import DiskDevice, LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.kind import Device
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.spec.layers.md import Md
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.spec.stack import Postgres, Stack, Volume
from pgstrata.spec.workload import Workload
from pgstrata.stack import sizing
from pgstrata.stack.sizing import CLUSTER_BYTES, GIB, MIB


def _campaign(*volumes: Volume, **changes: object) -> Campaign:
    stacks = tuple(Stack(name=f"s{number}", data=volume) for number, volume in enumerate(volumes))
    return Campaign(name="x", stacks=stacks, **{"workload": Workload(scale=(100,)), **changes})


def _loops(count: int) -> LoopDevice:
    return LoopDevice(count=count)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GB", GIB), ("512", 512 * MIB), ("'64 MB'", 64 * MIB), ("2048kB", 2 * MIB), ("1TB", 1024 * GIB)],
)
def test_sizes_of_postgresql(text: str, size: int) -> None:
    assert sizing.parse_setting_bytes(text, MIB) == size


def test_what_is_no_size_of_postgresql() -> None:
    with pytest.raises(ValueError, match="not a size"):
        sizing.parse_setting_bytes("plenty", MIB)


@pytest.mark.parametrize(
    ("volume", "factor"),
    [
        (Volume(fs=Ext4()), 1),
        (Volume(device=_loops(2), fs=Btrfs(data="raid1")), 2),
        (Volume(fs=Btrfs(data="dup")), 2),
        (Volume(device=_loops(4), fs=Btrfs(data="raid10")), 2),
        (Volume(device=_loops(3), fs=Btrfs(data="raid1c3")), 3),
        (Volume(device=_loops(5), fs=Btrfs(data="raid1c4")), 4),
        (Volume(device=_loops(4), fs=Btrfs(data="raid5")), 4 / 3),
        (Volume(device=_loops(3), layers=(Md(level="raid1"),), fs=Xfs()), 3),
        (Volume(device=_loops(4), layers=(Md(level="raid6"),), fs=Xfs()), 2),
        (Volume(device=_loops(2), layers=(Lvm(snapshots=2),), fs=Xfs()), 3),
        (Volume(device=_loops(2), layers=(Md(level="raid1"), Lvm(snapshots=1)), fs=Ext4()), 4),
        (Volume(device=_loops(5), fs=Zfs(vdev="raidz2")), 5 / 3),
        (Volume(device=_loops(3), fs=Zfs(vdev="mirror")), 3),
    ],
)
def test_copies(volume: Volume, factor: float) -> None:
    assert sizing.copies(volume) == pytest.approx(factor)


def test_devices_share_what_is_written() -> None:
    def each(device: Device, profile: str) -> int:
        return sizing.device_bytes(Volume(device=device, fs=Btrfs.model_validate({"data": profile})), 1000 * MIB)

    overhead = sizing.FILESYSTEM_OVERHEAD
    assert each(_loops(4), "raid0") == pytest.approx(1000 * MIB * overhead / 4)
    assert each(_loops(2), "raid1") == pytest.approx(1000 * MIB * overhead)
    assert each(DiskDevice(ids=("/dev/disk/by-id/a", "/dev/disk/by-id/b")), "raid1") == each(_loops(2), "raid1")


def test_every_role_gets_its_part() -> None:
    stack = Stack(
        name="x",
        data=Volume(fs=Ext4()),
        wal=Volume(fs=Xfs()),
        tablespaces={"bench": Volume(fs=Tmpfs()), "other": Volume(fs=Tmpfs())},
    )
    campaign = Campaign(name="x", stacks=(stack,), workload=Workload(scale=(10, 100), tablespace="bench"))
    content = sizing.content_of(campaign, stack)
    assert sizing.bytes_by_role(campaign, stack, content) == {
        "data": CLUSTER_BYTES,
        "wal": CLUSTER_BYTES + content.wal_bytes,
        "tablespace.bench": CLUSTER_BYTES + content.database_bytes,
        "tablespace.other": CLUSTER_BYTES,
    }
    assert content.database_bytes == int(100 * 16 * MIB * sizing.GROWTH)
    assert content.wal_bytes == int(1.5 * GIB)


def test_loop_files_hold_twice_the_estimate_in_whole_gib() -> None:
    campaign = _campaign(Volume(fs=Ext4()))
    needed = sizing.device_bytes(campaign.stacks[0].data, sizing.content_of(campaign, campaign.stacks[0]).total_bytes)
    size = sizing.loop_size_bytes(campaign)
    assert size % GIB == 0
    assert 2 * needed <= size < 2 * needed + GIB
    assert sizing.loop_size_bytes(_campaign(Volume(fs=Tmpfs()))) == sizing.LEAST_DEVICE_BYTES
    assert sizing.loop_size_bytes(campaign, loaded_bytes=100 * GIB) > 200 * GIB


def test_scratch_space_is_for_the_largest_stack_and_golden_copies() -> None:
    small, large = Volume(fs=Ext4()), Volume(device=_loops(2), fs=Btrfs(data="raid1"))
    fresh = {"load": "fresh"}
    one = sizing.scratch_bytes(_campaign(small, runs=fresh), 8 * GIB)
    both = sizing.scratch_bytes(_campaign(small, large, runs=fresh), 8 * GIB)
    assert both == pytest.approx(2 * one, rel=0.01)
    assert sizing.scratch_bytes(_campaign(small, large, runs={"load": "keep"}), 8 * GIB) == pytest.approx(
        3 * one, rel=0.01
    )
    copied = sizing.scratch_bytes(_campaign(small, runs={"load": "copy"}), 8 * GIB)
    assert copied - one == CLUSTER_BYTES + 100 * 16 * MIB
    assert sizing.scratch_bytes(_campaign(Volume(fs=Tmpfs()), runs=fresh), 8 * GIB) == 0


def test_stacks_with_other_tablespaces_need_a_golden_copy_of_their_own() -> None:
    def stacks(*names: tuple[str, ...]) -> Campaign:
        made = (
            Stack(name=f"s{i}", data=Volume(fs=Tmpfs()), tablespaces={n: Volume(fs=Tmpfs()) for n in own})
            for i, own in enumerate(names)
        )
        return Campaign(name="x", stacks=tuple(made), workload=Workload(scale=(100,)))

    copy = CLUSTER_BYTES + 100 * 16 * MIB
    assert sizing.scratch_bytes(stacks((), ()), 0) == copy
    assert sizing.scratch_bytes(stacks((), ("a",), ("b", "a"), ("a", "b")), 0) == 3 * copy


def test_preconditioning_fills_the_files() -> None:
    steady = _campaign(Volume(fs=Ext4()), runs={"load": "fresh", "precondition": "steady"})
    aged = _campaign(Volume(fs=Ext4()), runs={"load": "fresh", "aged": True})
    assert sizing.scratch_bytes(steady, 100 * GIB) == 100 * GIB
    needed = sizing.device_bytes(aged.stacks[0].data, sizing.content_of(aged, aged.stacks[0]).total_bytes)
    assert sizing.scratch_bytes(aged, 100 * GIB) == 80 * GIB + needed


def test_the_database_fits_beside_what_ages_the_filesystem() -> None:
    aged = _campaign(Volume(fs=Ext4()), runs={"aged": True})
    needed = sizing.device_bytes(aged.stacks[0].data, sizing.content_of(aged, aged.stacks[0]).total_bytes)
    assert (1 - sizing.AGED_SHARE) * sizing.loop_size_bytes(aged) >= 2 * needed


def test_settings_decide() -> None:
    def stack(**settings: str) -> Stack:
        return Stack(name="x", data=Volume(fs=Ext4()), postgresql=Postgres(settings=settings))

    campaign = _campaign(Volume(fs=Ext4()))
    assert sizing.content_of(campaign, stack(max_wal_size="4GB")).wal_bytes == 6 * GIB
    assert sizing.content_of(campaign, stack(MAX_WAL_SIZE="2048")).wal_bytes == 3 * GIB
    assert sizing.content_of(campaign, stack(max_wal_size="plenty")).wal_bytes == int(1.5 * GIB)
    assert sizing.shared_buffers_bytes(stack(shared_buffers="1000")) == 1000 * 8192
    assert sizing.shared_buffers_bytes(stack()) == 128 * MIB
