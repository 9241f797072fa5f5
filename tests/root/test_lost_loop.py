"""A loop device whose filesystem has ended, as a killed strata-disk leaves it: `clean` names it and leaves it alone."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from apart import apart
from campaigning import environment
from leavings import lost_loops
from recorded_log import DISK

pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")
ATTACHED = """
"$1" serve "$2" > "$2.log" &
until "$1" add "$2" data-0 --size 1048576 > "$2.log" 2>&1; do kill -0 $! || exit 1; sleep 0.05; done
losetup --find --show "$2/disks/data-0"
echo $!
wait
"""
WITHIN_S = 30.0


def said(place: Path, *options: str) -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "pgstrata.cli.main", "clean", *options]
    env = {**os.environ, **environment(place)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def backing(node: str) -> str:
    file = Path("/sys/block") / Path(node).name / "loop/backing_file"
    return file.read_text().strip() if file.exists() else ""


@contextmanager
def attached(folder: Path) -> Iterator[tuple[str, int]]:
    """A disk of a daemon in a mount namespace that goes with the daemon: its loop device, and the daemon's pid."""
    with subprocess.Popen(apart("sh", "-c", ATTACHED, "sh", DISK, folder), stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        node, daemon = shell.stdout.readline().strip(), int(shell.stdout.readline())
        try:
            yield node, daemon
        finally:
            if backing(node).endswith("/data-0"):
                subprocess.run(["losetup", "--detach", node], check=True, timeout=60)
            if shell.poll() is None:
                os.kill(daemon, signal.SIGKILL)


def test_a_device_whose_filesystem_has_ended_is_named_and_left(tmp_path: Path) -> None:
    with lost_loops(made=True), attached(tmp_path / "media") as (node, daemon):
        assert backing(node) == f"{tmp_path}/media/disks/data-0"
        assert said(tmp_path) == (0, "nothing to clean\n", ""), "its path leads nowhere here, and it is alive"
        os.kill(daemon, signal.SIGKILL)
        deadline = time.monotonic() + WITHIN_S
        while backing(node) != "/data-0" and time.monotonic() < deadline:
            time.sleep(0.05)
        code, out, err = said(tmp_path)
        assert (code, out) == (3, "")
        assert f"error: {node} on local is left attached: the filesystem of its file /data-0 has ended" in err
        assert f"HINT: losetup --detach {node}\n" in err
        code, out, _ = said(tmp_path, "--json")
        told = json.loads(out)
        assert (code, told["done"], told["failed"]) == (3, [], False)
        assert backing(node) == "/data-0"
        (hint,) = (one["hint"] for one in told["left"])
        subprocess.run(shlex.split(hint), check=True, timeout=60)
        assert said(tmp_path) == (0, "nothing to clean\n", "")
