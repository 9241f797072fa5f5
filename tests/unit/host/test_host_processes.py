"""What the agent sees of other processes."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from pgstrata.host.agent import processes
from pgstrata.host.agent.processes import MARKER, has_marker, started_as

STARTS = 500
"""Without a wait for it, the environment of one in twenty was not there yet."""


def test_a_program_that_was_just_started_has_its_marker() -> None:
    unseen = 0
    for _ in range(STARTS):
        with subprocess.Popen(["sleep", "60"], env={MARKER: "just started"}, start_new_session=True) as process:
            unseen += not has_marker(process.pid, "just started")
            process.kill()
    assert unseen == 0


@pytest.mark.parametrize("environment", [{}, {MARKER: "another"}])
def test_a_program_without_the_marker_does_not_have_it(environment: dict[str, str]) -> None:
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        assert not has_marker(process.pid, "sought")
        process.kill()


def test_what_ended_and_what_is_of_the_kernel_has_no_marker() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not has_marker(process.pid, "sought")
    assert not has_marker(process.pid, "sought")
    assert not has_marker(2, "sought")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("program", ["setpriv", "busybox", None])
def test_users_are_switched_by_setpriv_of_util_linux_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None
) -> None:
    (tmp_path / "bin").mkdir()
    if program is not None:
        (tmp_path / program).touch(mode=0o755)
        (tmp_path / "bin" / "setpriv").symlink_to(tmp_path / program)
    monkeypatch.setattr(processes, "PATH", str(tmp_path / "bin"))
    nobody = pwd.getpwnam("nobody").pw_uid
    started = started_as(["true"], "nobody")
    if program == "setpriv":
        assert started.keys() == {"args"}
        assert f"--reuid={nobody}" in started["args"]
    else:
        assert (started["args"], started["user"]) == (["true"], nobody)
