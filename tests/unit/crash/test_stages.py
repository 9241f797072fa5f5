"""How the layers of a state are brought up again and taken down: by commands that name their own devices alone."""

from __future__ import annotations

import pytest

from pgstrata.crash.job import plan_stages, plan_take_down, recorded_disks, tells_files, undos_of_stages
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata.stack.block.lvm import RemoveVg
from pgstrata.stack.block.md import StopMd
from pgstrata.stack.fs.nfs import Unexport
from pgstrata.stack.fs.zfs_status import DestroyPool
from pgstrata.stack.plan import PlanContext, VolumePlan, plan_stack
from pgstrata.stack.secret_key import KEY_BYTES, KNOWN_KEY
from pgstrata.stack.undo import Unmount

ARRAY = "pgstrata-4dfe976a018ae0bc"


def volumes_of(text: str) -> tuple[VolumePlan, ...]:
    (stack,) = crash_campaign(named_stacks([text])).stacks
    return plan_stack(stack, PlanContext("t1", "/s", 1 << 30, "postgres")).volumes


UP = {
    "ext4": ["mount --types ext4 '<data.0>' /s/pgstrata-t1/mount/data --options nosuid,nodev,noexec"],
    "xfs": ["mount --types xfs '<data.0>' /s/pgstrata-t1/mount/data --options nouuid --options nosuid,nodev,noexec"],
    "lvm(2)/ext4": [
        "vgchange --devices '<data.0>' --devices '<data.1>' --activate y pgstrata-t1-data",
        "readlink --canonicalize-existing /dev/pgstrata-t1-data/volume",
        "mount --types ext4 '<data.lvm>' /s/pgstrata-t1/mount/data --options nosuid,nodev,noexec",
    ],
    "md(raid1,2)/ext4": [
        f"mdadm --assemble --run /dev/md/{ARRAY} '<data.0>' '<data.1>'",
        f"udevadm settle --exit-if-exists=/dev/md/{ARRAY} --timeout=60",
        f"readlink --canonicalize-existing /dev/md/{ARRAY}",
        "mount --types ext4 '<data.md>' /s/pgstrata-t1/mount/data --options nosuid,nodev,noexec",
    ],
    "md(raid5,3):state=degraded/lvm/ext4": [
        f"mdadm --assemble --run /dev/md/{ARRAY} '<data.0>' '<data.1>'",
        f"udevadm settle --exit-if-exists=/dev/md/{ARRAY} --timeout=60",
        f"readlink --canonicalize-existing /dev/md/{ARRAY}",
        "vgchange --devices '<data.md>' --activate y pgstrata-t1-data",
        "readlink --canonicalize-existing /dev/pgstrata-t1-data/volume",
        "mount --types ext4 '<data.lvm>' /s/pgstrata-t1/mount/data --options nosuid,nodev,noexec",
    ],
    "zfs(mirror)+log": [
        "zpool import -d '<data.0>' -d '<data.1>' -d '<data.log.0>' -o cachefile=none pgstrata-t1-data",
    ],
    "lvm+cache/ext4": [
        "vgchange --devices '<data.0>' --devices '<data.lvm.cache.0>' --activate y pgstrata-t1-data",
        "readlink --canonicalize-existing /dev/pgstrata-t1-data/volume",
        "mount --types ext4 '<data.lvm>' /s/pgstrata-t1/mount/data --options nosuid,nodev,noexec",
    ],
    "luks:discards/ext4": [
        "cryptsetup open --type luks2 --allow-discards --key-file /s/pgstrata-t1/data.luks.key/key '<data.0>' "
        "pgstrata-t1-data-luks0",
        "readlink --canonicalize-existing /dev/mapper/pgstrata-t1-data-luks0",
        "mount --types ext4 '<data.luks.0>' /s/pgstrata-t1/mount/data --options nosuid,nodev,noexec",
    ],
    "zfs:encryption=on,wal_dataset.recordsize=8k": [
        "zpool import -d '<data.0>' -o cachefile=none pgstrata-t1-data",
        "zfs load-key -L file:///s/pgstrata-t1/data.zfs.key/key pgstrata-t1-data",
        "zfs mount pgstrata-t1-data/data",
        "zfs mount pgstrata-t1-data/wal",
    ],
    "nfs": [
        "mount --types ext4 '<data.0>' /s/pgstrata-t1/mount/data.export --options nosuid,nodev,noexec",
        "exportfs -o rw,sync,no_subtree_check,no_root_squash 127.0.0.1:/s/pgstrata-t1/mount/data.export",
        "mount --types nfs --options vers=4.2 --options proto=tcp --options hard --options retry=0 "
        "127.0.0.1:/s/pgstrata-t1/mount/data.export /s/pgstrata-t1/mount/data --options nosuid,nodev,noexec",
    ],
}
DOWN = {
    "ext4": ["umount /s/pgstrata-t1/mount/data"],
    "btrfs(raid1)": [
        "umount /s/pgstrata-t1/mount/data",
        "btrfs device scan --forget '<data.0>' '<data.1>'",
    ],
    "md(raid5,3)/lvm/ext4": [
        "umount /s/pgstrata-t1/mount/data",
        "vgchange --devices '<data.md>' --activate n pgstrata-t1-data",
        f"mdadm --stop /dev/md/{ARRAY}",
    ],
    "zfs": ["zpool export pgstrata-t1-data"],
    "nfs": [
        "umount /s/pgstrata-t1/mount/data",
        "exportfs -u 127.0.0.1:/s/pgstrata-t1/mount/data.export",
        "umount /s/pgstrata-t1/mount/data.export",
    ],
    "ext4@wal=lvm/xfs": [
        "umount /s/pgstrata-t1/mount/wal",
        "vgchange --devices '<wal.0>' --activate n pgstrata-t1-wal",
        "umount /s/pgstrata-t1/mount/data",
    ],
}


@pytest.mark.parametrize(("text", "commands"), UP.items(), ids=UP)
def test_layers_come_up_from_the_bottom(text: str, commands: list[str]) -> None:
    assert [command.shown for stage in plan_stages(volumes_of(text)) for command in stage.up] == commands


@pytest.mark.parametrize(("text", "commands"), DOWN.items(), ids=DOWN)
def test_layers_are_taken_down_from_the_top(text: str, commands: list[str]) -> None:
    assert [command.shown for command in plan_take_down(plan_stages(volumes_of(text)))] == commands


def test_an_array_that_lacks_a_member_is_forced_to_start_after_it_was_refused() -> None:
    (array, _) = plan_stages(volumes_of("md(raid5,3):state=degraded/ext4"))
    assert [command.shown for command in array.mend] == [
        f"mdadm --assemble --run --force /dev/md/{ARRAY} '<data.0>' '<data.1>'",
        f"mdadm --stop /dev/md/{ARRAY}",
    ]


def test_states_of_encrypted_stacks_have_a_key_that_is_known() -> None:
    (stage, _) = plan_stages(volumes_of("luks/ext4"))
    (key,) = stage.readies
    assert key.commands[-1].stdin == KNOWN_KEY
    assert len(KNOWN_KEY) == KEY_BYTES


@pytest.mark.parametrize("text", ["lvm/ext4", "md(raid1,2)/xfs", "zfs", "nfs", "btrfs", "ext4@wal=zfs"])
def test_what_the_kernel_knows_by_its_identity_is_up_once(text: str) -> None:
    assert any(stage.alone for stage in plan_stages(volumes_of(text)))


@pytest.mark.parametrize("text", ["ext4", "xfs", "ext4@wal=xfs"])
def test_copies_that_are_mounted_by_their_node_are_up_beside_one_another(text: str) -> None:
    assert not any(stage.alone for stage in plan_stages(volumes_of(text)))


def test_what_outlives_a_worker_is_undone() -> None:
    def undone(text: str) -> list[type]:
        return [type(undo) for undo in undos_of_stages(plan_stages(volumes_of(text)))]

    assert undone("ext4@wal=xfs") == []
    assert undone("md(raid1,2)/lvm/xfs") == [StopMd, RemoveVg]
    assert undone("zfs") == [DestroyPool]
    assert undone("nfs") == [Unmount, Unexport, Unmount]


def test_every_disk_has_the_name_that_it_was_recorded_by() -> None:
    found = {disk.node: disk.name for disk in recorded_disks(volumes_of("zfs(mirror)+log@wal=lvm(2)/ext4"))}
    assert found == {
        "data.0": "data-0",
        "data.1": "data-1",
        "data.log.0": "data-log-0",
        "wal.0": "wal-0",
        "wal.1": "wal-1",
    }


def test_files_are_told_where_nothing_is_between_them_and_their_disks() -> None:
    assert tells_files(volumes_of("ext4@wal=btrfs(raid1)"))
    assert not any(tells_files(volumes_of(text)) for text in ("lvm/ext4", "zfs", "nfs", "ext4@wal=zfs"))


def test_what_syncing_leaves_in_memory_is_written_back_besides() -> None:
    """Of a pool whose syncing is off, and on the server of an export that answers before it has written."""

    def written(text: str) -> list[str]:
        return [c.shown for stage in plan_stages(volumes_of(text)) for c in stage.write_back]

    assert written("zfs:sync=disabled") == ["zpool sync pgstrata-t1-data"]
    assert written("nfs:async") == ["sync --file-system /s/pgstrata-t1/mount/data.export"]
    assert written("md(raid1,2)/lvm/ext4") == []


@pytest.mark.parametrize(
    ("stack", "commands"),
    [
        ("ext4@wal=xfs", ["e2fsck -f -n '<data.0>'", "xfs_repair -n '<wal.0>'"]),
        ("btrfs(raid1)", ["btrfs check --readonly '<data.0>'"]),
        ("lvm/ext4", ["e2fsck -f -n '<data.lvm>'"]),
        ("zfs", []),
    ],
)
def test_filesystems_are_examined_and_not_repaired(stack: str, commands: list[str]) -> None:
    stages = plan_stages(volumes_of(stack))
    assert [command.shown for stage in stages for command in stage.examine] == commands
