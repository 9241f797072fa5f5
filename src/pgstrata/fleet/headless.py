"""Dask's servers without their HTTP pages; a scheduler that accepts requests of clients only from its own process.

Dask's own scheduler runs any function for every holder of the cluster's certificate, and workers have it.
`HeadlessScheduler` is part of the coordinator, so outside connections may send only the requests of workers.
"""

from __future__ import annotations

from typing import Any

from distributed import Nanny, Scheduler, Worker
from distributed.comm import CommClosedError

from pgstrata.fleet.calls import own_pickle

INPROC = "inproc://"
OF_WORKERS = frozenset(
    {
        "register-worker",
        "register_nanny",
        "unregister",
        "retire_workers",
        "heartbeat_worker",
        "set_resources",
        "who_has",
        "log_event",
        "identity",
        "close",
        "task-finished",
        "task-erred",
        "release-worker-data",
        "add-keys",
        "long-running",
        "reschedule",
        "keep-alive",
        "log-event",
        "worker-status-change",
        "request-refresh-who-has",
        "close-stream",
    }
)
"""Requests of workers and nannies to their scheduler: calls, then messages of their stream."""


class HeadlessScheduler(Scheduler):  # type: ignore[misc]
    """A scheduler without a dashboard, whose only client is in this process. Their messages are not encoded."""

    external_address: str
    """Address for the client in this process."""

    async def start_unsafe(self) -> Any:
        await super().start_unsafe()
        await self.listen(INPROC)
        self.external_address = self.listeners[-1].contact_address
        return self

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Nothing to serve."""

    def handle_comm(self, comm: Any) -> Any:
        if not comm.local_address.startswith(INPROC):
            _restrict(comm)
        return super().handle_comm(comm)

    async def update_graph(self, *args: Any, **options: Any) -> None:
        """Called only for the client of this process."""
        with own_pickle():
            await super().update_graph(*args, **options)


def _restrict(comm: Any) -> None:
    """End the connection at the first message that is not a request of a worker."""
    read = comm.read

    async def read_checked(*args: Any, **options: Any) -> Any:
        found = await read(*args, **options)
        for message in found if isinstance(found, list | tuple) else (found,):
            if isinstance(message, dict) and message.get("op") not in OF_WORKERS:
                comm.abort()
                raise CommClosedError(f"{comm.peer_address} sent {message.get('op')!r}, which is not for workers")
        return found

    comm.read = read_checked


class HeadlessWorker(Worker):  # type: ignore[misc]
    """A worker without a page of its own."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Nothing to serve."""


class HeadlessNanny(Nanny):  # type: ignore[misc]
    """Starts such a worker again when it was killed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, worker_class=HeadlessWorker, **options)
