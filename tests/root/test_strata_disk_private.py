"""The daemon of strata-disk belongs to its user alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from test_strata_disk import MIB, PATIENCE_S, PROGRAM, Daemon, run

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="strata-disk is not built: cargo is missing")


def test_another_user_cannot_drive_the_daemon_whatever_the_umask(tmp_path: Path) -> None:
    """The folder, the socket and the daemon itself each refuse: the modes are opened again to reach the daemon."""
    place = Path("/var/tmp") / f"pgstrata-test-{os.getpid()}-umask"
    before = os.umask(0)
    daemon = Daemon(place)
    try:
        daemon.start()
        assert [place.stat().st_mode & 0o777, (place / "control").stat().st_mode & 0o777] == [0o700, 0o600]
        assert (place / "daemon.log").stat().st_mode & 0o777 == 0o600
        place.chmod(0o755)
        (place / "control").chmod(0o777)
        file = tmp_path / "made"
        request = json.dumps({"op": "add", "disk": "x", "size": MIB, "file": str(file)})
        done = subprocess.run(
            [PROGRAM, "ask", place, request], user="nobody", capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode != 0
        assert not file.exists()
        assert daemon.ask("stats")["ok"]  # root is answered all the same
    finally:
        os.umask(before)
        run(PROGRAM, "stop", place, check=False)
        for left in place.glob("*"):
            left.rmdir() if left.is_dir() else left.unlink()
        place.rmdir()


def test_a_folder_that_others_can_write_and_a_log_that_is_a_link_are_refused(tmp_path: Path) -> None:
    place, target = tmp_path / "open", tmp_path / "target"
    place.mkdir()
    place.chmod(0o777)
    assert "other users can write there" in Daemon(place).refusal("serve", "--background")
    place.chmod(0o700)
    target.write_text("kept")
    (place / "daemon.log").symlink_to(target)
    assert "daemon.log" in Daemon(place).refusal("serve", "--background")
    assert target.read_text() == "kept"
