"""Work for other threads of control: an executor over the processes of this machine or the workers of a Dask cluster.

A piece of work is a function of a module with text, bytes and numbers as arguments. An optional affinity key names the
machine that must run it. If a worker is lost, its piece is repeated, so a function must tolerate a second call; each
result is used once. Work for threads of this process goes to `ThreadPoolExecutor`, which has the same interface and
loses nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from typing import Any

from pgstrata.errors import PgstrataError, UsageError
from pgstrata.fleet.calls import Datum, WorkerLost, name_of
from pgstrata.spec.dask_cluster import parse_cluster
from pgstrata.trial.scheduler import Inline

LOOK_S = 1.0
"""Seconds between two checks of lost pieces and of the backend."""
MOST_LOSSES = 10
"""Maximum number of losses of a piece: beyond it, the piece itself may end its workers."""
LOSSES = (WorkerLost, CancelledError, BrokenProcessPool)


class WorkersLost(PgstrataError):
    """No worker is left."""


@dataclass(eq=False)
class Piece:
    """`future` belongs to the caller; each attempt has one of its own."""

    function: Callable[..., Any]
    data: tuple[Datum, ...]
    affinity: str
    future: Future[Any] = field(default_factory=Future)
    losses: int = 0


class Backend(ABC):
    """Sends pieces to workers, and returns their results."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of pieces that run in parallel."""

    @abstractmethod
    def send(self, piece: Piece) -> Future[Any]:
        """Return the future result; its exception is one of `LOSSES` if the worker was lost."""

    def check(self) -> None:  # noqa: B027 (most backends have nothing to do)
        """Detect lost workers; called every `LOOK_S`."""

    def is_ready(self, affinity: str) -> bool:
        """Return True if a present worker accepts such a piece."""
        return True

    def trouble(self, affinity: str) -> PgstrataError | None:
        """Return the reason why such pieces can no longer be run; None if they can."""
        return None

    def ask_each(self, function: Callable[..., str], *data: Datum) -> Mapping[str, str]:
        """Run a function on every worker now; return the answers by worker name. Workers of a machine answer alike."""
        return {"this machine": function(*data)}


class Work(Executor):
    """Submits pieces to a backend, and repeats those whose worker was lost."""

    def __init__(self, backend: Backend, *, tell_loss: Callable[[Piece], None] = lambda piece: None) -> None:
        self.backend = backend
        self._tell_loss = tell_loss
        self._pieces: set[Piece] = set()
        self._lost: set[Piece] = set()
        self._changing = threading.Lock()
        self._woken = threading.Event()
        self._closing = self._stopping = False
        self._watching = threading.Thread(target=self._watch, name="pgstrata work")
        self._watching.start()

    @property
    def width(self) -> int:
        return self.backend.width

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a piece; `affinity` is the only keyword."""
        affinity = kwargs.pop("affinity", "")
        assert not kwargs
        assert all(isinstance(datum, str | bytes | int) for datum in args), "data alone travels"
        name_of(fn)
        piece = Piece(fn, args, affinity)
        with self._changing:
            self._pieces.add(piece)
        self._send(piece)
        return piece.future

    def stop(self) -> None:
        """Stop repeating lost pieces."""
        self._stopping = True

    def close(self) -> None:
        """Give up all unfinished pieces."""
        self._closing = True
        self._woken.set()
        self._watching.join()
        for piece in list(self._pieces):
            self._finish(piece, None, WorkersLost("the work was ended"))

    def _send(self, piece: Piece) -> None:
        try:
            sent = self.backend.send(piece)
        except WorkerLost:
            self._lose(piece)
            return
        sent.add_done_callback(lambda done: self._ended(piece, done))

    def _ended(self, piece: Piece, sent: Future[Any]) -> None:
        """Called in a thread of the backend; returns at once."""
        error = CancelledError() if sent.cancelled() else sent.exception()
        if isinstance(error, LOSSES):
            self._lose(piece)
        else:
            self._finish(piece, sent.result() if error is None else None, error)

    def _lose(self, piece: Piece) -> None:
        with self._changing:
            if piece in self._pieces:
                self._lost.add(piece)
        self._woken.set()

    def _finish(self, piece: Piece, result: Any, error: BaseException | None) -> None:
        with self._changing:
            if piece not in self._pieces:
                return
            self._pieces.discard(piece)
            self._lost.discard(piece)
        if not piece.future.set_running_or_notify_cancel():
            return
        if error is None:
            piece.future.set_result(result)
        else:
            piece.future.set_exception(error)

    def _watch(self) -> None:
        while not self._closing:
            self._woken.wait(LOOK_S)
            self._woken.clear()
            try:
                self._check()
            except Exception as error:  # whoever waits for a piece must learn of it
                for piece in list(self._pieces):
                    self._finish(piece, None, error)

    def _check(self) -> None:
        self.backend.check()
        for piece in list(self._pieces):
            trouble = self.backend.trouble(piece.affinity)
            if trouble is not None:
                self._finish(piece, None, trouble)
        for piece in list(self._lost):
            self._resume(piece)

    def _resume(self, piece: Piece) -> None:
        if self._stopping:
            self._finish(piece, None, WorkersLost("the work was ended"))
        elif piece.losses == MOST_LOSSES:
            self._finish(piece, None, WorkersLost(f"{MOST_LOSSES + 1} workers were lost while they had the same work"))
        elif piece.future.cancelled():
            self._finish(piece, None, None)
        elif self.backend.is_ready(piece.affinity):
            with self._changing:
                self._lost.discard(piece)
            piece.losses += 1
            self._tell_loss(piece)
            self._send(piece)


class Processes(Backend):
    """Processes of this machine. One that is killed takes the others with it; new ones are started."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._changing = threading.Lock()
        self._pool = self._started()

    @property
    def width(self) -> int:
        return self._count

    def _started(self) -> ProcessPoolExecutor:
        """Not forked: this process has threads."""
        return ProcessPoolExecutor(self._count, get_context("spawn"), initializer=_begin)

    def send(self, piece: Piece) -> Future[Any]:
        with self._changing:
            try:
                return self._pool.submit(piece.function, *piece.data)
            except BrokenProcessPool:
                self._pool.shutdown(wait=False)
                self._pool = self._started()
                return self._pool.submit(piece.function, *piece.data)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """In a new process: it ends with the one that started it, and silently on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="pgstrata parent", daemon=True).start()


def refuse_both(workers: int | None, on: str | None) -> None:
    """Raise UsageError if both processes of this machine and workers of a cluster are requested."""
    if on is not None and workers is not None:
        raise UsageError("--workers are processes of this machine, and --on names others", hint="leave one of them out")


@contextmanager
def opened_work(workers: int | None, on: str | None = None) -> Iterator[Executor]:
    """Open an executor: this process, that number of processes, or the cluster `dask:ADDRESS`, spelt as in `hosts:`."""
    refuse_both(workers, on)
    if on is not None:
        with opened_cluster_work(on) as work:
            yield work
    elif workers is None or workers == 1:
        yield Inline()
    else:
        backend = Processes(workers)
        try:
            with working(backend) as work:
                yield work
        finally:
            backend.close()


@contextmanager
def opened_cluster_work(on: str) -> Iterator[Work]:
    """Open the workers of the cluster `dask:ADDRESS`."""
    from pgstrata.fleet.clusters import connected

    with connected(parse_cluster(on)) as client:
        from pgstrata.fleet.cluster_backend import ClusterBackend

        with working(ClusterBackend(client)) as work:
            yield work


@contextmanager
def working(backend: Backend, *, tell_loss: Callable[[Piece], None] = lambda piece: None) -> Iterator[Work]:
    """Open work over a backend; it ends with the block."""
    work = Work(backend, tell_loss=tell_loss)
    try:
        yield work
    finally:
        work.close()
