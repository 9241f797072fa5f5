"""What a plan promises beyond its commands (those are golden cases)."""

from __future__ import annotations

import pytest

from fake_host import FakeHost, completed
from pgstrata.errors import UsageError
from pgstrata.host.protocol import Command, Completed
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.devices import DiskDevice, LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.stack import Kernel, Stack, Volume
from pgstrata.stack.block.loop import DetachLoops
from pgstrata.stack.fs.btrfs import plan_btrfs
from pgstrata.stack.fs.ext4 import plan_ext4
from pgstrata.stack.fs.xfs import plan_xfs
from pgstrata.stack.kind import Below, Geometry
from pgstrata.stack.mounts import Expectation, setting, switch
from pgstrata.stack.plan import PlanContext, plan_stack
from pgstrata.stack.safety import find_nodes, parse_device_id
from pgstrata.stack.step import Erased, Ref
from pgstrata.stack.tuning.kernel import queue_path
from pgstrata.stack.undo import RemovePath, Unmount, WipeDevice

CONTEXT = PlanContext("t1", "/scratch/", 2**30, owner="postgres", mount_root="/run")
ARRAY = Below(nodes=("/dev/md1",), media=("/dev/sda", "/dev/sdb"), geometry=Geometry(65536, 3))


def test_where_everything_goes() -> None:
    stack = Stack(
        name="x",
        data=Volume(fs=Ext4()),
        wal=Volume(device=LoopDevice(count=2), fs=Btrfs()),
        tablespaces={"bench": Volume(fs=Tmpfs())},
    )
    plan = plan_stack(stack, CONTEXT)
    assert plan.data_directory == "/run/pgstrata-t1/data/pgdata"
    assert plan.wal_directory == "/run/pgstrata-t1/wal/pgwal"
    assert plan.tablespace_directories == {"bench": "/run/pgstrata-t1/tablespace.bench/pgspace"}
    assert plan.mounts["wal"] == "/run/pgstrata-t1/wal"
    bindings = {"data.0": "/dev/loop0", "wal.0": "/dev/loop1", "wal.1": "/dev/loop2"}
    assert plan.devices(bindings) == {
        "data": ("/dev/loop0",),
        "wal": ("/dev/loop1", "/dev/loop2"),
        "tablespace.bench": (),
    }


def test_wal_stays_with_the_data_unless_it_has_a_volume() -> None:
    assert plan_stack(Stack(name="x", data=Volume(fs=Xfs())), CONTEXT).wal_directory is None


def test_without_a_mount_root_mounts_go_below_the_scratch_folder() -> None:
    context = PlanContext("t1", "/scratch", 2**30)
    plan = plan_stack(Stack(name="x", data=Volume(fs=Xfs())), context)
    assert plan.mounts == {"data": "/scratch/pgstrata-t1/mount/data"}
    assert not any("--owner" in line for step in plan.steps for line in step.shown_commands)


def test_every_step_that_makes_something_names_its_undo() -> None:
    device = DiskDevice(ids=("/dev/disk/by-id/a",))
    plan = plan_stack(Stack(name="x", data=Volume(device=device, fs=Ext4()), wal=Volume(fs=Xfs())), CONTEXT)
    kinds = [type(undo) for step in plan.steps for undo in step.undo]
    assert kinds == [
        *(RemovePath, RemovePath),
        *(WipeDevice, RemovePath, Unmount),
        *(RemovePath, DetachLoops, RemovePath, Unmount),
    ]
    assert [step.erases for step in plan.steps if step.erases] == [(Erased("/dev/disk/by-id/a", Ref("data.0")),)]


def test_host_wide_changes_are_marked() -> None:
    kernel = Kernel.model_validate({"sysctl": {"vm.swappiness": 1}, "queue": {"nr_requests": 8}})
    plan = plan_stack(Stack(name="x", data=Volume(fs=Ext4()), kernel=kernel), CONTEXT)
    assert [step.name for step in plan.steps if step.host_wide] == ["sysctl settings"]


def test_filesystems_are_aligned_to_the_array_below() -> None:
    place = CONTEXT.place("data")
    ext4, xfs = plan_ext4(Ext4(), ARRAY, place), plan_xfs(Xfs(), ARRAY, place)
    assert "stride=16,stripe_width=48 -b 4096" in ext4.steps[0].shown_commands[0]
    assert "-d su=65536,sw=3" in xfs.steps[0].shown_commands[0]
    assert ext4.notes == xfs.notes == ()


def test_misalignment_is_told() -> None:
    place = CONTEXT.place("data")
    (note,) = plan_ext4(Ext4(stride_blocks=8, stripe_width_blocks=8), ARRAY, place).notes
    assert "stride 8 and stripe width 8 blocks, the array below has 16 and 48" in note
    (note,) = plan_xfs(Xfs(su="32k", sw=2), ARRAY, place).notes
    assert "misaligned" in note
    (note,) = plan_xfs(Xfs(block_size="16k"), Below(("/dev/md1",), geometry=Geometry(4096, 2)), place).notes
    assert "does not fit" in note


def test_a_block_size_scales_the_stride() -> None:
    part = plan_ext4(Ext4(block_size="1k"), ARRAY, CONTEXT.place("data"))
    assert "stride=64,stripe_width=192 -b 1024" in part.steps[0].shown_commands[0]


def test_btrfs_names_every_device_when_it_is_mounted() -> None:
    part = plan_btrfs(Btrfs(), Below(nodes=(Ref("data.0"), Ref("data.1"), "/dev/sdc")), CONTEXT.place("data"))
    assert "--options 'device=<data.1>' --options device=/dev/sdc '<data.0>'" in part.steps[1].shown_commands[1]


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("/dev/disk/by-id/nvme-A", "readlink --canonicalize-existing /dev/disk/by-id/nvme-A"),
        ("/dev/disk/by-path/pci-1", "readlink --canonicalize-existing /dev/disk/by-path/pci-1"),
        ("PARTUUID=0fc63daf-01", "findfs PARTUUID=0fc63daf-01"),
        ("/srv/disk.img", "losetup --associated /srv/disk.img --noheadings --output NAME"),
        ("/dev/vdb+1024+254:16", "readlink --canonicalize-existing /dev/vdb"),
    ],
)
def test_stable_ids(text: str, argv: str) -> None:
    assert parse_device_id(text).find_command.text == argv


def test_a_repeated_id_keeps_what_was_repeated() -> None:
    parsed = parse_device_id("/dev/vdb+1024+254:16")
    assert (parsed.size_bytes, parsed.numbers) == (1024, (254, 16))


@pytest.mark.parametrize("text", ["/dev/sdb", "sdb", "", "/dev/vdb+1024", "/dev/disk/by-id/", "PARTUUID=x y", "UUID=1"])
def test_what_is_no_stable_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no stable id") as refusal:
        parse_device_id(text)
    assert "by-id" in refusal.value.hint


DISKS = {"/dev/disk/by-id/ata-1": "/dev/sda", "/dev/disk/by-id/ata-2": "/dev/sdb", "/dev/disk/by-id/gone": ""}


def _look_up(asked: Command) -> Completed:
    """As readlink does it: nothing is printed for what is not there."""
    if asked.argv[0] == "losetup":
        return completed(asked.argv, "/dev/loop3\n")
    found = [DISKS[path] for path in asked.argv[2:]]
    return completed(asked.argv, "".join(f"{node}\n" for node in found if node), exit_code=int("" in found))


@pytest.mark.parametrize(("wanted", "programs"), [(2, 1), (3, 4)])
def test_nodes_of_several_ids_are_told_apart_when_one_is_gone(wanted: int, programs: int) -> None:
    host = FakeHost(answer=_look_up)
    ids = (*list(DISKS)[:wanted], "/srv/disk.img")
    assert find_nodes(host, ids) == dict(list(DISKS.items())[:wanted]) | {"/srv/disk.img": "/dev/loop3"}
    assert len([c for c in host.asked if c.argv[0] == "readlink"]) == programs


def test_expectations_read_options_as_the_kernel_shows_them() -> None:
    barrier, discard, data = (
        option.expected
        for option in (
            switch("barrier", True, off="nobarrier"),
            switch("discard", False, on="discard"),
            setting("data", None, "ordered", always=True),
        )
    )
    assert barrier is not None
    assert discard is not None
    assert data is not None
    assert barrier.actual(("rw", "nobarrier")) == "off"
    assert barrier.actual(("rw",)) == "on"
    assert discard.actual(("discard",)) == "on"
    assert data.actual(("data=journal",)) == "journal"
    assert data.wanted == "ordered"
    discard = Expectation("discard", "sync", (("discard=async", "async"), ("discard", "sync")), "off")
    assert [discard.actual((shown,)) for shown in ("discard", "discard=async", "rw")] == ["sync", "async", "off"]


def test_queue_files() -> None:
    assert queue_path("/dev/sda", "scheduler") == "/sys/class/block/sda/queue/scheduler"
    path = queue_path(Ref("data.0"), "scheduler")
    assert isinstance(path, Ref)
    assert path.resolve({"data.0": "/dev/loop7"}) == "/sys/class/block/loop7/queue/scheduler"
