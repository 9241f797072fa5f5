"""What becomes of Pgpool-II when the trial is killed, and of the trial when Pgpool-II does not start."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from unittest import mock

import pytest

from awaiting import is_running
from campaigning import clean, nothing_left, run, run_directories, write_campaign
from pgstrata.host.protocol import Process
from pgstrata.postgres.pooler import Pgpool
from pgstrata.record.reader import read
from pgstrata.trial.context import TrialContext
from pgstrata.trial.steps import measure

pytestmark = pytest.mark.skipif(shutil.which("pgpool") is None, reason="pgpool is not installed")


def test_after_a_kill_it_is_ended_by_clean(place: Path) -> None:
    noted = place / "pid"

    def killed(context: TrialContext, process: Process, timeout_s: float) -> int:
        assert context.pooler is not None
        noted.write_text(str(context.pooler.pid))
        os.kill(os.getpid(), signal.SIGKILL)
        return process.wait(timeout_s)

    file = write_campaign(place, "cluster(2,pooler=pgpool)/tmpfs")
    code = run(file, place, around=mock.patch.object(measure, "wait_for_run", killed))
    assert code == -signal.SIGKILL, (place / "log.txt").read_text()
    assert clean(place) == 0
    assert not is_running(int(noted.read_text()))
    nothing_left(place)
    assert not run_directories(file, place)


def test_one_that_does_not_start_is_named_with_its_log(place: Path) -> None:
    file = write_campaign(place, "cluster(1,pooler=pgpool)/tmpfs")
    elsewhere = mock.patch.object(Pgpool, "address", "198.18.0.99")
    assert run(file, place, around=elsewhere) == 4, (place / "log.txt").read_text()
    (trial,) = read(place / "out").trials
    assert "pgpool ended with exit code" in trial.verdict.reason
    assert "198.18.0.99" in trial.verdict.reason
    nothing_left(place)
