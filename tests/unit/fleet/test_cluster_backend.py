"""Long data is sent once, and again where it was lost; a cluster without a scheduler or workers says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs Dask: make setup")

from dask import get_annotations

from pgstrata.errors import PreflightError
from pgstrata.fleet import cluster_backend
from pgstrata.fleet.calls import WorkerLost
from pgstrata.fleet.cluster_backend import LONG_BYTES, ClusterBackend
from pgstrata.fleet.messages import Described, describe_here
from pgstrata.fleet.opening import Machine
from pgstrata.fleet.work import Piece
from pieces import digest, refused

LONG = bytes(LONG_BYTES)


@dataclass(eq=False)
class Kept:
    """A result, or data, that workers keep."""

    key: str
    content: Any = None
    status: str = "finished"

    def cancel(self) -> None:
        self.status = "cancelled"


def at_once(function: Any, *given: Any) -> None:
    """What Dask's own thread would do; nothing is fetched."""
    if not iscoroutinefunction(function):
        function(*given)


@dataclass
class Client:
    """Of Dask, as far as work needs it."""

    status: str = "running"
    broken: str = ""
    workers: int = 2
    scattered: list[Kept] = field(default_factory=list)
    submitted: list[tuple[Any, ...]] = field(default_factory=list)
    where: list[dict[str, Any]] = field(default_factory=list)
    loop: Any = field(default_factory=lambda: SimpleNamespace(add_callback=at_once, call_later=lambda s, do: do()))

    def submit(self, function: Any, *given: Any, key: str, pure: bool, **where: Any) -> Kept:
        self.where.append(where)
        return Kept(key)

    def map(self, function: Any, names: list[str], *columns: list[Any], key: list[str], pure: bool) -> list[Kept]:
        self.submitted += zip(*columns, strict=True)
        where = get_annotations()
        self.where += [{"workers": where["workers"](one)} if where else {} for one in key]
        return [Kept(one) for one in key]

    def scatter(self, data: list[bytes], **options: Any) -> list[Kept]:
        if not self.workers:
            raise TimeoutError
        self.scattered.append(Kept("data", data[0]))
        return self.scattered[-1:]

    def ncores(self) -> dict[str, int]:
        return {f"tls://10.0.0.{number}:1": 1 for number in range(self.workers)}

    def ask(self, workers: Sequence[str], function: Any, *data: Any) -> dict[str, Any]:
        return {address: function(*data) for address in workers}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    here = describe_here()
    monkeypatch.setattr(cluster_backend, "described_workers", lambda client: dict.fromkeys(client.ncores(), here))
    return Client()


def piece(*data: bytes, affinity: str = "") -> Piece:
    return Piece(digest, data, affinity)


def test_long_data_is_sent_once(client: Any) -> None:
    backend = ClusterBackend(client)
    for _ in range(3):
        backend.send(piece(LONG))
    assert [one.content for one in client.scattered] == [LONG]
    assert client.submitted == [(client.scattered[0],)] * 3
    backend.send(piece(LONG[1:]))
    assert client.submitted[-1] == (LONG[1:],)


@pytest.mark.parametrize("status", ["lost", "cancelled"])
def test_data_that_workers_lost_is_sent_again(client: Any, status: str) -> None:
    backend = ClusterBackend(client)
    backend.send(piece(LONG))
    client.scattered[0].status = status
    backend.send(piece(LONG))
    assert len(client.scattered) == 2


def test_without_workers_the_piece_is_lost_for_now(client: Any) -> None:
    backend = ClusterBackend(client)
    client.workers = 0
    with pytest.raises(WorkerLost):
        backend.send(piece(LONG))


def test_pieces_of_a_machine_go_to_the_worker_that_has_its_lease(client: Any) -> None:
    workers = {address: describe_here() for address in client.ncores()}
    machine = Machine("db1", describe_here().machine, tuple(workers))
    backend = ClusterBackend(client, workers, {"db1": machine})
    first = backend.send(piece(b"a", affinity="db1"))
    backend.send(piece(b"b", affinity="db1"))
    assert client.where[0] == {"workers": ["tls://10.0.0.0:1"]}, "the lease"
    assert [where["workers"] for where in client.where[1:]] == [["tls://10.0.0.0:1"]] * 2
    assert client.submitted[0][0] == client.submitted[1][0], "both are told the lease"
    assert backend.leased_workers() == ["tls://10.0.0.0:1"]

    client.ncores = lambda: {"tls://10.0.0.1:1": 1}
    backend.check()
    assert isinstance(first.exception(timeout=0), WorkerLost)
    backend.send(piece(b"a", affinity="db1"))
    assert client.where[-1]["workers"] == ["tls://10.0.0.1:1"]
    assert client.submitted[-1][0] != client.submitted[0][0]


def test_a_cluster_at_its_end_says_so(client: Any) -> None:
    backend = ClusterBackend(client, patience_s=0)
    backend.check()
    assert backend.trouble("") is None
    client.workers = 0
    backend.check()
    assert "has had no worker" in str(backend.trouble(""))
    client.workers = 1
    backend.check()
    assert backend.trouble("") is None
    client.status = "closed"
    assert "the scheduler of the Dask cluster is gone" in str(backend.trouble(""))
    client.broken = "a pickle names os.system"
    assert "sent a message that is refused: a pickle names os.system" in str(backend.trouble(""))


def test_a_worker_that_cannot_is_named(client: Any) -> None:
    backend = ClusterBackend(client)
    assert backend.width == 2
    with pytest.raises(PreflightError, match=r"worker .* \(tls://10\.0\.0\.0:1\) cannot do it"):
        backend.ask_each(refused, "no")


def test_another_version_is_refused(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Described(**{**describe_here().model_dump(), "pgstrata": "0.0.1"})
    monkeypatch.setattr(cluster_backend, "described_workers", lambda client: {"tls://10.0.0.0:1": other})
    with pytest.raises(PreflightError, match=r"has 0\.0\.1"):
        ClusterBackend(client)
