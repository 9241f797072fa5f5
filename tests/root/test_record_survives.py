"""Power cuts and kill -9 while pgstrata records: the campaign directory is whole, and the same command goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from campaigning import environment, nothing_left, reachable, run_in_fork, write_campaign
from pgstrata.crash import state_worker
from pgstrata.record.reader import read, read_crashes
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.record.schema import TrialVerdict
from pgstrata.record.source import FolderSource
from pgstrata.spec.campaign_file import load_campaign
from pgstrata.trial.executor import KILL_HOOK

DISK = Path(sys.executable).parent / "strata-disk"
pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")

STATES = 20
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
    """The daemon's disk as an ext4."""
    node = state_worker.attach(str(folder / "disks" / DATA))
    try:
        if new:
            subprocess.run(["mkfs.ext4", "-q", node], check=True, timeout=60)
        subprocess.run(["mount", node, at], check=True, timeout=60)
        try:
            yield
        finally:
            state_worker.unmount(str(at))
    finally:
        state_worker.detach(node)


def record(place: Path, file: Path, at: Path, patch: pytest.MonkeyPatch) -> Path:
    """The event log of a disk that a campaign of made-up trials is recorded on, with a mark for each finished trial."""
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
            assert go_on(place, file, at / "out") == 0, (place / "log.txt").read_text()
            patch.undo()
            daemon.ask(op="mark", text="end")
    return log


def go_on(place: Path, file: Path, out: Path) -> int:
    argv = ["run", str(file), "--out", str(out), "--quiet"]
    return run_in_fork(argv, {**environment(place), "PGSTRATA_FAKE": "1"}, place / "log.txt")


def check(out: Path, file: Path, finished: set[str]) -> None:
    """What was finished is there whole, and the directory can be written to."""
    if finished or (out / "campaign.json").exists():
        data = read(out)
        assert data.unreadable == ()
        assert finished <= {trial.id for trial in data.trials}
        assert {trial.verdict.status for trial in data.trials} <= {"ok"}
    with CampaignDirectory.create_or_open(out, load_campaign(file)) as directory:
        assert finished <= {trial.id for trial in directory.finished()}


def test_a_power_cut_at_any_moment_leaves_a_whole_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reachable(tmp_path) as place:
        at = place / "mounted"
        at.mkdir()
        file = write_campaign(place, "ext4", "xfs", blocks=2)
        log = record(place, file, at, monkeypatch)
        told = disk("states", log, "--states", str(STATES), "--after", "begin", "--until", "end")
        states: list[dict[str, Any]] = [json.loads(line) for line in told.splitlines()]
        marks = [json.loads(line) for line in disk("marks", log).splitlines()]
        acks = [(mark["seq"], mark["text"].removeprefix("ack ")) for mark in marks if mark["text"].startswith("ack ")]
        assert (len(states), len(acks)) == (STATES, 4)
        folder = place / "states"
        with serving(folder) as daemon:
            for number, state in enumerate(states):
                finished = {id_ for seq, id_ in acks if seq <= state["cut"]}
                daemon.ask(op="add", disk=DATA, state={"log": str(log), "of": DATA, "state": state})
                with mounted(folder, at):
                    check(at / "out", file, finished)
                    if number % (STATES // GONE_ON_WITH) == 0:
                        assert go_on(place, file, at / "out") == 0, (place / "log.txt").read_text()
                        assert len(read(at / "out").trials) == len(acks)
                daemon.ask(op="remove", disk=DATA, force=True)


def test_crash_trials_go_on_after_kill_9(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        out = place / "out"
        words = ["--states", "2", "--transactions", "2", "--out", str(out), "--scratch", str(place / "scratch")]

        def crash(**more: str) -> int:
            argv = ["crash", "ext4", *words, "--quiet"]
            return run_in_fork(argv, {**environment(place), **more}, place / "printed")

        steps = ("5", "15")
        for step in steps:
            assert crash(**{KILL_HOOK: step}) == -signal.SIGKILL, (place / "printed").read_text()
            assert read_crashes(FolderSource(out)) == ()
        assert crash() == 0, (place / "printed").read_text()
        (found,) = read_crashes(FolderSource(out))
        assert (found.verdict, found.states) == ("held", 2)
        assert len(list((out / "interrupted").iterdir())) == len(steps)
        nothing_left(place)
