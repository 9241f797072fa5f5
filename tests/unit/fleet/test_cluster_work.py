"""What is long is sent once, and again where it was lost; a cluster without a scheduler or workers says so."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs Dask: make setup")

from pgstrata.errors import PreflightError, UsageError
from pgstrata.fleet import cluster_work
from pgstrata.fleet.cluster_work import LONG_BYTES, ClusterWay
from pgstrata.fleet.messages import Described, describe_here
from pieces import refused

LONG = bytes(LONG_BYTES)


@dataclass
class Scattered:
    """What a scheduler knows under its digest."""

    content: bytes
    status: str = "finished"


@dataclass
class Client:
    """Of Dask, as far as work needs it."""

    status: str = "running"
    workers: int = 2
    scattered: list[Scattered] = field(default_factory=list)
    submitted: list[tuple[Any, ...]] = field(default_factory=list)

    def get_executor(self, **options: Any) -> Client:
        return self

    def submit(self, *given: Any) -> Future[Any]:
        self.submitted.append(given[2:])
        return Future()

    def scatter(self, data: list[bytes], **options: Any) -> list[Scattered]:
        if not self.workers:
            raise TimeoutError
        self.scattered.append(Scattered(data[0]))
        return self.scattered[-1:]

    def ncores(self) -> dict[str, int]:
        return {f"tls://10.0.0.{number}:1": 1 for number in range(self.workers)}

    def run(self, function: Any, *data: Any, on_error: str) -> dict[str, Any]:
        try:
            return {"tls://10.0.0.0:1": function(*data)}
        except UsageError as error:
            return {"tls://10.0.0.0:1": error}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    here = describe_here()
    monkeypatch.setattr(cluster_work, "described_workers", lambda client: dict.fromkeys(client.ncores(), here))
    return Client()


def test_what_is_long_is_sent_once(client: Client) -> None:
    way = ClusterWay(client)
    for _ in range(3):
        way.send("m:f", ("asked", LONG))
    assert [one.content for one in client.scattered] == [LONG]
    assert client.submitted == [("asked", client.scattered[0])] * 3
    way.send("m:f", ("asked", LONG[1:]))
    assert client.submitted[-1] == ("asked", LONG[1:])


@pytest.mark.parametrize("status", ["lost", "cancelled"])
def test_what_its_workers_lost_is_sent_again(client: Client, status: str) -> None:
    way = ClusterWay(client)
    way.send("m:f", (LONG,))
    client.scattered[0].status = status
    way.send("m:f", (LONG,))
    assert len(client.scattered) == 2


def test_where_nobody_takes_it_the_piece_is_lost_for_now(client: Client) -> None:
    way = ClusterWay(client)
    client.workers = 0
    error = way.send("m:f", (LONG,)).exception(timeout=0)
    assert error is not None
    assert way.is_loss(error)
    assert not way.is_loss(OSError("of the piece itself"))


def test_a_cluster_at_its_end_says_so(client: Client) -> None:
    way = ClusterWay(client, patience_s=0)
    assert way.trouble() is None
    client.workers = 0
    way.trouble()
    assert "has had no worker" in str(way.trouble())
    client.workers = 1
    assert way.trouble() is None
    client.status = "closed"
    assert "the scheduler of the Dask cluster is gone" in str(way.trouble())


def test_a_worker_that_cannot_is_named(client: Client) -> None:
    way = ClusterWay(client)
    assert way.width == 2
    with pytest.raises(PreflightError, match=r"worker .* \(tls://10\.0\.0\.0:1\) cannot do it"):
        way.ask_each(refused, "no")


def test_another_version_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Described(**{**describe_here().model_dump(), "pgstrata": "0.0.1"})
    monkeypatch.setattr(cluster_work, "described_workers", lambda client: {"tls://10.0.0.0:1": other})
    with pytest.raises(PreflightError, match=r"has 0\.0\.1"):
        ClusterWay(client)
