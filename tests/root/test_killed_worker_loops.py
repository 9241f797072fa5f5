"""A worker that looks at states and is killed leaves no loop device, in whatever order it and its daemon end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgstrata.crash import state_worker
from pgstrata.errors import PgstrataError
from pgstrata.host.agent.processes import has_marker, processes, send_signal, start_time
from pgstrata.host.local import LocalHost
from pgstrata.stack.block.media import StopMedia, plan_serve
from pgstrata.stack.undo import RemovePath
from pgstrata.stack.undoing import run_undo
from recorded_log import DISK, run

pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")
GONE_WITHIN_S = 10.0
WORKER = """
import subprocess, sys, time
from pgstrata.crash import state_worker
from pgstrata.errors import PgstrataError
from pgstrata.host.agent.processes import has_marker, processes, send_signal, start_time
from pgstrata.host.local import LocalHost
from pgstrata.stack.block.media import StopMedia, plan_serve
from pgstrata.stack.undo import RemovePath
from pgstrata.stack.undoing import run_undo
daemon, at = sys.argv[1:]
state_worker.own_mounts([daemon, sys.executable])
loop = state_worker.attach(f"{daemon}/disks/data-0", 512)
if at:
    subprocess.run(["mkfs.ext4", "-q", loop.node], check=True)
    subprocess.run(["mount", loop.node, at], check=True)
print(loop.node, flush=True)
time.sleep(600)
"""


def backing_of(node: str) -> str:
    """Empty once nothing is attached, or it is somebody else's by now."""
    file = Path("/sys/block") / Path(node).name / "loop/backing_file"
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def left(node: str) -> str:
    """What is still attached of the daemon's disk after a while: by its path, or what a lost path is shown as."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while (backing := backing_of(node)).endswith("/data-0") and time.monotonic() < deadline:
        time.sleep(0.05)
    return backing if backing.endswith("/data-0") else ""


@pytest.mark.parametrize("first", ["worker", "daemon"])
@pytest.mark.parametrize("mounted", [False, True], ids=["attached", "mounted"])
def test_a_killed_worker_leaves_no_loop_device(tmp_path: Path, first: str, mounted: bool) -> None:
    folder, at = tmp_path / "media", tmp_path / "at"
    at.mkdir()
    daemon = subprocess.Popen([DISK, "serve", folder], text=True)
    worker: subprocess.Popen[str] | None = None
    try:
        add = [str(DISK), "add", str(folder), "data-0", "--size", str(16 << 20)]
        while subprocess.run(add, capture_output=True, timeout=60).returncode:  # until it listens
            assert daemon.poll() is None
            time.sleep(0.01)
        argv = [sys.executable, "-c", WORKER, str(folder), str(at) if mounted else ""]
        worker = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        node = worker.stdout.readline().strip()
        assert backing_of(node).endswith("/data-0")
        for process in (worker, daemon) if first == "worker" else (daemon, worker):
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=60)
        shown = left(node)
        if shown:  # not to be left by the test either
            subprocess.run(["losetup", "--detach", node], check=True)
        assert shown == ""
    finally:
        for started in (worker, daemon):
            if started is not None:
                started.kill()
                started.wait(timeout=60)
        if worker is not None and worker.stdout is not None:
            worker.stdout.close()
        run(DISK, "stop", folder)


@pytest.mark.parametrize("removed", ["socket", "socket and lock"])
def test_a_daemon_whose_folder_was_emptied_is_ended(tmp_path: Path, removed: str) -> None:
    host, folder = LocalHost(), tmp_path / "pgstrata-t" / "states.media"
    folder.parent.mkdir()
    host.run(plan_serve(str(folder)).resolve({}))
    (daemon,) = (pid for pid, _ in processes() if has_marker(pid, str(folder)))
    try:
        for file in [folder / "control", *([folder / "lock"] if removed == "socket and lock" else [])]:
            file.unlink()
        line = run_undo(host, StopMedia(folder=str(folder)), same_boot=True)
        assert line == f"ended the daemon of the modelled disks of {folder}, whose folder was removed or emptied"
        assert start_time(daemon) is None
        assert run_undo(host, RemovePath(path=str(folder)), same_boot=True) == f"removed {folder}"
    finally:
        send_signal(daemon, signal.SIGKILL)


def test_a_daemon_whose_disk_is_still_attached_keeps_the_path_to_it(tmp_path: Path) -> None:
    host, folder = LocalHost(), tmp_path / "media"
    host.run(plan_serve(str(folder)).resolve({}))
    try:
        run(DISK, "add", folder, "data-0", "--size", str(1 << 20))
        loop = state_worker.attach(str(folder / "disks" / "data-0"), 512)
        try:
            with pytest.raises(PgstrataError, match=f"loop device {loop.node} is still attached"):
                run_undo(host, StopMedia(folder=str(folder)), same_boot=True)
            assert backing_of(loop.node) == str(folder / "disks" / "data-0")
        finally:
            state_worker.detach(loop)
        assert run_undo(host, StopMedia(folder=str(folder)), same_boot=True).startswith("stopped")
    finally:
        run(DISK, "stop", folder)


def test_the_kernel_is_asked_to_detach_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    os.truncate(file, 1 << 20)
    loop = state_worker.attach(str(file), 512)
    try:
        flag = Path("/sys/block") / Path(loop.node).name / "loop/autoclear"
        assert flag.read_text().strip() == "1"
    finally:
        state_worker.detach(loop)
    assert backing_of(loop.node) != str(file)
