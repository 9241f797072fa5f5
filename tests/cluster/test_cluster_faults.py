"""What breaks in a cluster while it is built or measured: said by name, the trial ended, nothing left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import pytest

from awaiting import wait_until
from campaigning import nothing_left, run, write_campaign
from pgstrata.host.protocol import Process
from pgstrata.postgres import standby
from pgstrata.record.reader import read
from pgstrata.trial.context import TrialContext
from pgstrata.trial.steps import cluster, measure

LONG_S = 600
"""The run that hangs would last so long, and two minutes more."""


def failure_of(
    place: Path, stack: str, around: AbstractContextManager[object], *, duration_s: int = 1, warmup_s: int = 0
) -> str:
    """Runs one trial in which something is made to break; what its verdict says."""
    file = write_campaign(place, stack)
    asked = f"duration: {duration_s}, warmup: {warmup_s}"
    file.write_text(file.read_text().replace("duration: 1, warmup: 0", asked))
    assert asked in file.read_text()
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


def before_run(act: Callable[[TrialContext], None]) -> AbstractContextManager[object]:
    """Does something when pgbench has begun."""
    wait = cluster.wait_for_run

    def acting(context: TrialContext, process: Process, timeout_s: float) -> int:
        with context.host.looking():
            act(context)
        with mock.patch.object(cluster, "WATCH_S", 0.5):
            return wait(context, process, timeout_s)

    return mock.patch.object(measure, "wait_for_run", acting)


def cut_off(context: TrialContext) -> None:
    """The primary lists it for another minute."""
    assert context.plan.network is not None
    argv = context.plan.network.set_link("standby1", up=False).argv
    subprocess.run([str(word) for word in argv], check=True, timeout=60)


def hold_back(context: TrialContext) -> None:
    """It goes on to receive and to answer, and applies nothing more."""
    context.setup.standbys["standby1"].execute("SELECT pg_wal_replay_pause()")


@pytest.mark.parametrize("act", [cut_off, hold_back])
def test_commits_that_a_connected_standby_does_not_acknowledge_end_the_trial(
    act: Callable[[TrialContext], None], place: Path
) -> None:
    around = before_run(act)
    with mock.patch.object(cluster, "STALLED_S", 3.0):
        reason = failure_of(place, "cluster(2,ANY 1,remote_apply)/tmpfs", around, duration_s=LONG_S)
    assert reason.startswith("commits hang: one has waited for ")
    assert "and 1 are connected but not responding" in reason


def promote(context: TrialContext) -> None:
    context.setup.standbys["standby1"].execute("SELECT pg_promote()")


def test_a_second_primary_is_found_out(place: Path) -> None:
    """It takes no part any more; what it would take of its own is nothing of this cluster's."""
    reason = failure_of(place, "cluster(3,ANY 1)/tmpfs", before_run(promote))
    assert "attestation (after cell)" in reason
    assert "cluster standby1 state: expected streaming, found (not connected)" in reason


def test_commits_that_wait_for_a_second_primary_end_the_trial(place: Path) -> None:
    reason = failure_of(place, "cluster(2,ANY 1)/tmpfs", before_run(promote), duration_s=LONG_S)
    assert reason.startswith("commits hang: ")


def fill_the_archive(context: TrialContext) -> None:
    """No segment is archived any more; one is due now."""
    archive = context.plan.archive_directory
    assert archive is not None
    with contextlib.suppress(OSError), open(f"{archive}/filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
    context.server.execute("SELECT pg_switch_wal()")
    failed = "SELECT failed_count AS n FROM pg_stat_archiver"
    wait_until(lambda: int(context.server.sql(failed)[0]["n"]) > 0, "archiving to fail")


def test_an_archive_that_is_full_fails_the_trial(place: Path) -> None:
    reason = failure_of(place, "cluster(2)/tmpfs@archive=tmpfs:size=512M", before_run(fill_the_archive))
    assert "cluster archive: expected 0 failures, found" in reason


def test_commits_that_no_standby_can_acknowledge_end_the_trial(place: Path) -> None:
    around = mock.patch.object(measure, "wait_for_run", killing("standby1"))
    reason = failure_of(place, "cluster(2,ANY 1)/tmpfs", around, duration_s=LONG_S)
    assert reason.startswith("commits hang: ")
    assert "wait for 1 synchronous standbys to acknowledge, and 0 of them are left" in reason


def test_also_those_of_the_warm_up(place: Path) -> None:
    around = mock.patch.object(measure, "wait_for_run", killing("standby1"))
    reason = failure_of(place, "cluster(2,ANY 1)/tmpfs", around, warmup_s=LONG_S)
    assert reason.startswith("commits hang: ")
    assert list((place / "out").glob("trials/*/cells/*/raw/warmup.err")), "what pgbench said is kept"


@pytest.mark.parametrize("asked", ["stale_reads", "acknowledgements"])
def test_also_those_of_the_load_after_the_run(asked: str, place: Path) -> None:
    """Without this the trial would end two minutes later, by a timeout."""
    around = mock.patch.object(cluster, "wait_for_run", killing("standby1"))
    reason = failure_of(place, f"cluster(2,ANY 1,{asked}=1s)/tmpfs", around)
    assert reason.startswith("commits hang: ")


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
