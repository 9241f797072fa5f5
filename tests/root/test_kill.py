"""kill -9 after steps of a trial: `pgstrata clean` leaves nothing, and `run` goes on to the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigning import clean, environment, nothing_left, reachable, run, run_directories, write_campaign
from pgstrata.record.reader import read
from pgstrata.trial.executor import KILL_HOOK

ALL_STACKS = ["ext4", "xfs", "btrfs", "tmpfs", "btrfs(raid1,2)"]
MOST_STEPS = 60

# Some thirty trials, one after the other.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


def kill_at_steps(stack: str, place: Path, steps: range) -> int:
    """Returns how many times it was killed."""
    file = write_campaign(place, stack)
    for killed, step in enumerate(steps):
        code = run(file, place, around=None, **{KILL_HOOK: str(step)})
        if code == 0:
            return killed
        assert code == -signal.SIGKILL, (place / "log.txt").read_text()
        assert clean(place) == 0
        nothing_left(place)
        assert not run_directories(file, place)
        assert clean(place) == 0
    raise AssertionError("the trial never came to its end")


def test_killed_after_every_sixth_step(place: Path) -> None:
    killed = kill_at_steps("ext4", place, range(2, MOST_STEPS, 6))
    assert killed >= 4, "the whole trial was gone through"
    data = read(place / "out")
    assert [t.verdict.status for t in data.trials] == ["ok"]
    assert len(list((place / "out" / "interrupted").iterdir())) == killed
    nothing_left(place)


@pytest.mark.every_stack
@pytest.mark.parametrize("stack", ALL_STACKS)
def test_killed_after_every_second_step_on_every_stack(stack: str, place: Path) -> None:
    """Neighbours in the list at other steps, so that each step of a trial is one of two stacks at least."""
    first = 1 + ALL_STACKS.index(stack) % 2
    assert kill_at_steps(stack, place, range(first, MOST_STEPS, 2)) >= 10
    nothing_left(place)


def test_killed_at_random_and_resumed(place: Path) -> None:
    """Three kills at any moment of a campaign of two blocks; the same command ends it, nothing runs twice."""
    file = write_campaign(place, "ext4", "tmpfs", blocks=2)
    rng = random.Random(os.getpid())
    finished: dict[str, str] = {}
    for _ in range(3):
        pause_s = rng.uniform(0.5, 6.0)
        child = subprocess.Popen(
            [sys.executable, "-m", "pgstrata.cli.main", "run", str(file), "--out", str(place / "out"), "--quiet"],
            env={**os.environ, **environment(place)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(pause_s)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        if (place / "out" / "campaign.json").exists():
            finished |= {t.id: t.verdict.ended for t in read(place / "out").trials}
    assert run(file, place) == 0, (place / "log.txt").read_text()
    trials = read(place / "out").trials
    assert len(trials) == 4
    assert {t.verdict.status for t in trials} == {"ok"}
    ended = {t.id: t.verdict.ended for t in trials}
    assert finished.items() <= ended.items(), "a finished trial was run again"
    nothing_left(place)
