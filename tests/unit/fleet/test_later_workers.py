"""Workers that come while a campaign runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs Dask: make setup")

from pgstrata.fleet.cluster_backend import ClusterBackend
from pgstrata.fleet.messages import Described, describe_here
from pgstrata.fleet.opening import Machine
from pgstrata.host.protocol import HostLost


@dataclass
class Cluster:
    """A client, as far as looking for workers takes one."""

    workers: dict[str, Described]
    status: str = "running"
    broken: str = ""

    def ncores(self) -> dict[str, int]:
        return dict.fromkeys(self.workers, 1)

    def ask(self, workers: list[str], function: Any) -> dict[str, str]:
        return {address: self.workers[address].model_dump_json() for address in workers}


def test_one_with_another_pgstrata_does_not_take_over() -> None:
    here = describe_here()
    same = here.model_copy(update={"machine": "m1"})
    other = same.model_copy(update={"pgstrata": "0.0.1", "hostname": "db1"})
    told: list[str] = []
    client: Any = Cluster({"tls://0": same})
    machines = {"db1": Machine("db1", "m1", ("tls://0",))}
    backend = ClusterBackend(client, dict(client.workers), machines, tell=told.append, patience_s=0)
    backend.check()
    assert (backend.is_ready("db1"), backend.trouble("db1")) == (True, None)
    client.workers = {"tls://1": other}
    backend.check()
    assert not backend.is_ready("db1")
    assert isinstance(backend.trouble("db1"), HostLost)
    backend.check()
    assert told == [f"not used: workers have another pgstrata than the {here.pgstrata} here: db1 has 0.0.1"]
    client.workers["tls://2"] = same
    backend.check()
    assert (backend._address_for("db1"), backend.trouble("db1")) == ("tls://2", None)
