"""Workers that come while a campaign runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs Dask: make setup")

from pgstrata.fleet.fleet import Fleet
from pgstrata.fleet.messages import Described, SessionAsked, describe_here
from pgstrata.trial.events import Event, Notice


@dataclass
class Cluster:
    """Of a client what looking for workers takes."""

    workers: dict[str, Described]

    def ncores(self) -> dict[str, int]:
        return dict.fromkeys(self.workers, 1)

    def run(self, function: Any, workers: list[str], on_error: str) -> dict[str, str]:
        return {address: self.workers[address].model_dump_json() for address in workers}


def _nothing(host: str) -> SessionAsked:
    raise AssertionError(f"{host} is asked for nothing")


def test_one_with_another_pgstrata_does_not_take_over() -> None:
    here = describe_here()
    same = here.model_copy(update={"machine": "m1"})
    other = same.model_copy(update={"pgstrata": "0.0.1", "hostname": "db1"})
    told: list[Event] = []
    cluster = Cluster({"tls://1": other})
    fleet = Fleet(cluster, {}, _nothing, told.append)
    assert fleet._worker_of("m1") is None
    assert [event.text for event in told if isinstance(event, Notice)] == [
        f"not used: workers have another pgstrata than the {here.pgstrata} here: db1 has 0.0.1"
    ]
    cluster.workers["tls://2"] = same
    assert fleet._worker_of("m1") == "tls://2"
    fleet._resuming.shutdown()
