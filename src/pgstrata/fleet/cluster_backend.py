"""Pieces of work on the workers of a Dask cluster, through a client that accepts only text and bytes.

A piece without an affinity goes to any worker. One with an affinity goes to the worker of that machine that holds its
lease, a task whose result the client keeps: once the scheduler forgets the task, the session of the lease is closed.
Long data, such as an event log, is sent to a worker once, and kept there under its digest.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any

import dask
from dask.utils import key_split
from distributed import Client
from distributed import Future as DaskFuture
from distributed.protocol.pickle import dumps

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.fleet import worker
from pgstrata.fleet.calls import MOST_ERROR_BYTES, Datum, WorkerLost, WrongAnswer, call, name_of, result_of
from pgstrata.fleet.clusters import first_line
from pgstrata.fleet.messages import Described, describe_here
from pgstrata.fleet.opening import Machine, check_versions
from pgstrata.fleet.work import Backend, Piece, WorkersLost
from pgstrata.host.agent_schema import OTHER_PROGRAM, parsed
from pgstrata.host.protocol import HostLost

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
            f"worker {address} has found the scheduler, but does not answer it: {first_line(answer)}",
            hint="a firewall lets one direction through: the scheduler must reach the workers' ports, too",
        )
    if isinstance(answer, Exception):
        raise PreflightError(
            f"worker {address} cannot run pgstrata: {first_line(answer)}",
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
            raise PreflightError(f"worker {name} cannot do it: {first_line(error)}") from None
        told[name] = str(result)
    return told


LONG_BYTES = 1 << 20
"""Size in bytes from which on data is sent separately, once."""
PATIENCE_S = 300.0
"""Timeout for a machine, or a cluster, that has lost its workers."""
TOGETHER_S = 0.1
"""Seconds within which pieces, and answers, share messages: most of Dask's work for a task is for its messages."""
NAMES = 2000
"""Number of tasks after which Dask forgets them: it would remember how it split the names of the last 100,000."""


@dataclass(eq=False)
class _Sent:
    """A piece that was sent: `data` begins with the name of its function, `address` is empty for any worker."""

    key: str
    address: str
    data: tuple[Any, ...]
    result: Future[Any] = field(default_factory=Future)
    task: DaskFuture | None = None


class ClusterBackend(Backend):
    """The workers of a scheduler, including later ones. PreflightError if one has another version of pgstrata."""

    def __init__(
        self,
        client: DataClient,
        workers: Mapping[str, Described] | None = None,
        machines: Mapping[str, Machine] | None = None,
        *,
        tell: Callable[[str], None] = lambda line: None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`machines` are by their affinity keys."""
        self.client = client
        self._workers = dict(described_workers(client) if workers is None else workers)
        check_versions(self._workers, describe_here())
        self._machines = machines or {}
        self._tell = tell
        self._patience_s = patience_s
        self._present = frozenset(self._workers)
        self._later: dict[str, str] = {}
        """Machines of workers that connected later; empty for a worker that is not used."""
        self._alone_since_s: dict[str, float] = {}
        self._leases: dict[str, tuple[str, DaskFuture]] = {}
        self._sent: dict[bytes, DaskFuture] = {}
        self._running: dict[str, _Sent] = {}
        self._waiting: list[_Sent] = []
        self._names = 0

    @property
    def width(self) -> int:
        return len(self._workers)

    def ask_each(self, function: Callable[..., str], *data: Datum) -> Mapping[str, str]:
        return ask_each(self.client, self._workers, function, *data)

    # ------------------------------------------------------------ present workers

    def check(self) -> None:
        """Check which workers are present; a piece of an absent one is lost, even if Dask still waits for it."""
        if self.client.status != "running":
            return
        try:
            self._present = frozenset(self.client.ncores())
        except (OSError, RuntimeError, ValueError, AttributeError):
            return  # the scheduler does not say
        if self._machines:
            self._recognise(sorted(self._present - self._workers.keys() - self._later.keys()))
        for sent in list(self._running.values()):
            if sent.address and sent.address not in self._present:
                self._end(sent, error=WorkerLost())
                if sent.task is not None:
                    sent.task.cancel()
        for affinity in ("", *self._machines):
            if self._address_for(affinity) is None:
                self._alone_since_s.setdefault(affinity, time.monotonic())
            else:
                self._alone_since_s.pop(affinity, None)

    def _recognise(self, later: list[str]) -> None:
        """Take up workers that connected later; one with another version of pgstrata is reported and not used."""
        for address in later:
            self._later[address] = ""
            try:
                (described,) = describe_workers(self.client, [address]).values()
                check_versions({address: described}, describe_here())
                self._later[address] = described.machine
            except PreflightError as error:
                self._tell(f"not used: {error.message}")

    def _address_for(self, affinity: str) -> str | None:
        """Return the worker with the lease, else one of the machine; any worker without an affinity."""
        held = self._leases.get(affinity)
        if held is not None and held[0] in self._present:
            return held[0]
        if not affinity:
            return next(iter(self._present), None)
        machine = self._machines[affinity]
        first = next((address for address in machine.workers if address in self._present), None)
        return first or next(
            (a for a in sorted(self._later) if a in self._present and self._later[a] == machine.id), None
        )

    def is_ready(self, affinity: str) -> bool:
        return self.client.status == "running" and self._address_for(affinity) is not None

    def trouble(self, affinity: str) -> PgstrataError | None:
        if self.client.broken:
            return WorkersLost(f"the Dask cluster sent a message that is refused: {self.client.broken}")
        if self.client.status == "closed":
            return WorkersLost(
                "the scheduler of the Dask cluster is gone", hint="start it again, then run the same command"
            )
        alone_s = time.monotonic() - self._alone_since_s.get(affinity, time.monotonic())
        if alone_s <= self._patience_s:
            return None
        if affinity:
            return HostLost(f"no worker of {affinity} came back")
        return WorkersLost(
            f"the Dask cluster has had no worker for {self._patience_s:.0f} s",
            hint="start workers, then run the same command again",
        )

    def leased_workers(self) -> list[str]:
        """Return the workers with open sessions."""
        return [address for address, _ in self._leases.values() if address in self._present]

    # ------------------------------------------------------------ pieces

    def send(self, piece: Piece) -> Future[Any]:
        data: list[Any] = [name_of(piece.function), *(self._by_itself(datum) for datum in piece.data)]
        address = ""
        if piece.affinity:
            address, lease = self._leased(piece.affinity)
            data.insert(1, lease)
        sent = _Sent(_name(), address, tuple(data))
        self._running[sent.key] = sent
        self.client.loop.add_callback(self._wait, sent)
        return sent.result

    def _leased(self, affinity: str) -> tuple[str, str]:
        """Return the worker of a machine, and the name of its lease."""
        address = self._address_for(affinity)
        if address is None or self.client.status != "running":
            raise WorkerLost
        held = self._leases.get(affinity)
        if held is None or held[0] != address or held[1].status in ("cancelled", "lost", "error"):
            lease = self.client.submit(worker.lease, key=_name(), workers=[address], pure=False)
            held = self._leases[affinity] = (address, lease)
        return address, held[1].key

    def _by_itself(self, datum: Datum) -> Datum | DaskFuture:
        if not isinstance(datum, bytes) or len(datum) < LONG_BYTES:
            return datum
        known = self._sent.get(datum)
        if known is None or known.status in ("cancelled", "lost", "error"):
            try:
                (known,) = self.client.scatter([datum], broadcast=True, hash=True)
            except (TimeoutError, OSError):
                raise WorkerLost from None
            self._sent[datum] = known
        return known

    # ------------------------------------------------------------ in Dask's own thread

    def _wait(self, sent: _Sent) -> None:
        self._waiting.append(sent)
        if len(self._waiting) == 1:
            self.client.loop.call_later(TOGETHER_S, self._post)

    def _post(self) -> None:
        """Send one message for all pieces of a kind that arrived within `TOGETHER_S`."""
        waiting, self._waiting = self._waiting, []
        self._names += len(waiting)
        if self._names >= NAMES:
            self._names = 0
            key_split.cache_clear()
        kinds: dict[tuple[bool, int], list[_Sent]] = {}
        for sent in waiting:
            kinds.setdefault((bool(sent.address), len(sent.data)), []).append(sent)
        for (is_placed, _), alike in kinds.items():
            self._post_alike(alike, is_placed=is_placed)

    def _post_alike(self, alike: Sequence[_Sent], *, is_placed: bool) -> None:
        places = {sent.key: [sent.address] for sent in alike}
        where = {"workers": places.__getitem__, "resources": {"host": 1}} if is_placed else {}
        columns = zip(*(sent.data for sent in alike), strict=True)
        try:
            with dask.annotate(**where):
                tasks = self.client.map(call, *map(list, columns), key=list(places), pure=False)
        except Exception as error:  # of a client that was closed, among others
            for sent in alike:
                self._end(sent, error=WorkerLost(str(error)))
            return
        for sent, task in zip(alike, tasks, strict=True):
            sent.task = task
            self.client.loop.add_callback(self._fetch, sent, task)

    async def _fetch(self, sent: _Sent, task: DaskFuture) -> None:
        """Fetch the answer of a task. A task ends without one only if its worker was lost: `call` raises nothing."""
        try:
            await task._state.wait()
            await asyncio.sleep(TOGETHER_S - time.monotonic() % TOGETHER_S)
            answer = await self.client.gather(task, asynchronous=True)
        except (Exception, CancelledError) as error:
            wrong = isinstance(error, TypeError) and task.status == "finished"
            self._end(sent, error=await self._wrong(task, str(error)) if wrong else WorkerLost(str(error)))
            return
        try:
            self._end(sent, value=result_of(answer))
        except WrongAnswer as error:
            self._end(sent, error=await self._wrong(task, error.message))
        except (PgstrataError, WorkerLost) as error:
            self._end(sent, error=error)

    async def _wrong(self, task: DaskFuture, problem: str) -> WrongAnswer:
        """Return the error for a wrong answer; the scheduler names the worker."""
        try:
            found = await self.client.scheduler.who_has(keys=[task.key])
            who = " ".join(str(address) for addresses in found.values() for address in addresses)
        except Exception:  # the answer is wrong all the same
            who = "unknown"
        return WrongAnswer(f"worker {who} gave a wrong answer: {problem}", hint=OTHER_PROGRAM)

    def _end(self, sent: _Sent, *, value: Any = None, error: BaseException | None = None) -> None:
        if self._running.pop(sent.key, None) is None:
            return
        if error is None:
            sent.result.set_result(value)
        else:
            sent.result.set_exception(error)


def _name() -> str:
    return f"pgstrata-{uuid.uuid4().hex}"
