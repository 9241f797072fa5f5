"""SIGINT, SIGTERM and SIGHUP: the running trial is undone first, then the campaign ends and can be resumed.

A signal is noted wherever it arrives, but it is raised at two kinds of places alone: `check`, between steps, and
`waiting`, which a host enters while a command or program runs. Nowhere else, so that no line between a thing that was
made and the note that takes it back can be cut short.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType


class Interrupted(BaseException):
    """Asked to stop. Not an Exception: only the scheduler may catch it."""

    def __init__(self, signal_name: str) -> None:
        super().__init__(f"interrupted by {signal_name}")


@dataclass
class Interruption:
    """Raises `Interrupted` once, for the first signal; later ones are only noted."""

    received: str = ""
    _raised: bool = field(default=False, repr=False)
    _waiting: bool = field(default=False, repr=False)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handles the signals inside the block; only in the main thread. Under `nohup` SIGHUP stays ignored."""
        handled = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            handled.append(signal.SIGHUP)
        before = {s: signal.signal(s, self._handle) for s in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A wait that a signal ends at once; one that came before it began ends it, too."""
        self.check()
        self._waiting = True
        try:
            self.check()  # a signal between the first look and the flag
            yield
        finally:
            self._waiting = False

    def check(self) -> None:
        """Raises `Interrupted` when a signal has come."""
        if self.received and not self._raised:
            self._raised = True
            self._waiting = False
            raise Interrupted(self.received)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        if number == signal.SIGHUP:
            _forget_terminal()
        if self._waiting:
            self.check()


def _forget_terminal() -> None:
    """Undoing prints what it does, and must not fail because the terminal is gone."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        if stat.S_ISCHR(os.fstat(fd).st_mode):
            os.dup2(nowhere, fd)
    os.close(nowhere)
