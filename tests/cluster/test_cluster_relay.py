"""The relay that holds packets back where the kernel does not: nodes behind it are cut off, and `clean` ends it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from unittest import mock

from test_cluster_crash import crash, failures_of

from awaiting import is_running
from campaigning import clean, nothing_left, run, run_directories, write_campaign
from pgstrata.host.protocol import Process
from pgstrata.record.reader import read
from pgstrata.trial.context import TrialContext
from pgstrata.trial.steps import measure
from pgstrata.trial.survey import survey

STACK = "cluster(2,ANY 1,delay_ms=1)/tmpfs"
relayed = mock.patch.object(survey, "needs_relay", return_value=True)


def test_after_a_kill_it_is_ended_by_clean(place: Path) -> None:
    noted = place / "pid"

    def killed(context: TrialContext, process: Process, timeout_s: float) -> int:
        noted.write_text(Path(context.plan.context.mount_directory, "relay.pid").read_text())
        assert is_running(int(noted.read_text()))
        os.kill(os.getpid(), signal.SIGKILL)
        return process.wait(timeout_s)

    file = write_campaign(place, STACK)
    with relayed:
        code = run(file, place, around=mock.patch.object(measure, "wait_for_run", killed))
    assert code == -signal.SIGKILL, (place / "log.txt").read_text()
    assert clean(place) == 0
    assert not is_running(int(noted.read_text()))
    nothing_left(place)
    assert not run_directories(file, place)


def test_a_relay_that_has_ended_fails_the_trial(place: Path) -> None:
    def ended(context: TrialContext, process: Process, timeout_s: float) -> int:
        code = process.wait(timeout_s)
        os.kill(int(Path(context.plan.context.mount_directory, "relay.pid").read_text()), signal.SIGKILL)
        return code

    file = write_campaign(place, STACK)
    with relayed:
        assert run(file, place, around=mock.patch.object(measure, "wait_for_run", ended)) == 4
    (trial,) = read(place / "out").trials
    assert trial.verdict.status == "failed"
    nothing_left(place)


def test_nodes_are_cut_off_and_lost_behind_it(place: Path) -> None:
    with relayed:
        found = crash(place, "cluster(3,ANY 1,delay_ms=1)/tmpfs", failures=8)
    assert (found["verdict"], found["states"], found["unknown"]) == ("held", 8, 0)
    assert any("cut off" in failure["disturbance"] for failure in failures_of(place))
