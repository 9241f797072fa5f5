"""SIGINT, SIGTERM and SIGHUP: the running trial is undone first, then the campaign ends and can be resumed.

A signal is noted wherever it arrives, but it is raised at two kinds of places alone: `check`, between steps, and
`waiting`, which a host enters while a command or program runs. Nowhere else, so that no line between a thing that was
made and the note that takes it back can be cut short.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from pgstrata.host.protocol import HostLost

END_EVERY_S = 0.5
"""After a signal: how often the waits of the hosts' threads are ended, until all have raised."""


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
    _hosts: list[HostInterruption] = field(default_factory=list, repr=False)

    def of_host(self, end_wait: Callable[[], None]) -> HostInterruption:
        """For the thread of one of several hosts; `end_wait` ends what the thread waits for."""
        host = HostInterruption(end_wait=end_wait)
        self._hosts.append(host)
        host.received = self.received  # a signal from now on is noted there, too
        return host

    def end_waits(self) -> None:
        """Ends what the threads of all hosts wait for now: each of them raises `Interrupted` there. To be called until
        they have ended, because a wait may just be about to begin."""
        for host in self._hosts:
            host.end()

    def await_ends(self, futures: Collection[Future[Any]]) -> None:
        """Until the threads of hosts have ended: a signal ends what they wait for, after an error they end by
        themselves."""
        while wait(futures, timeout=END_EVERY_S).not_done:
            if self.received:
                self.end_waits()

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
        for host in self._hosts:
            host.received = self.received
        if number == signal.SIGHUP:
            _forget_terminal()
        if self._waiting:
            self.check()


@dataclass
class HostInterruption(Interruption):
    """The same in a thread, where no signal arrives: its waits are ended from outside, never what undoes."""

    end_wait: Callable[[], None] = field(kw_only=True, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.check()
        with self._lock:
            self._waiting = True
        try:
            yield
        finally:
            with self._lock:
                self._waiting = False
            self.check()

    def end(self) -> None:
        with self._lock:
            if self._waiting and not self._raised:
                with suppress(HostLost):  # nothing is waited for there any more
                    self.end_wait()


def _forget_terminal() -> None:
    """Undoing prints what it does, and must not fail because the terminal is gone."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        if stat.S_ISCHR(os.fstat(fd).st_mode):
            os.dup2(nowhere, fd)
    os.close(nowhere)
