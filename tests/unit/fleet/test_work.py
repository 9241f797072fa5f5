"""Work is done again where it was lost, and comes back once; a way that is at its end says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

from awaiting import wait_until
from pgstrata.errors import PgstrataError, UsageError
from pgstrata.fleet.work import MOST_LOSSES, Datum, Way, Work, WorkersLost, call, name_of, opened_work
from pgstrata.trial.scheduler import Inline
from pieces import doubled, refused


class Lost(Exception):
    """A worker."""


class Scripted(Way):
    """Loses as many attempts as it is told, each in a thread of its own; then calls."""

    def __init__(self, losses: int = 0, trouble: PgstrataError | None = None) -> None:
        self.losses = losses
        self.attempts = 0
        self.said = trouble

    @property
    def width(self) -> int:
        return 1

    def send(self, name: str, data: tuple[Datum, ...]) -> Future[Any]:
        self.attempts += 1
        sent: Future[Any] = Future()
        lost = self.attempts <= self.losses
        Thread(target=_answer, args=(sent, lost, name, data)).start()
        return sent

    def is_loss(self, error: BaseException) -> bool:
        return isinstance(error, Lost)

    def trouble(self) -> PgstrataError | None:
        return self.said


def _answer(sent: Future[Any], lost: bool, name: str, data: tuple[Datum, ...]) -> None:
    if lost:
        sent.set_exception(Lost())
        return
    try:
        sent.set_result(call(name, *data))
    except PgstrataError as error:
        sent.set_exception(error)


@contextmanager
def working(way: Way) -> Iterator[Work]:
    work = Work(way)
    try:
        yield work
    finally:
        work.close()


def test_what_was_lost_is_done_again_and_comes_back_once() -> None:
    way = Scripted(losses=3)
    with working(way) as work:
        assert work.submit(doubled, 21).result(timeout=60) == 42
    assert way.attempts == 4


def test_an_error_of_the_work_itself_is_no_loss() -> None:
    way = Scripted()
    with working(way) as work, pytest.raises(UsageError, match="not this") as raised:
        work.submit(refused, "not this").result(timeout=60)
    assert (way.attempts, raised.value.hint) == (1, "ask for something else")


def test_work_that_ends_its_workers_is_given_up() -> None:
    way = Scripted(losses=1000)
    with working(way) as work, pytest.raises(WorkersLost, match="workers were lost while they had the same work"):
        work.submit(doubled, 1).result(timeout=60)
    assert way.attempts == MOST_LOSSES + 1


def test_where_nothing_can_be_done_any_more_everything_ends() -> None:
    never: Future[Any] = Future()
    way = Scripted()
    way.send = lambda name, data: never  # type: ignore[method-assign]
    with working(way) as work:
        waiting = work.submit(doubled, 1)
        way.said = WorkersLost("the scheduler is gone")
        with pytest.raises(WorkersLost, match="the scheduler is gone"):
            waiting.result(timeout=60)
        never.set_result(2)  # too late: it came back already


def test_what_is_not_done_when_it_ends_is_given_up() -> None:
    way = Scripted()
    way.send = lambda name, data: Future()  # type: ignore[method-assign]
    with working(way) as work:
        left = work.submit(doubled, 1)
    with pytest.raises(WorkersLost, match="was ended"):
        left.result(timeout=0)


@dataclass
class ByHand(Way):
    """What is sent ends when the test says so."""

    sent: list[tuple[Any, Future[Any]]] = field(default_factory=list)
    said: PgstrataError | None = None

    @property
    def width(self) -> int:
        return 1

    def send(self, name: str, data: tuple[Datum, ...]) -> Future[Any]:
        self.sent.append((data[0], Future()))
        return self.sent[-1][1]

    def is_loss(self, error: BaseException) -> bool:
        return isinstance(error, Lost)

    def trouble(self) -> PgstrataError | None:
        return self.said

    def times(self, datum: int) -> int:
        return sum(sent == datum for sent, _ in self.sent)

    def lose(self, work: Work) -> None:
        """Another piece is lost and sent again: whatever was lost before has been looked at then."""
        other = work.submit(doubled, 100)
        self.sent[-1][1].set_exception(Lost())
        wait_until(lambda: self.times(100) == 2, "the other one is sent again")
        self.sent[-1][1].set_result(200)
        assert other.result(timeout=60) == 200


def test_what_comes_back_late_does_not_come_back_again(caplog: pytest.LogCaptureFixture) -> None:
    way = ByHand()
    with working(way) as work:
        given_up = work.submit(doubled, 1)
        way.said = WorkersLost("the scheduler is gone")
        assert isinstance(given_up.exception(timeout=60), WorkersLost)
        way.sent[0][1].set_result(2)
        assert isinstance(given_up.exception(timeout=0), WorkersLost)
    assert caplog.messages == []


def test_what_was_given_up_is_not_sent_again() -> None:
    way = ByHand()
    with working(way) as work:
        given_up = work.submit(doubled, 1)
        way.said = WorkersLost("the scheduler is gone")
        assert isinstance(given_up.exception(timeout=60), WorkersLost)
        way.said = None
        way.sent[0][1].set_exception(Lost())
        way.lose(work)
    assert way.times(1) == 1


@pytest.mark.parametrize("lost", [False, True])
def test_what_its_caller_cancelled_neither_comes_back_nor_is_sent_again(
    caplog: pytest.LogCaptureFixture, lost: bool
) -> None:
    way = ByHand()
    with working(way) as work:
        cancelled = work.submit(doubled, 1)
        assert cancelled.cancel()
        way.sent[0][1].set_exception(Lost()) if lost else way.sent[0][1].set_result(2)
        way.lose(work)
        assert cancelled.cancelled()
    assert way.times(1) == 1
    assert caplog.messages == []


def test_what_the_way_itself_cancels_is_lost() -> None:
    way = ByHand()
    with working(way) as work:
        piece = work.submit(doubled, 1)
        way.sent[0][1].cancel()
        wait_until(lambda: way.times(1) == 2, "it is sent again")
        way.sent[1][1].set_result(2)
        assert piece.result(timeout=60) == 2


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
