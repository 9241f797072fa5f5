"""Waiting for something to become true, with a limit that only a hang reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 120.0


def wait_until(true: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Returns as soon as `true()` holds; AssertionError, naming `what`, when it does not within the limit."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s in vain: {what}"
        time.sleep(0.01)


def wait_for_number(file: Path) -> int:
    """The number on the whole first line of a file, once another program has written it."""
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), f"a number in {file}")
    return int(file.read_text())


def is_running(pid: int) -> bool:
    """Whether a process lives; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
