"""Pieces of work over processes of this machine, or over the workers of a Dask cluster: one executor for both.

A piece is a function of a module, by its name, with text, bytes and numbers: no code travels. Where a worker is lost,
what it had is done again, so a function must not mind being called twice; its result is taken once.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from pgstrata.errors import PgstrataError, UsageError
from pgstrata.spec.dask_cluster import parse_cluster
from pgstrata.trial.scheduler import Inline

if TYPE_CHECKING:
    from pgstrata.fleet.cluster_work import ClusterWay

LOOK_S = 1.0
"""How often it is looked whether work can still be done."""
MOST_LOSSES = 10
"""Of a piece: then it may be what ends its workers."""
Datum = str | bytes | int


class WorkersLost(PgstrataError):
    """What was to be done cannot be done here any more."""


def name_of(function: Callable[..., Any]) -> str:
    """`module:function`; what has no such name does not travel."""
    name = f"{function.__module__}:{function.__qualname__}"
    assert _named(name) is function, f"{name} is no function of a module"
    return name


def call(name: str, *data: Datum) -> Any:
    """Runs a function by its name: here, in a process of this machine, or on a worker."""
    return _named(name)(*data)


def _named(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function, None)


@dataclass(eq=False)
class _Piece:
    """`future` is the caller's."""

    name: str
    data: tuple[Datum, ...]
    future: Future[Any] = field(default_factory=Future)
    losses: int = 0


class Way(ABC):
    """How a piece gets to whoever does it."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many pieces are done at once."""

    @abstractmethod
    def send(self, name: str, data: tuple[Datum, ...]) -> Future[Any]:
        """The result of the function; a loss where it cannot come."""

    @abstractmethod
    def is_loss(self, error: BaseException) -> bool:
        """Whether an error says that a worker was lost, and nothing about the piece."""

    @abstractmethod
    def trouble(self) -> PgstrataError | None:
        """Why nothing can be done any more."""


class Work(Executor):
    """Has pieces done, and done again where their worker was lost; each comes back once."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self._pieces: set[_Piece] = set()
        self._lost: SimpleQueue[_Piece] = SimpleQueue()
        self._changing = threading.Lock()
        self._closing = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="pgstrata work")
        self._watching.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        assert not kwargs
        assert all(isinstance(datum, str | bytes | int) for datum in args), "data alone travels"
        piece = _Piece(name_of(fn), args)
        with self._changing:
            self._pieces.add(piece)
        self._send(piece)
        return piece.future

    def close(self) -> None:
        """What is not done by now is given up."""
        self._closing.set()
        self._watching.join()
        self._give_up(WorkersLost("the work was ended"))

    def _send(self, piece: _Piece) -> None:
        sent = self.way.send(piece.name, piece.data)
        sent.add_done_callback(lambda done: self._ended(piece, done))

    def _ended(self, piece: _Piece, sent: Future[Any]) -> None:
        """In a thread of the way's own: returns at once."""
        error = CancelledError() if sent.cancelled() else sent.exception()
        if error is not None and (sent.cancelled() or self.way.is_loss(error)):
            self._lost.put(piece)
            return
        self._finish(piece, sent.result() if error is None else None, error)

    def _finish(self, piece: _Piece, result: Any, error: BaseException | None) -> None:
        with self._changing:
            if piece not in self._pieces:
                return
            self._pieces.discard(piece)
        if not piece.future.set_running_or_notify_cancel():
            return
        if error is None:
            piece.future.set_result(result)
        else:
            piece.future.set_exception(error)

    def _give_up(self, error: PgstrataError) -> None:
        for piece in list(self._pieces):
            self._finish(piece, None, error)

    def _watch(self) -> None:
        while not self._closing.is_set():
            trouble = self.way.trouble()
            if trouble is not None:
                self._give_up(trouble)
            try:
                piece = self._lost.get(timeout=LOOK_S)
            except Empty:
                continue
            self._again(piece)

    def _again(self, piece: _Piece) -> None:
        piece.losses += 1
        if piece.losses > MOST_LOSSES:
            self._finish(piece, None, WorkersLost(f"{piece.losses} workers were lost while they had the same work"))
        elif piece.future.cancelled():
            self._finish(piece, None, None)
        elif piece in self._pieces:
            self._send(piece)


class Processes(Way):
    """Processes of this machine. One that is killed takes the others with it; they are started anew."""

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

    def send(self, name: str, data: tuple[Datum, ...]) -> Future[Any]:
        with self._changing:
            try:
                return self._pool.submit(call, name, *data)
            except BrokenProcessPool:
                self._pool.shutdown(wait=False)
                self._pool = self._started()
                return self._pool.submit(call, name, *data)

    def is_loss(self, error: BaseException) -> bool:
        return isinstance(error, BrokenProcessPool)

    def trouble(self) -> None:
        return None

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """In a new process: it ends with the one that started it, and Ctrl-C ends it without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="pgstrata parent", daemon=True).start()


def refuse_both(workers: int | None, on: str | None) -> None:
    """UsageError where workers are asked for here and elsewhere."""
    if on is not None and workers is not None:
        raise UsageError("--workers are processes of this machine, and --on names others", hint="leave one of them out")


@contextmanager
def opened_work(workers: int | None, on: str | None = None) -> Iterator[Executor]:
    """An executor: of this process, of so many processes, or of the cluster `dask:ADDRESS`, as `hosts:` takes it."""
    refuse_both(workers, on)
    if on is not None:
        with opened_cluster_work(on) as (work, _):
            yield work
    elif workers is None or workers == 1:
        yield Inline()
    else:
        way = Processes(workers)
        try:
            with _working(way) as work:
                yield work
        finally:
            way.close()


@contextmanager
def opened_cluster_work(on: str) -> Iterator[tuple[Work, ClusterWay]]:
    """An executor of the cluster `dask:ADDRESS`, and its workers."""
    from pgstrata.fleet.clusters import connected

    with connected(parse_cluster(on)) as client:
        from pgstrata.fleet.cluster_work import ClusterWay

        way = ClusterWay(client)
        with _working(way) as work:
            yield work, way


@contextmanager
def _working(way: Way) -> Iterator[Work]:
    work = Work(way)
    try:
        yield work
    finally:
        work.close()
