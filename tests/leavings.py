"""What pgstrata may have left behind: in a folder, in the settings of the machine."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgstrata.stack.block.loop import parse_losetup
from pgstrata.stack.mounts import parse_mountinfo

kernel_settings = pytest.mark.xdist_group("kernel settings")
"""For tests that change settings of the whole machine: they share a process."""


@contextmanager
def lost_loops(*, made: bool = False) -> Iterator[None]:
    """Keeps a test that makes a loop device without its filesystem apart from every other program's `clean`, which
    would name it, on the whole machine."""
    devices = os.open("/sys/class/block", os.O_RDONLY)
    try:
        fcntl.flock(devices, fcntl.LOCK_EX if made else fcntl.LOCK_SH)
        yield
    finally:
        os.close(devices)


def settings() -> dict[str, str]:
    """Every kernel setting that a stack may change."""
    names = ["dirty_bytes", "dirty_ratio", "dirty_background_bytes", "dirty_background_ratio", "swappiness"]
    names += ["overcommit_memory", "overcommit_ratio", "overcommit_kbytes", "nr_hugepages"]
    files = [Path("/proc/sys/vm") / name for name in names]
    files.append(Path("/sys/kernel/mm/transparent_hugepage/enabled"))
    return {str(file): file.read_text() for file in files}


GONE_WITHIN_S = 30.0


def leftovers(folder: Path) -> list[str]:
    """Loop devices on files of a folder, mounts of such devices or in it, processes that work in it.

    A loop device that another test's look at all devices has open when it is detached goes away a moment later.
    """
    deadline = time.monotonic() + GONE_WITHIN_S
    while (found := _left_now(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _left_now(folder: Path) -> list[str]:
    listing = ["losetup", "--json", "--list", "--output", "NAME,BACK-FILE,DIO,LOG-SEC"]
    loops = parse_losetup(subprocess.run(listing, check=True, capture_output=True, text=True, timeout=60).stdout)
    ours = [loop for loop in loops if loop.backing_file.startswith(f"{folder}/")]
    nodes = {loop.node for loop in ours}
    found = [f"loop device {loop.node} on {loop.backing_file}" for loop in ours]
    for mount in parse_mountinfo(Path("/proc/self/mountinfo").read_text()):
        if mount.source in nodes or mount.target.startswith(f"{folder}/"):
            found.append(f"mount of {mount.source} at {mount.target}")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text() + os.readlink(process / "cwd")
        except OSError:
            continue
        if f"{folder}/" in words and int(process.name) != os.getpid():
            found.append(f"process {process.name}: {words!r}")
    return found
