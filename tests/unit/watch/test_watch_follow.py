"""What a look at a directory tells: of a campaign that runs, of garbage, of one that is not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live_view import RunningTrial
from pgstrata.record.decision import round_trials
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import DecisionRecord, PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.watch import follow
from pgstrata.watch.follow import MOST_SECONDS, PIECE_BYTES, Follower, Progress, Tail, last_bytes
from pgstrata_fake.campaigns import Shape, write_campaign


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_campaign(tmp_path_factory.mktemp("watch") / "c", Shape(stacks=("ext4", "xfs"), blocks=3, duration_s=5))


@pytest.fixture
def directory(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "campaign"))


@pytest.fixture
def running(directory: Path, tmp_path: Path) -> RunningTrial:
    (tmp_path / "aside").mkdir()
    return RunningTrial.of(directory, tmp_path / "aside")


def test_trial_step_and_the_running_second(directory: Path, running: RunningTrial) -> None:
    follower = Follower(directory)
    assert follower.look().running[0].step == ""
    running.measure()
    for number in range(1, MOST_SECONDS + 3):
        running.second(number, 1000.0 + number)
    found = follower.look()
    (one,) = found.running
    assert (one.trial, one.host, one.step, one.expected_s) == (running.whole.name, "local", "measure", 60.0)
    assert (one.seconds[-1].tps, one.seconds[-1].latency_ms) == (1000.0 + MOST_SECONDS + 2, 4.0)
    assert len(one.seconds) == MOST_SECONDS
    assert found.finished == 5
    running.finish()
    after = follower.look()
    assert (after.running, after.finished) == ((), 6)
    assert after.trials["ext4"] == {"ok": 2, "failed": 1}
    assert [i.status for i in after.incidents] == ["failed", "excluded"]


@pytest.mark.parametrize("look", ["_look_at_running", "_look_at_finished"])
@pytest.mark.parametrize("before", [True, False])
def test_a_trial_that_ends_during_a_look_is_either_running_or_finished(
    directory: Path, running: RunningTrial, monkeypatch: pytest.MonkeyPatch, look: str, before: bool
) -> None:
    follower = Follower(directory)
    one = follower.look()
    usual = getattr(Follower, look)

    def interrupted(*arguments: Any) -> None:
        if before:
            running.finish()
        usual(*arguments)
        if not before:
            running.finish()

    monkeypatch.setattr(Follower, look, interrupted)
    during = follower.look()
    assert during.finished + len(during.running) == one.finished + len(one.running) == one.finished + 1


def test_a_torn_last_line_waits_for_its_end(directory: Path, running: RunningTrial) -> None:
    running.measure()
    with running.progress.open("a") as file:
        file.write("progress: 1.0 s, 100.0 tps, lat 4.000 ms stddev 1.000\nprogress: 2.0 s, 2")
    (one,) = Follower(directory).look().running
    assert [s.tps for s in one.seconds] == [100.0]


def test_lines_that_are_no_events_are_counted_and_left_out(directory: Path, running: RunningTrial) -> None:
    running.tell('garbage\n{"at": 1}\n\x00\xff\n[]\n' + "[" * 5000 + "\n")
    running.measure()
    running.tell('{"at": "torn')
    found = Follower(directory).look()
    assert found.unreadable_lines == 5
    assert found.running[0].step == "measure"


def test_of_a_huge_file_of_events_the_end_is_read(directory: Path, running: RunningTrial) -> None:
    line = '{"at": "2026-01-01T00:00:00Z", "event": "note", "text": "' + "x" * 500 + '"}\n'
    running.tell(line * 4000)
    running.measure()
    assert (running.partial / "events.jsonl").stat().st_size > 2 * PIECE_BYTES
    found = Follower(directory).look()
    assert found.running[0].step == "measure"
    assert found.unreadable_lines == 0


def test_a_line_without_an_end_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PIECE_BYTES", 100)
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"")
    one = Tail(path)
    assert one.lines() == []
    path.write_bytes(b"x" * 250 + b"\nwhole\n")
    found = [line for _ in range(5) for line in one.lines()]
    assert found == [b"whole"]


def test_a_file_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"one\ntwo\n")
    one = Tail(path)
    assert one.lines() == [b"one", b"two"]
    path.write_bytes(b"three\n")
    assert one.lines() == [b"three"]


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing"):
        assert last_bytes(tmp_path / name, 100) == b""
        assert Tail(tmp_path / name).lines() == []


def test_a_directory_that_vanishes_and_one_that_is_not_begun(directory: Path, tmp_path: Path) -> None:
    assert Follower(tmp_path / "nowhere").look().state == "not begun"
    follower = Follower(directory)
    assert follower.look().state == "not running"
    shutil.rmtree(directory)
    assert follower.look().state == "gone"


def test_the_judge_gets_what_the_reader_reads(directory: Path) -> None:
    follower = Follower(directory)
    follower.look()
    shutil.rmtree(sorted((directory / "trials").iterdir())[0] / "cells")
    data = follower.data()
    whole = read(directory)
    assert [t.id for t in data.trials] == [t.id for t in whole.trials]
    assert [t.id for t in data.unreadable] == [t.id for t in whole.unreadable] != []


def test_it_writes_nothing(directory: Path, running: RunningTrial) -> None:
    running.measure()
    before = sorted((p, p.lstat().st_mtime_ns) for p in directory.rglob("*"))
    follower = Follower(directory)
    follower.look()
    follower.data()
    assert sorted((p, p.lstat().st_mtime_ns) for p in directory.rglob("*")) == before


HOSTS = ("ssh://a", "ssh://b", "ssh://c")


class Fleet:
    """A campaign on three hosts, two stacks each, as it looks in the middle of its rounds."""

    def __init__(self, path: Path) -> None:
        stacks = [{"name": name, "data": {"fs": {"kind": name}}} for name in ("ext4", "xfs")]
        workload = {"scale": 1, "clients": 2, "duration": 5}
        asked = {"name": "f", "stacks": stacks, "hosts": HOSTS, "workload": workload, "runs": {"budget": 1000}}
        self.campaign = Campaign.model_validate(asked)
        self.directory = CampaignDirectory.create_or_open(path, self.campaign)
        self.rounds = 0

    def begin(self) -> dict[str, tuple[Trial, ...]]:
        """A round; its trials by host."""
        decision = DecisionRecord(
            after_block=3 * self.rounds, stage="screen", continue_with=("ext4", "xfs"), hosts=HOSTS
        )
        self.directory.record_decision(decision)
        self.rounds += 1
        return {trials[0].host: trials for trials in round_trials(self.campaign, decision, self.rounds - 1).values()}

    def finish(self, trial: Trial, duration_s: float) -> None:
        planned = PlannedRecord(trial=trial, stack=self.campaign.stack(trial.stack), steps=())
        verdict = TrialVerdict(trial_id=trial.id, status="ok", started="", ended="", duration_s=duration_s)
        self.directory.start_trial(trial, planned).finish(verdict)

    def start(self, trial: Trial) -> None:
        planned = PlannedRecord(trial=trial, stack=self.campaign.stack(trial.stack), steps=())
        self.directory.start_trial(trial, planned)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    one = Fleet(tmp_path / "c")
    with one.directory:
        yield one


def test_the_round_of_a_fleet_is_that_of_all_its_hosts(fleet: Fleet, tmp_path: Path) -> None:
    follower = Follower(tmp_path / "c")
    first = fleet.begin()
    for trials, own_s in zip(first.values(), (10.0, 20.0, 30.0), strict=True):
        for trial in trials:
            fleet.finish(trial, own_s)
    found = follower.look()
    assert (found.block_trials, found.block_finished, found.block_left_s) == (6, 6, 0.0)
    assert (found.machine_time_s, found.budget_left_s) == (120.0, 940.0)
    second = fleet.begin()
    for trial in (*second["ssh://a"], *second["ssh://b"], second["ssh://c"][0]):
        fleet.finish(trial, 20.0)
    found = follower.look()
    assert (found.block_trials, found.block_finished) == (6, 5)
    assert found.block_left_s == pytest.approx(20.0)
    assert (found.machine_time_s, found.budget_left_s) == (220.0, 900.0)


def test_between_steps_a_trial_of_a_fleet_is_on_its_own_host(fleet: Fleet, tmp_path: Path) -> None:
    for trials in fleet.begin().values():
        fleet.start(next(trial for trial in trials if trial.stack == "xfs"))
    found = Follower(tmp_path / "c").look()
    assert sorted((one.host, one.stack, one.step) for one in found.running) == [(h, "xfs", "") for h in HOSTS]
    assert [found.block_left_s, found.block_finished] == [None, 0]


def test_trials_on_workers_are_seen_until_their_files_have_come(fleet: Fleet, tmp_path: Path) -> None:
    begun = [trials[0] for trials in fleet.begin().values()]
    follower = Follower(tmp_path / "c")
    for trial in begun:
        fleet.directory.note_running(trial)
    (tmp_path / "c" / "running" / "torn.json").write_text("{")
    found = follower.look()
    assert [(one.trial, one.host, one.stack) for one in found.running] == [(t.id, t.host, t.stack) for t in begun]
    fleet.finish(begun[0], 10.0)
    fleet.directory.forget_running(begun[1])
    assert [one.trial for one in follower.look().running] == [begun[2].id]
    fleet.directory.close()
    assert not (tmp_path / "c" / "running").exists()


def test_no_series_of_the_metrics_is_there_twice(fleet: Fleet, tmp_path: Path) -> None:
    """A scraper refuses the whole page otherwise."""
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed: pip install 'pgstrata[watch]'")
    from pgstrata.watch.metrics import render_metrics

    for trials in fleet.begin().values():
        for trial in trials:  # of one host at a time; a lost one may have left another
            fleet.start(trial)
    for name in (".begun.partial", ".begun-too.partial"):
        (tmp_path / "c" / "trials" / name).mkdir()
    progress = Follower(tmp_path / "c").look()
    twice = Progress(**{**vars(progress), "running": progress.running * 2})
    lines = render_metrics(twice, None).decode().splitlines()
    series = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series))
    steps = [line for line in series if line.startswith("pgstrata_step_seconds")]
    assert len(steps) == 6
    assert all(any(f'host="{host}"' in line for line in steps) for host in HOSTS)
