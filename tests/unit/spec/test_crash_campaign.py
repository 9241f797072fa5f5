"""Which stacks there are crash trials for, and what they become."""

from __future__ import annotations

import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.crash import INITDB, SETTINGS, cluster_crash_campaign, crash_campaign, named_stacks
from pgstrata.spec.layers.md import Md
from pgstrata.spec.layers.media import UNTIMED, MediaDevice
from pgstrata.spec.notation.stack import parse_stack, render_stack
from pgstrata.spec.stack import Postgres, Stack


def test_a_stack_is_put_on_one_recorded_disk() -> None:
    (stack,) = crash_campaign(named_stacks(["xfs:noatime@fsync=off"])).stacks
    device = stack.data.device
    assert isinstance(device, MediaDevice)
    assert (device.model, device.count, device.recorded) == (UNTIMED, 1, True)
    assert stack.postgresql.settings == {**SETTINGS, "fsync": "off"}
    assert (stack.postgresql.initdb, stack.postgresql.data_checksums) == (INITDB, True)


def test_what_a_stack_asks_for_stays() -> None:
    text = "media(hdd-7200,size=1GiB)/ext4@shared_buffers=4MB@data_checksums=off"
    (stack,) = crash_campaign(named_stacks([text])).stacks
    device = stack.data.device
    assert isinstance(device, MediaDevice)
    assert (device.model, device.size, device.recorded) == ("hdd-7200", 1 << 30, True)
    assert stack.postgresql.settings["shared_buffers"] == "4MB"
    assert stack.postgresql.data_checksums is False


def test_every_disk_of_every_volume_is_recorded() -> None:
    (stack,) = crash_campaign(named_stacks(["btrfs(raid1)@wal=ext4"])).stacks
    devices = [volume.device for volume in stack.volumes.values()]
    assert [(isinstance(d, MediaDevice) and d.recorded, d.count) for d in devices] == [(True, 2), (True, 1)]


def test_the_devices_of_a_pool_are_recorded_too() -> None:
    (stack,) = crash_campaign(named_stacks(["zfs(mirror)+log(mirror)"])).stacks
    devices = [stack.data.device, *stack.data.fs.own_devices.values()]
    assert [(isinstance(d, MediaDevice) and d.recorded, d.count) for d in devices] == [(True, 2), (True, 2)]
    assert Stack.model_validate_json(stack.model_dump_json()) == stack


def test_an_array_of_disks_that_read_as_zeroes_needs_no_first_resync() -> None:
    (stack,) = crash_campaign(named_stacks(["md(raid5,3)/ext4"])).stacks
    (layer,) = stack.data.layers
    assert isinstance(layer, Md)
    assert layer.assume_clean
    (plain,) = crash_campaign(named_stacks(["md(raid0,2)/ext4"])).stacks
    assert plain.data.layers == (Md(level="raid0"),)


def test_a_recorded_volume_beside_data_that_is_not_has_no_common_order() -> None:
    with pytest.raises(UsageError, match="no common order"):
        parse_stack("ext4@wal=media(none,recorded=true)/ext4")


def test_a_recorded_disk_is_written_as_it_is_read() -> None:
    text = "media(none,recorded=true)/ext4"
    assert render_stack(parse_stack(text)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tmpfs", "the data directory is in memory: nothing of it is left after a power cut"),
        ("ext4@wal=tmpfs", "the server does not start after a power cut: its WAL is gone"),
        ("nfs:server=db2:/srv", "the disks below this nfs are not of this host"),
    ],
)
def test_other_stacks_are_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        crash_campaign(named_stacks([text]))


def test_wal_of_larger_segments_is_not_kept_below_two_of_them() -> None:
    plain = named_stacks(["cluster(2)/tmpfs"])
    own = Postgres(initdb=("--no-sync",))
    with_options = plain.model_copy(update={"stacks": (plain.stacks[0].model_copy(update={"postgresql": own}),)})
    assert cluster_crash_campaign(plain).stacks[0].postgresql.settings["min_wal_size"] == "8MB"
    made = cluster_crash_campaign(with_options).stacks[0].postgresql
    assert made.initdb == ("--no-sync",)
    assert "min_wal_size" not in made.settings
