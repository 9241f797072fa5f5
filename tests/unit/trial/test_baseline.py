"""A baseline leaves nothing behind but its record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fake_host import FakeHost, completed
from pgstrata.host.protocol import Command, Completed
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.expand import block_trials
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.stack import Stack, Volume
from pgstrata.spec.workload import Workload
from pgstrata.trial.survey import media_range
from pgstrata.trial.survey.host_survey import Site
from pgstrata.workload.medium import MediumBaseline


class Machine(FakeHost):
    def __init__(self) -> None:
        super().__init__(files={"/proc/sys/kernel/random/boot_id": "b\n", "/var/tmp/mine": ""}, answer=self.reply)

    def reply(self, command: Command) -> Completed | None:
        if command.argv[0] == "rmdir":
            self.remove(command.argv[-1])
            return completed(command.argv)
        return completed(command.argv, "0\n") if command.argv == ("id", "-u") else None


def places(host: FakeHost) -> set[str]:
    return {path for path in host.modes if path.startswith("/var/tmp")}


@pytest.mark.parametrize("place", ["/var/tmp", "/var/tmp/new/below"])
def test_it_is_measured_in_a_folder_that_goes(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Machine()
    seen = []

    def measured(target: FakeHost, folder: str, *, server_binaries: str | None, seconds: float) -> MediumBaseline:
        seen.append((folder, target.modes[folder], server_binaries, seconds))
        target.write_text(f"{folder}/flushed", "x")
        return MediumBaseline(flushes_per_s=1.0)

    monkeypatch.setattr(media_range, "measure_medium", measured)
    before = places(host)
    assert media_range.measure_place(host, place, "/bin", seconds=0.5) == MediumBaseline(flushes_per_s=1.0)
    ((folder, mode, binaries, seconds),) = seen
    assert folder.startswith(f"{place}/pgstrata-medium-")
    assert (mode, binaries, seconds) == (0o700, "/bin", 0.5)
    assert places(host) == before
    assert not [path for path in host.files if "/journal/" in path]


def test_what_ends_it_takes_the_folder_along(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Machine()

    def interrupted(*_: object, **__: object) -> MediumBaseline:
        raise KeyboardInterrupt

    monkeypatch.setattr(media_range, "measure_medium", interrupted)
    before = places(host)
    with pytest.raises(KeyboardInterrupt):
        media_range.measure_place(host, "/var/tmp", None)
    assert places(host) == before


def site(medium_: str, duration_s: float) -> Site:
    """As much of one as a baseline looks at."""
    stack = Stack(name="a", data=Volume(fs=Ext4()))
    campaign = Campaign(name="x", stacks=(stack,), workload=Workload(duration=duration_s))
    installations = {"a": SimpleNamespace(bin_directory="/bin15")}
    found = SimpleNamespace(
        host=Machine(), campaign=campaign, medium=medium_, scratch="/var/tmp", installations=installations
    )
    return cast(Site, found)


LOOP = "loop file on ext4 on /dev/vda"


@pytest.mark.parametrize(
    ("medium_", "duration_s", "seconds"),
    [("memory", 60.0, None), (LOOP, 9.0, None), (LOOP, 30.0, 1.0), (LOOP, 600.0, 2.0)],
)
def test_it_is_recorded_where_it_tells_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, medium_: str, duration_s: float, seconds: float | None
) -> None:
    monkeypatch.setattr(
        media_range, "measure_medium", lambda *_, seconds, server_binaries: MediumBaseline(flushes_per_s=seconds)
    )
    asked = site(medium_, duration_s)
    with CampaignDirectory.create_or_open(tmp_path / "c", asked.campaign) as directory:
        media_range.record_baseline(asked, directory)
        (trial,) = block_trials(asked.campaign, 0, ("a",))
        planned = PlannedRecord(trial=trial, stack=asked.campaign.stacks[0], steps=())
        directory.start_trial(trial, planned).finish(TrialVerdict(trial_id=trial.id, status="ok"))
        media_range.record_baseline(asked, directory)
        media = directory.data().media
    expected = [] if seconds is None else [(0, seconds, seconds, LOOP), (1, seconds, seconds, LOOP)]
    assert [(m.before_block, m.seconds, m.flushes_per_s, m.medium) for m in media] == expected


@pytest.mark.parametrize(
    ("medium_", "duration_s", "seconds"),
    [("memory", 60.0, None), (LOOP, 29.0, None), (LOOP, 30.0, 1.0), (LOOP, 600.0, 2.0)],
)
def test_flushes_are_checked_before_a_block_where_they_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, medium_: str, duration_s: float, seconds: float | None
) -> None:
    monkeypatch.setattr(media_range, "measure_flushes", lambda *_, seconds: MediumBaseline(flushes_per_s=seconds))
    asked = site(medium_, duration_s)
    with CampaignDirectory.create_or_open(tmp_path / "c", asked.campaign) as directory:
        media_range.record_check(asked, directory, 3)
        data = directory.data()
    assert data.baselines == ()
    assert [(m.kind, m.before_block, m.flushes_per_s) for m in data.media] == (
        [] if seconds is None else [("check", 3, seconds)]
    )
