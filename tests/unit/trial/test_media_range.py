"""Modelled media that a host cannot keep up with are told of."""

from __future__ import annotations

from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.media import MediaDevice
from pgstrata.spec.notation import parse_stack
from pgstrata.stack.block.media import parse_calibration
from pgstrata.trial.media_range import media_of, out_of_range

SMALLEST = {"hdd-7200": 1.0, "nvme": 4.2, "sata-ssd": 2.0}


def lines(*devices: MediaDevice) -> list[str]:
    return list(out_of_range(devices, SMALLEST))


def test_a_model_that_is_faster_than_the_host_is_told_with_the_stretch_that_helps() -> None:
    (line,) = lines(MediaDevice(model="nvme"), MediaDevice(model="hdd-7200"))
    assert "nvme is out of range" in line
    assert "stretch=5" in line


def test_stretched_enough_nothing_is_said() -> None:
    assert lines(MediaDevice(model="nvme", stretch=5), MediaDevice(model="sata-ssd", stretch=2)) == []


def test_the_least_stretch_counts() -> None:
    assert len(lines(MediaDevice(model="nvme", stretch=5), MediaDevice(model="nvme", stretch=2))) == 1


def test_media_of_every_role_and_of_log_devices_count() -> None:
    stack = parse_stack("zfs+log(media(sata-ssd-plp,size=2G))@wal=media(nvme)/ext4")
    campaign = Campaign(name="x", stacks=(stack,))
    assert {device.model for device in media_of(campaign)} == {"sata-ssd-plp", "nvme"}


def test_the_stretch_of_each_model_is_read() -> None:
    assert parse_calibration(
        '{"fronts": [], "models": [{"model": "nvme", "smallest_stretch": 4.2, "beyond": []}]}'
    ) == {"nvme": 4.2}
