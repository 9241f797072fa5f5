"""kill -9 after steps of a trial of a cluster: `pgstrata clean` leaves no namespace, mount or process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from campaigning import clean, nothing_left, run, run_directories, write_campaign
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
