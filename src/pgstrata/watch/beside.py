"""Serves the live view of a run from a separate process; the run neither waits for it nor depends on it."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from pathlib import Path
from socket import socket

from pgstrata.watch.follow import Follower
from pgstrata.watch.server import View, make_server, serve

PATIENCE_S = 3.0
"""Seconds after which a stopped or busy view is killed."""
_SET_PARENT_DEATH_SIGNAL = 1


@contextmanager
def served_beside(directory: Path, token: str, bound: socket) -> Iterator[int]:
    """Yield the process's number; take over the socket, so that no connection to a dead view is possible."""
    context = get_context("spawn")
    with bound:
        process = context.Process(target=_serve, args=(directory, token, bound), name="watch", daemon=True)
        process.start()
    try:
        yield process.pid or 0
    finally:
        process.terminate()
        process.join(PATIENCE_S)
        process.kill()
        process.join()


def _serve(directory: Path, token: str, bound: socket) -> None:
    _die_with_parent()
    follower = Follower(directory)
    serve(make_server(View(follower, follower.look()), token, bound.getsockname()[1]), bound)


def _die_with_parent() -> None:
    """End this process with its parent, even if the run is killed. Ctrl-C is left to the run. The OOM killer prefers
    this process."""
    with suppress(OSError):
        os.setsid()
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    parent = parent_process()
    if parent is None or os.getppid() != parent.pid:
        os._exit(1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
