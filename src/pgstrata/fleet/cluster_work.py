"""Pieces of work on the workers of a Dask cluster, as many on a machine as it has workers.

Long data, such as an event log, is sent to a worker once: it is kept there under its digest, for as long as the work
lasts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any

from distributed import Client, KilledWorker
from distributed import Future as DaskFuture
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.fleet.clusters import described_workers
from pgstrata.fleet.machines import check_versions
from pgstrata.fleet.messages import describe_here
from pgstrata.fleet.work import Datum, Way, WorkersLost, call, name_of

LONG_BYTES = 1 << 20
"""Data from here on is sent by itself, once."""
PATIENCE_S = 300.0
"""For a cluster that has lost all its workers."""


class _NobodyThere(Exception):
    """No worker took what is long."""


class ClusterWay(Way):
    """The workers that a scheduler has, also those that come later. PreflightError where one has another pgstrata."""

    def __init__(self, client: Client, *, patience_s: float = PATIENCE_S) -> None:
        self._client = client
        self._workers = described_workers(client)
        check_versions(self._workers, describe_here())
        self._pieces = client.get_executor(pure=False)
        self._sent: dict[bytes, DaskFuture] = {}
        self._patience_s = patience_s
        self._alone_since_s: float | None = None

    @property
    def width(self) -> int:
        return len(self._workers)

    def ask_each(self, function: Callable[..., str], *data: Datum) -> Mapping[str, str]:
        """What every worker answers, by its name; PreflightError where one cannot."""
        found = self._client.run(call, name_of(function), *data, on_error="return")
        told = {}
        for address, answer in found.items():
            worker = self._workers.get(address)
            name = f"{worker.hostname} ({address})" if worker else address
            if isinstance(answer, BaseException):
                raise PreflightError(f"worker {name} cannot do it: {answer}")
            told[name] = answer
        return told

    def send(self, name: str, data: tuple[Datum, ...]) -> Future[Any]:
        sent: Future[Any]
        try:
            sent = self._pieces.submit(call, name, *(self._by_itself(datum) for datum in data))
        except (TimeoutError, OSError):
            sent = Future()
            sent.set_exception(_NobodyThere())
        return sent

    def _by_itself(self, datum: Datum) -> Datum | DaskFuture:
        if not isinstance(datum, bytes) or len(datum) < LONG_BYTES:
            return datum
        known = self._sent.get(datum)
        if known is None or known.status in ("cancelled", "lost", "error"):
            (known,) = self._client.scatter([datum], broadcast=True, hash=True)
            self._sent[datum] = known
        return known

    def is_loss(self, error: BaseException) -> bool:
        lost = (KilledWorker, CancelledError, FutureCancelledError, CommClosedError, _NobodyThere)
        return isinstance(error, lost)

    def trouble(self) -> PgstrataError | None:
        """The scheduler is gone, or all workers have been for a while."""
        if self._client.status == "closed":
            return WorkersLost(
                "the scheduler of the Dask cluster is gone", hint="start it again, then the same command"
            )
        if self._is_alone():
            since_s = self._alone_since_s = self._alone_since_s or time.monotonic()
            if time.monotonic() - since_s > self._patience_s:
                return WorkersLost(
                    f"the Dask cluster has had no worker for {self._patience_s:.0f} s",
                    hint="start workers, then run the same command again",
                )
        else:
            self._alone_since_s = None
        return None

    def _is_alone(self) -> bool:
        try:
            return not self._client.ncores()
        except (OSError, RuntimeError, ValueError, AttributeError):
            return True
