"""Modelled media that a host cannot keep up with are told of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fake_host import FakeHost, completed
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Host
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.file.files import resolve_stack_files
from pgstrata.spec.hosts.lab import LabDisk, LabMachine
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.block.media import parse_calibration
from pgstrata.trial.survey import media_range, survey
from pgstrata.trial.survey.host_survey import Site
from pgstrata.trial.survey.media_range import (
    FACT,
    AskedTiming,
    deliver_media,
    lab_timings_of,
    media_of,
    out_of_range,
    timings_of,
    with_media_range,
)

SMALLEST = {"hdd-7200": 1.0, "nvme": 4.2, "sata-ssd": 2.0}


def lines(*asked: AskedTiming) -> list[str]:
    return list(out_of_range(asked, SMALLEST))


def test_a_model_that_is_faster_than_the_host_is_told_with_the_stretch_that_helps() -> None:
    (line,) = lines(AskedTiming("nvme", 1), AskedTiming("hdd-7200", 1))
    assert "nvme is out of range" in line
    assert "stretch=5" in line


def test_stretched_enough_nothing_is_said() -> None:
    assert lines(AskedTiming("nvme", 5), AskedTiming("sata-ssd", 2)) == []


def test_the_least_stretch_counts() -> None:
    assert len(lines(AskedTiming("nvme", 5), AskedTiming("nvme", 2))) == 1


def test_media_of_every_role_and_of_log_devices_count() -> None:
    stack = parse_stack("zfs+log(media(sata-ssd-plp,size=2G))@wal=media(nvme)/ext4")
    campaign = Campaign(name="x", stacks=(stack,))
    assert {device.model for device in media_of(campaign)} == {"sata-ssd-plp", "nvme"}


def test_a_model_that_was_not_calibrated_is_not_taken_for_one_in_range() -> None:
    assert lines(AskedTiming("mine", 1)) == ["whether modelled medium mine is in the range of this host is not known"]


def test_a_disk_without_times_has_no_range() -> None:
    assert timings_of(Campaign(name="x", stacks=(parse_stack("media(none)/ext4"),))) == ()


def test_a_model_that_strata_disk_does_not_take_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    supplied = Path(__file__).parents[3] / "crates" / "strata-disk" / "models" / "nvme.toml"
    (tmp_path / "mine.toml").write_text(supplied.read_text().replace('"nvme"', '"mine"'))
    _, stack = resolve_stack_files(parse_stack("media(./mine.toml)/ext4"), tmp_path)
    said = completed((), exit_code=1, stderr="strata-disk: model mine: parameter channels is missing")
    host = FakeHost(answer=lambda asked: said if "validate" in asked.argv else completed(asked.argv))
    site = SimpleNamespace(host=host, campaign=Campaign(name="x", stacks=(stack,)))
    with pytest.raises(PreflightError, match="medium mine: model mine: parameter channels is missing"):
        deliver_media(cast(Site, site))
    assert 'name = "mine"' in host.asked[-1].stdin


def test_the_disks_of_a_lab_machine_are_held_against_the_machine_that_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = LabMachine(disks={"a": LabDisk(media="nvme", stretch=2), "b": LabDisk(size=1 << 30)})
    stacks = (parse_stack("media(sata-ssd)/ext4"), parse_stack("disk(/dev/disk/by-id/virtio-a)/ext4"))
    looked: list[str] = []

    def measured(host: Host, scratch: str, own: object) -> dict[str, float]:
        looked.append(host.name)
        return SMALLEST

    monkeypatch.setattr(media_range, "calibrated", measured)
    monkeypatch.setattr(media_range, "is_measurable", lambda site: True)
    monkeypatch.setattr(FakeHost, "name", "lab/run-1")
    guest = FakeHost()
    plain = Campaign(name="x", stacks=(Stack(name="here", data=Volume(fs=Existing(path=str(tmp_path)))),))
    own = survey.survey(LocalHost(state_directory=str(tmp_path / "state")), plain, tmp_path / "out")
    site, lines = with_media_range(
        replace(own, host=guest, campaign=Campaign(name="x", stacks=stacks, lab=lab, host="lab"))
    )
    assert looked == ["lab/run-1", "local"]
    assert site.facts.told[FACT] == "; ".join(lines)
    assert ["sata-ssd" in lines[0], "nvme" in lines[1], len(lines)] == [True, True, 2]
    assert lab_timings_of(Campaign(name="x", stacks=stacks, lab=lab)) == ()


def test_the_stretch_of_each_model_is_read() -> None:
    assert parse_calibration(
        '{"fronts": [], "models": [{"model": "nvme", "smallest_stretch": 4.2, "beyond": []}]}'
    ) == {"nvme": 4.2}
