"""Work is done again where it was lost, and comes back once; a backend that is at its end says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

from awaiting import wait_until
from pgstrata.errors import PgstrataError, UsageError
from pgstrata.fleet.calls import WorkerLost, name_of
from pgstrata.fleet.work import MOST_LOSSES, Backend, Piece, Work, WorkersLost, opened_work, working
from pgstrata.trial.scheduler import Inline
from pieces import doubled, refused


class Scripted(Backend):
    """Loses as many attempts as it is told, each in a thread of its own; then calls."""

    def __init__(self, losses: int = 0, trouble: PgstrataError | None = None) -> None:
        self.losses = losses
        self.attempts = 0
        self.said = trouble

    @property
    def width(self) -> int:
        return 1

    def send(self, piece: Piece) -> Future[Any]:
        self.attempts += 1
        sent: Future[Any] = Future()
        lost = self.attempts <= self.losses
        Thread(target=_answer, args=(sent, lost, piece)).start()
        return sent

    def trouble(self, affinity: str) -> PgstrataError | None:
        return self.said


def _answer(sent: Future[Any], lost: bool, piece: Piece) -> None:
    if lost:
        sent.set_exception(WorkerLost())
        return
    try:
        sent.set_result(piece.function(*piece.data))
    except PgstrataError as error:
        sent.set_exception(error)


def test_what_was_lost_is_done_again_and_comes_back_once() -> None:
    backend = Scripted(losses=3)
    with working(backend) as work:
        assert work.submit(doubled, 21).result(timeout=60) == 42
    assert backend.attempts == 4


def test_an_error_of_the_work_itself_is_no_loss() -> None:
    backend = Scripted()
    with working(backend) as work, pytest.raises(UsageError, match="not this") as raised:
        work.submit(refused, "not this").result(timeout=60)
    assert (backend.attempts, raised.value.hint) == (1, "ask for something else")


def test_work_that_ends_its_workers_is_given_up() -> None:
    backend = Scripted(losses=1000)
    with working(backend) as work, pytest.raises(WorkersLost, match="workers were lost while they had the same work"):
        work.submit(doubled, 1).result(timeout=60)
    assert backend.attempts == MOST_LOSSES + 1


def test_where_nothing_can_be_done_any_more_everything_ends() -> None:
    never: Future[Any] = Future()
    backend = Scripted()
    backend.send = lambda piece: never  # type: ignore[method-assign]
    with working(backend) as work:
        waiting = work.submit(doubled, 1)
        backend.said = WorkersLost("the scheduler is gone")
        with pytest.raises(WorkersLost, match="the scheduler is gone"):
            waiting.result(timeout=60)
        never.set_result(2)  # too late: it came back already


def test_what_is_not_done_when_it_ends_is_given_up() -> None:
    backend = Scripted()
    backend.send = lambda piece: Future()  # type: ignore[method-assign]
    with working(backend) as work:
        left = work.submit(doubled, 1)
    with pytest.raises(WorkersLost, match="was ended"):
        left.result(timeout=0)


@dataclass
class ByHand(Backend):
    """What is sent ends when the test says so."""

    sent: list[tuple[Any, Future[Any]]] = field(default_factory=list)
    said: PgstrataError | None = None

    @property
    def width(self) -> int:
        return 1

    ready: bool = True

    def send(self, piece: Piece) -> Future[Any]:
        self.sent.append((piece.data[0], Future()))
        return self.sent[-1][1]

    def is_ready(self, affinity: str) -> bool:
        return self.ready

    def trouble(self, affinity: str) -> PgstrataError | None:
        return self.said

    def times(self, datum: int) -> int:
        return sum(sent == datum for sent, _ in self.sent)

    def lose(self, work: Work) -> None:
        """Another piece is lost and sent again: whatever was lost before has been looked at then."""
        other = work.submit(doubled, 100)
        self.sent[-1][1].set_exception(WorkerLost())
        wait_until(lambda: self.times(100) == 2, "the other one is sent again")
        self.sent[-1][1].set_result(200)
        assert other.result(timeout=60) == 200


def test_what_comes_back_late_does_not_come_back_again(caplog: pytest.LogCaptureFixture) -> None:
    backend = ByHand()
    with working(backend) as work:
        given_up = work.submit(doubled, 1)
        backend.said = WorkersLost("the scheduler is gone")
        assert isinstance(given_up.exception(timeout=60), WorkersLost)
        backend.sent[0][1].set_result(2)
        assert isinstance(given_up.exception(timeout=0), WorkersLost)
    assert caplog.messages == []


def test_what_was_given_up_is_not_sent_again() -> None:
    backend = ByHand()
    with working(backend) as work:
        given_up = work.submit(doubled, 1)
        backend.said = WorkersLost("the scheduler is gone")
        assert isinstance(given_up.exception(timeout=60), WorkersLost)
        backend.said = None
        backend.sent[0][1].set_exception(WorkerLost())
        backend.lose(work)
    assert backend.times(1) == 1


@pytest.mark.parametrize("lost", [False, True])
def test_what_its_caller_cancelled_neither_comes_back_nor_is_sent_again(
    caplog: pytest.LogCaptureFixture, lost: bool
) -> None:
    backend = ByHand()
    with working(backend) as work:
        cancelled = work.submit(doubled, 1)
        assert cancelled.cancel()
        backend.sent[0][1].set_exception(WorkerLost()) if lost else backend.sent[0][1].set_result(2)
        backend.lose(work)
        assert cancelled.cancelled()
    assert backend.times(1) == 1
    assert caplog.messages == []


def test_what_the_backend_itself_cancels_is_lost() -> None:
    backend = ByHand()
    with working(backend) as work:
        piece = work.submit(doubled, 1)
        backend.sent[0][1].cancel()
        wait_until(lambda: backend.times(1) == 2, "it is sent again")
        backend.sent[1][1].set_result(2)
        assert piece.result(timeout=60) == 2


def test_a_lost_piece_waits_until_a_worker_is_there_and_is_told_once() -> None:
    backend, told = ByHand(ready=False), list[str]()
    with working(backend, tell_loss=lambda piece: told.append(piece.affinity)) as work:
        piece = work.submit(doubled, 1, affinity="db1")
        backend.sent[0][1].set_exception(WorkerLost())
        other = ByHand()
        with working(other) as looking:
            other.lose(looking)  # a round of looking takes no longer
        assert (backend.times(1), told) == (1, [])
        backend.ready = True
        wait_until(lambda: backend.times(1) == 2, "it is sent again")
        backend.sent[1][1].set_result(2)
        assert piece.result(timeout=60) == 2
    assert told == ["db1"]


def test_once_stopped_a_lost_piece_is_given_up() -> None:
    backend = ByHand()
    with working(backend) as work:
        piece = work.submit(doubled, 1)
        work.stop()
        backend.sent[0][1].set_exception(WorkerLost())
        assert isinstance(piece.exception(timeout=60), WorkersLost)
    assert backend.times(1) == 1


def test_an_error_of_looking_after_workers_ends_what_waits_for_them() -> None:
    backend = ByHand()
    with working(backend) as work:
        piece = work.submit(doubled, 1)

        def broken() -> None:
            raise OSError("no more descriptors")

        backend.check = broken  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no more descriptors"):
            piece.result(timeout=60)


def test_nothing_runs_once_it_has_ended() -> None:
    before = set(enumerate_threads())
    with working(ByHand()):
        assert set(enumerate_threads()) - before
    assert not set(enumerate_threads()) - before


@pytest.mark.parametrize("function", [lambda: 1, Scripted().trouble])
def test_only_functions_with_a_name_travel(function: Callable[[], Any]) -> None:
    with pytest.raises(AssertionError):
        name_of(function)


def test_only_data_travels() -> None:
    with working(Scripted()) as work, pytest.raises(AssertionError, match="data alone"):
        work.submit(doubled, object())


def test_one_worker_is_this_process() -> None:
    for workers in (None, 1):
        with opened_work(workers) as executor:
            assert isinstance(executor, Inline)


def test_processes_here_and_workers_elsewhere_are_two_requests() -> None:
    with pytest.raises(UsageError, match="--on names others"), opened_work(2, "dask:local"):
        pass


def test_a_cluster_that_is_none_is_refused_before_anything_runs() -> None:
    with pytest.raises(UsageError, match="without TLS"), opened_work(None, "dask:tcp://db1:8786"):
        pass
