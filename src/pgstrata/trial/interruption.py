"""SIGINT, SIGTERM and SIGHUP: the running trial is undone first, then the campaign ends and can be resumed."""

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
    """Raises `Interrupted` once, at the first signal outside a shield; later signals are only noted.

    What is being undone must not be cut short by an impatient second Ctrl-C, so undo runs inside `shield`.
    """

    received: str = ""
    _raised: bool = field(default=False, repr=False)
    _shields: int = field(default=0, repr=False)

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
    def shield(self) -> Iterator[None]:
        """Defers a signal until the block is done (then `check` raises it)."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1

    def check(self) -> None:
        """Raises `Interrupted` when a signal was deferred."""
        if self.received and not self._raised:
            self._raised = True
            raise Interrupted(self.received)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        if number == signal.SIGHUP:
            _forget_terminal()
        if not self._shields:
            self.check()


def _forget_terminal() -> None:
    """What is undone is told, and must not fail because the terminal that it is told to is gone."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        if stat.S_ISCHR(os.fstat(fd).st_mode):
            os.dup2(nowhere, fd)
    os.close(nowhere)
