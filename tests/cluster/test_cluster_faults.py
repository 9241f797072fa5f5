"""What breaks in a cluster while it is built or measured: said by name, the trial ended, nothing left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

from campaigning import nothing_left, run, write_campaign
from pgstrata.host.protocol import Process
from pgstrata.postgres import standby
from pgstrata.record.reader import read
from pgstrata.trial import cluster, measure
from pgstrata.trial.context import TrialContext

LONG_S = 600
"""The run that hangs would last so long, and two minutes more."""


def failure_of(place: Path, stack: str, around: AbstractContextManager[object], *, duration_s: int = 1) -> str:
    """Runs one trial in which something is made to break; what its verdict says."""
    file = write_campaign(place, stack)
    file.write_text(file.read_text().replace("duration: 1,", f"duration: {duration_s},"))
    assert run(file, place, around=around) == 4, (place / "log.txt").read_text()
    (trial,) = read(place / "out").trials
    assert trial.verdict.status == "failed"
    nothing_left(place)
    return trial.verdict.reason


def killing(name: str) -> Callable[[TrialContext, Process, float], int]:
    """`wait_for_run` after a standby was killed, looking often."""
    wait = cluster.wait_for_run

    def killed(context: TrialContext, process: Process, timeout_s: float) -> int:
        pid = context.setup.standbys[name].postmaster_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with mock.patch.object(cluster, "WATCH_S", 0.5):
            return wait(context, process, timeout_s)

    return killed


def test_commits_that_no_standby_can_acknowledge_end_the_trial(place: Path) -> None:
    around = mock.patch.object(measure, "wait_for_run", killing("standby1"))
    reason = failure_of(place, "cluster(2,ANY 1)/tmpfs", around, duration_s=LONG_S)
    assert reason.startswith("commits hang: ")
    assert "wait for 1 synchronous standbys to acknowledge, and 0 of them are left" in reason


def test_a_standby_that_goes_while_others_acknowledge_fails_the_attestation(place: Path) -> None:
    around = mock.patch.object(measure, "wait_for_run", killing("standby2"))
    reason = failure_of(place, "cluster(3,ANY 1)/tmpfs", around)
    assert "attestation (after cell)" in reason or "standby2" in reason


def test_a_standby_that_never_follows_is_named_with_its_log(place: Path) -> None:
    def unreachable(*given: object) -> dict[str, str]:
        settings = original(*given)  # type: ignore[arg-type]
        return settings | {"primary_conninfo": settings["primary_conninfo"].replace("port=5432", "port=1")}

    original = standby.standby_settings
    around = mock.patch.object(cluster, "standby_settings", unreachable)
    reason = failure_of(place, "cluster(2,catch_up_s=3)/tmpfs", around)
    assert "standbys do not follow: standby1 is not connected" in reason
    assert "could not connect to the primary server" in reason


def test_an_archive_command_that_fails_fails_the_trial(place: Path) -> None:
    def failing(*given: object) -> dict[str, str]:
        return original(*given) | {"archive_command": "false"}  # type: ignore[arg-type]

    original = standby.primary_settings
    around = mock.patch.object(cluster, "primary_settings", failing)
    reason = failure_of(place, "cluster(2)/tmpfs@archive=tmpfs", around)
    assert "archiv" in reason
