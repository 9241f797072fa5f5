"""Pieces of work for tests of executors, by their names as any other."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path

from pgstrata.errors import UsageError


def doubled(number: int) -> int:
    return 2 * number


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def killed_once(folder: str, number: int) -> int:
    """The first one to come ends its process; every run of a piece that reaches its end leaves a file."""
    first = Path(folder) / "first"
    try:
        first.touch(exist_ok=False)
    except FileExistsError:
        (Path(folder) / f"{number}.{os.urandom(8).hex()}").touch()
        return 2 * number
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("lives on")


def refused(text: str) -> str:
    raise UsageError(text, hint="ask for something else")


def process_id() -> str:
    return str(os.getpid())


def where(text: str) -> str:
    return f"{text} {os.getpid()}"


def refused_if_asked(text: str) -> str:
    if text.startswith("refuse"):
        raise UsageError(text)
    return text


def held(folder: str) -> str:
    """Runs until there is a file `go`, and says that it runs."""
    (Path(folder) / f"held.{os.getpid()}").touch()
    while not (Path(folder) / "go").exists():
        time.sleep(0.05)
    (Path(folder) / f"ended.{os.getpid()}").touch()
    return folder
