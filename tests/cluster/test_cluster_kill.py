"""kill -9 after steps of trials of a cluster, and while its nodes stand still: `pgstrata clean` leaves no namespace,
mount or process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from campaigning import clean, environment, nothing_left, run, run_directories, run_in_fork, write_campaign
from pgstrata.crash.cluster_worker import stands_still
from pgstrata.record.reader import read
from pgstrata.trial.executor import KILL_HOOK

STACK = "cluster(2,ANY 1)/tmpfs@archive=tmpfs"
STEPS = 60
"""More than the trial has."""

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("first", range(3))
def test_killed_after_every_third_step(first: int, place: Path) -> None:
    """Each of three tests kills at other steps, so that all are gone through once."""
    file = write_campaign(place, STACK)
    killed = 0
    for step in range(1 + first, STEPS, 3):
        code = run(file, place, around=None, **{KILL_HOOK: str(step)})
        if code == 0:
            break
        killed += 1
        assert code == -signal.SIGKILL, (place / "log.txt").read_text()
        assert clean(place) == 0
        nothing_left(place)
        assert not run_directories(file, place)
    assert killed >= 12, "the whole trial was gone through"
    assert [t.verdict.status for t in read(place / "out").trials] == ["ok"]
    nothing_left(place)


CRASHED = "cluster(2,ANY 1)/tmpfs"


def crash(place: Path, *, around: AbstractContextManager[object] | None = None, **env: str) -> int:
    argv = ["crash", CRASHED, "--states", "2", "--scratch", str(place), "--out", str(place / "out"), "--quiet"]
    return run_in_fork(argv, {**environment(place), **env}, place / "log.txt", around)


def test_killed_after_every_third_step_of_a_crash_trial(place: Path) -> None:
    killed = 0
    for step in range(2, STEPS, 3):
        code = crash(place, around=None, **{KILL_HOOK: str(step)})
        if code == 0:
            break
        killed += 1
        assert code == -signal.SIGKILL, (place / "log.txt").read_text()
        assert clean(place) == 0
        nothing_left(place)
    assert killed >= 6, "the whole trial was gone through"
    assert [c.found.verdict for c in read(place / "out").crashes] == ["held"]
    nothing_left(place)


@contextmanager
def killed_when_nodes_stand_still(place: Path) -> Iterator[None]:
    """This process, as soon as two servers of the trial do."""

    def watch() -> None:
        while True:
            with suppress(OSError, IndexError):  # a server that starts or ends between two looks
                pids = {int(file.read_text().split()[0]) for file in place.glob("state/mount/*/*/**/postmaster.pid")}
                if sum(Path(f"/proc/{pid}").exists() and stands_still(pid) for pid in pids) == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.002)

    threading.Thread(target=watch, daemon=True).start()
    yield


def test_killed_while_all_nodes_stand_still(place: Path) -> None:
    assert crash(place, around=killed_when_nodes_stand_still(place)) == -signal.SIGKILL, (place / "log.txt").read_text()
    assert clean(place) == 0
    nothing_left(place)
