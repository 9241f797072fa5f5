"""A client of a Dask cluster that accepts only text and bytes, and its requests to all workers at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from distributed import Client
from distributed.protocol.pickle import dumps

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.fleet import worker
from pgstrata.fleet.calls import MOST_ERROR_BYTES, Datum, WorkerLost, call, name_of, result_of
from pgstrata.fleet.messages import Described
from pgstrata.host.agent_schema import parsed

NOBODY_S = 120.0
"""Timeout for the first worker of a cluster."""
DESERIALIZERS = ["msgpack", "error"]
"""Encodings that contain only data."""


class DataClient(Client):  # type: ignore[misc]
    """`broken` is the reason why it no longer receives messages of its scheduler."""

    broken: str = ""

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(address, deserializers=DESERIALIZERS, set_as_default=False, **options)

    async def _handle_report(self) -> None:
        try:
            await super()._handle_report()
        except Exception as error:
            self.broken = str(error) or type(error).__name__
            raise

    def ask(self, workers: Collection[str], function: Any, *args: Any) -> dict[str, object]:
        """Run a function on workers now, alongside their tasks. Return the answer of each by address, an exception for
        a failure; `Client.run` would unpickle it."""
        try:
            return dict(self.sync(self._ask, list(workers), function, args))
        except Exception as error:  # of one answer that is none, which costs those of the others
            if len(workers) == 1:
                return dict.fromkeys(workers, error)
            return {address: self.ask([address], function, *args)[address] for address in workers}

    async def _ask(self, workers: list[str], function: Any, args: tuple[Any, ...]) -> dict[str, object]:
        message = {"op": "run", "function": dumps(function), "args": dumps(args), "kwargs": dumps({}), "wait": True}
        found = await self.scheduler.broadcast(msg=message, workers=workers, on_error="return_pickle")
        return {address: _taken(answer) for address, answer in found.items()}


def _taken(answer: Any) -> object:
    if isinstance(answer, bytes):  # a pickled exception of the scheduler
        return OSError("it does not answer its scheduler")
    if isinstance(answer, Mapping) and answer.get("status") == "OK":
        return answer.get("result")
    text = answer.get("exception_text") if isinstance(answer, Mapping) else None
    return RuntimeError(str(text or "it has no answer")[:MOST_ERROR_BYTES])


def describe_workers(client: DataClient, addresses: Collection[str]) -> Mapping[str, Described]:
    """Return the description of each worker by address; PreflightError if one has none."""
    found = client.ask(addresses, worker.prepare)
    return {address: _described(address, answer) for address, answer in found.items()}


def _described(address: str, answer: object) -> Described:
    if isinstance(answer, OSError):
        raise PreflightError(
            f"worker {address} has found the scheduler, but does not answer it: {_first_line(answer)}",
            hint="a firewall lets one direction through: the scheduler must reach the workers' ports, too",
        )
    if isinstance(answer, Exception):
        raise PreflightError(
            f"worker {address} cannot run pgstrata: {_first_line(answer)}",
            hint="pip install 'pgstrata[dask]' of the same version there",
        )
    return parsed(Described, answer, f"worker {address}")


def described_workers(client: DataClient) -> Mapping[str, Described]:
    """Return the descriptions of all workers; PreflightError if none connects in time."""
    try:
        client.wait_for_workers(1, timeout=NOBODY_S)
    except TimeoutError:
        raise PreflightError(
            f"no worker came to the scheduler within {NOBODY_S:.0f} s",
            hint="start workers; if there are some, does a firewall keep them from the scheduler?",
        ) from None
    return describe_workers(client, sorted(client.ncores()))


def ask_each(
    client: DataClient, workers: Mapping[str, Described], function: Callable[..., str], *data: Datum
) -> dict[str, str]:
    """Return the text that every worker answers, by its name; PreflightError if one fails."""
    told = {}
    for address, answer in client.ask(workers, call, name_of(function), *data).items():
        name = f"{workers[address].hostname} ({address})"
        try:
            if isinstance(answer, Exception):
                raise answer
            result = result_of(answer, most_bytes=MOST_ERROR_BYTES)
        except PgstrataError as error:
            raise PreflightError(f"worker {name} cannot do it: {error.message}", hint=error.hint) from None
        except (WorkerLost, OSError, TypeError, RuntimeError) as error:
            raise PreflightError(f"worker {name} cannot do it: {_first_line(error)}") from None
        told[name] = str(result)
    return told


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
