"""Calls of one function on workers of a Dask cluster, several sent and several results fetched at a time.

Most of what Dask does for a task it does for a message: a graph that is taken up, a gathering of results. Calls that
come within a moment of each other share one, and so do results. Each call has a future of its own, and a worker.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any

import dask
from dask.utils import key_split
from distributed import Client
from distributed import Future as DaskFuture

TOGETHER_S = 0.1
"""For which a call, and a result, waits for others. A trial takes minutes."""

NAMES = 2000
"""Of tasks, after which Dask forgets them."""


@dataclass(eq=False)
class _Call:
    """`future` is the caller's, `task` is Dask's: it keeps a result for as long as its future is referred to."""

    text: str
    address: str
    future: Future[Any] = field(default_factory=Future)
    task: DaskFuture | None = None


class Together:
    """Everything but `submit` runs in the client's own thread."""

    def __init__(self, client: Client, function: Callable[[str], Any]) -> None:
        self._client = client
        self._function = function
        self._waiting: list[_Call] = []
        self._ended: list[_Call] = []
        self._names = 0

    def submit(self, text: str, address: str) -> Future[Any]:
        """Calls the function on the worker of that address alone. Cancelling the future cancels the task."""
        call = _Call(text, address)
        call.future.add_done_callback(lambda future: self._cancel(call) if future.cancelled() else None)
        self._client.loop.add_callback(self._wait, self._waiting, call, self._send)
        return call.future

    def _wait(self, others: list[_Call], call: _Call, then: Callable[[], Any]) -> None:
        others.append(call)
        if len(others) == 1:
            self._client.loop.call_later(TOGETHER_S, then)

    def _forget_names(self) -> None:
        """Dask remembers how it split the names of its last 100,000 tasks, 170 bytes each. Ours never come again."""
        self._names += len(self._waiting)
        if self._names >= NAMES:
            self._names = 0
            key_split.cache_clear()

    def _send(self) -> None:
        self._forget_names()
        calls = {f"pgstrata-{uuid.uuid4().hex}": call for call in self._waiting if not call.future.cancelled()}
        self._waiting.clear()
        if not calls:
            return
        places = {key: [call.address] for key, call in calls.items()}
        try:
            with dask.annotate(workers=places.__getitem__):
                tasks = self._client.map(
                    self._function,
                    [call.text for call in calls.values()],
                    key=list(calls),
                    resources={"host": 1},
                    pure=False,
                )
        except Exception as error:  # of a client that was closed, among others
            for call in calls.values():
                _finish(call, error=error)
            return
        for call, task in zip(calls.values(), tasks, strict=True):
            call.task = task
            self._watch(call, task)

    def _watch(self, call: _Call, task: DaskFuture) -> None:
        loop = self._client.loop
        task.add_done_callback(lambda _: loop.add_callback(self._wait, self._ended, call, self._fetch))

    async def _fetch(self) -> None:
        """Results that are lost on the way are waited for: their tasks run again, or are cancelled."""
        calls = self._ended.copy()
        self._ended.clear()
        tasks = {number: call.task for number, call in enumerate(calls) if call.task is not None}
        try:
            results = await self._client.gather(tasks, errors="skip", asynchronous=True)
        except OSError:  # the scheduler is gone, or was for a moment
            results = {}
        except Exception:  # one of them cannot be decoded
            results = await self._one_by_one(calls, tasks)
        for number, task in tasks.items():
            if number in results and task.status == "finished":
                _finish(calls[number], result=results[number])
            else:
                _finish(calls[number], error=await _error_of(task))

    async def _one_by_one(self, calls: list[_Call], tasks: dict[int, DaskFuture]) -> dict[int, Any]:
        """What can be had; the others' calls have ended with why it cannot, and are no longer among the tasks."""
        results: dict[int, Any] = {}
        for number, task in list(tasks.items()):
            try:
                results |= await self._client.gather({number: task}, errors="skip", asynchronous=True)
            except Exception as error:
                del tasks[number]
                _finish(calls[number], error=error)
        return results

    def _cancel(self, call: _Call) -> None:
        """In the client's own thread a call was sent, or is not."""
        self._client.loop.add_callback(lambda: call.task.cancel() if call.task is not None else None)


async def _error_of(task: DaskFuture) -> BaseException:
    if task.status == "error":
        error: BaseException = await task.exception(asynchronous=True)
        return error
    return CancelledError()


def _finish(call: _Call, *, result: Any = None, error: BaseException | None = None) -> None:
    call.task = None
    if not call.future.set_running_or_notify_cancel():
        return
    if error is None:
        call.future.set_result(result)
    else:
        call.future.set_exception(error)
