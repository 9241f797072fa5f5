"""Which stacks there are crash trials for, and what they become."""

from __future__ import annotations

import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.crash import INITDB, SETTINGS, crash_campaign, named_stacks
from pgstrata.spec.layers.media import UNTIMED, MediaDevice
from pgstrata.spec.notation import parse_stack, render_stack


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


def test_a_recorded_volume_beside_data_that_is_not_has_no_common_order() -> None:
    with pytest.raises(UsageError, match="no common order"):
        parse_stack("ext4@wal=media(none,recorded=true)/ext4")


def test_a_recorded_disk_is_written_as_it_is_read() -> None:
    text = "media(none,recorded=true)/ext4"
    assert render_stack(parse_stack(text)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tmpfs", "crash trials do not take tmpfs"),
        ("lvm(2)/xfs", "layers"),
        ("ext4@wal=tmpfs", "crash trials do not take tmpfs"),
        ("ext4@wal=md(raid1,2)/xfs", "layers"),
    ],
)
def test_other_stacks_are_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        crash_campaign(named_stacks([text]))
