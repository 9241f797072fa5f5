"""Power cuts and kill -9 while pgstrata records: the campaign directory is whole, and the same command goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from campaigning import environment, nothing_left, reachable, run_in_fork, write_campaign
from crashed import read_crashes
from pgstrata.crash import state_worker
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.record.schema import TrialVerdict
from pgstrata.record.source import FolderSource
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.trial.executor import KILL_HOOK

DISK = Path(sys.executable).parent / "strata-disk"
pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")

STATES = 20
CRASH_STATES = 10
GONE_ON_WITH = 2
DATA = "data-0"


def disk(*words: str | Path) -> str:
    return subprocess.run([DISK, *words], check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout


@contextmanager
def serving(folder: Path, *options: str | Path) -> Iterator[state_worker.Daemon]:
    disk("serve", folder, "--background", *options)
    try:
        daemon = state_worker.Daemon(str(folder))
        yield daemon
        daemon.close()
    finally:
        disk("stop", folder)


@contextmanager
def mounted(folder: Path, at: Path, *, new: bool = False) -> Iterator[None]:
    """The daemon's disk as an ext4: without checksums, because one whose superblock of two sectors was torn cannot be
    mounted with them (docs/crash.md), and here it is the records that are looked at."""
    loop = state_worker.attach(str(folder / "disks" / DATA), 512)
    try:
        if new:
            subprocess.run(["mkfs.ext4", "-q", "-O", "^metadata_csum", loop.node], check=True, timeout=60)
        subprocess.run(["mount", loop.node, at], check=True, timeout=60)
        try:
            yield
        finally:
            state_worker.unmount(str(at))
    finally:
        state_worker.detach(loop)


def record(place: Path, at: Path, patch: pytest.MonkeyPatch, go_on: Callable[[Path], int]) -> Path:
    """The event log of a disk that a campaign is recorded on, with a mark for each finished trial."""
    folder, log = place / "recorded", place / "log"
    finish = TrialRecorder.finish
    with serving(folder, "--log", log) as daemon:
        daemon.ask(op="add", disk=DATA, size=64 << 20)

        def finish_and_mark(recorder: TrialRecorder, verdict: TrialVerdict) -> None:
            finish(recorder, verdict)
            daemon.ask(op="mark", text=f"ack {recorder.trial.id}")

        with mounted(folder, at, new=True):
            subprocess.run(["sync", "--file-system", at], check=True, timeout=60)
            daemon.ask(op="mark", text="begin")
            patch.setattr(TrialRecorder, "finish", finish_and_mark)
            assert go_on(at / "out") == 0, (place / "log.txt").read_text()
            patch.undo()
            daemon.ask(op="mark", text="end")
    return log


def states_of(log: Path, count: int) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """States that a power cut could have left, and when each trial was finished."""
    told = disk("states", log, "--states", str(count), "--after", "begin", "--until", "end")
    marks = [json.loads(line) for line in disk("marks", log).splitlines()]
    acks = [(mark["seq"], mark["text"].removeprefix("ack ")) for mark in marks if mark["text"].startswith("ack ")]
    return [json.loads(line) for line in told.splitlines()], acks


def each_mounted(
    place: Path, at: Path, log: Path, states: list[dict[str, Any]], acks: list[tuple[int, str]]
) -> Iterator[tuple[int, set[str]]]:
    """The number of each state, and the trials that were finished by its cut, while it is mounted."""
    folder = place / "states"
    with serving(folder) as daemon:
        for number, state in enumerate(states):
            daemon.ask(op="add", disk=DATA, state={"log": str(log), "of": DATA, "state": state})
            with mounted(folder, at):
                yield number, {id_ for seq, id_ in acks if seq <= state["cut"]}
            daemon.ask(op="remove", disk=DATA, force=True)


def run_made_up(place: Path, file: Path, out: Path) -> int:
    argv = ["run", str(file), "--out", str(out), "--quiet"]
    return run_in_fork(argv, {**environment(place), "PGSTRATA_FAKE": "1"}, place / "log.txt")


def crash(place: Path, out: Path, *stacks: str, states: int, **more: str) -> int:
    size = ["--states", str(states), "--transactions", "2", "--nested", "0", "--minimise", "0"]
    argv = ["crash", *stacks, *size, "--out", str(out), "--scratch", str(place / "scratch"), "--quiet"]
    return run_in_fork(argv, {**environment(place), **more}, place / "log.txt")


def check(out: Path, file: Path, finished: set[str]) -> None:
    """What was finished is there whole, and the directory can be written to."""
    if finished or (out / "campaign.json").exists():
        data = read(out)
        assert data.unreadable == ()
        assert finished <= {trial.id for trial in data.trials}
        assert {trial.verdict.status for trial in data.trials} <= {"ok"}
    with CampaignDirectory.create_or_open(out, load_campaign(file)) as directory:
        assert finished <= {trial.id for trial in directory.finished()}


def check_crash(out: Path, campaign: Campaign, finished: set[str]) -> None:
    """What was finished is there whole, and the directory can be written to."""
    if finished or (out / "campaign.json").exists():
        data = read(out)
        assert data.unreadable == ()
        whole = {one.id: (one.found.verdict, one.found.states) for one in data.crashes}
        assert finished <= whole.keys()
        assert set(whole.values()) <= {("held", 1)}
    with CampaignDirectory.create_or_open(out, campaign, "crash") as directory:
        assert len(directory.crash_trials()) >= len(finished)


def test_a_power_cut_at_any_moment_leaves_a_whole_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reachable(tmp_path) as place:
        at = place / "mounted"
        at.mkdir()
        file = write_campaign(place, "ext4", "xfs", blocks=2)
        go_on = partial(run_made_up, place, file)
        log = record(place, at, monkeypatch, go_on)
        states, acks = states_of(log, STATES)
        assert (len(states), len(acks)) == (STATES, 4)
        for number, finished in each_mounted(place, at, log, states, acks):
            check(at / "out", file, finished)
            if number % (STATES // GONE_ON_WITH) == 0:
                assert go_on(at / "out") == 0, (place / "log.txt").read_text()
                assert len(read(at / "out").trials) == len(acks)


def test_a_power_cut_during_crash_trials_leaves_a_whole_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = ("ext4", "ext4:data=writeback")
    with reachable(tmp_path) as place:
        at = place / "mounted"
        at.mkdir()
        kept: list[Campaign] = []

        def go_on(out: Path) -> int:
            code = crash(place, out, *stacks, states=1)
            kept.append(read(out).campaign)
            return code

        log = record(place, at, monkeypatch, go_on)
        states, acks = states_of(log, CRASH_STATES)
        assert (len(states), len(acks)) == (CRASH_STATES, len(stacks))
        gone_on = False
        for _, finished in each_mounted(place, at, log, states, acks):
            check_crash(at / "out", kept[0], finished)
            if not (finished or gone_on):
                gone_on = True
                assert go_on(at / "out") == 0, (place / "log.txt").read_text()
                assert len(read(at / "out").crashes) == len(stacks)
        assert gone_on
        nothing_left(place)


def test_crash_trials_go_on_after_kill_9(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        out = place / "out"
        steps = ("5", "15")
        for step in steps:
            ended = crash(place, out, "ext4", states=2, **{KILL_HOOK: step})
            assert ended == -signal.SIGKILL, (place / "log.txt").read_text()
            assert read_crashes(FolderSource(out)) == ()
        assert crash(place, out, "ext4", states=2) == 0, (place / "log.txt").read_text()
        (found,) = read_crashes(FolderSource(out))
        assert (found.verdict, found.states) == ("held", 2)
        assert len(list((out / "interrupted").iterdir())) == len(steps)
        nothing_left(place)
