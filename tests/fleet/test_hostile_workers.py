"""A worker with the cluster's certificate runs nothing in the coordinator, however it answers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgstrata.errors import PgstrataError
from pgstrata.fleet.work import opened_cluster_work
from pieces import doubled

pytest.importorskip("distributed", reason="needs Dask: make setup")

import dask
from dask_processes import dask_processes

from pieces import orders

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

HOSTILE = str(Path(__file__).parent / "hostile_worker.py")
SAID = {
    "result": "worker tls://.* gave a wrong answer|sent a message that is refused",
    "exception": "workers were lost while they had the same work|sent a message that is refused",
    "event": "^$",
    "wrong answer": "worker tls://.* gave a wrong answer: it answered with text that cannot be read",
    "description": "cannot run pgstrata",
    "refusal to describe": "cannot run pgstrata",
    "wrong description": "worker tls://.* gave a wrong answer: .* at most 256",
}


@contextmanager
def cluster(form: str, place: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One worker, which is hostile."""
    monkeypatch.setenv("HOSTILE", mode)
    monkeypatch.setenv("HOSTILE_MARK", str(place / "mark"))
    if form == "started here":
        with dask.config.set({"distributed.worker.preload": [HOSTILE]}):
            yield "dask:local"
        return
    environment = {"DASK_DISTRIBUTED__WORKER__PRELOAD": repr([HOSTILE])}
    with dask_processes(place, environment, workers=1) as started:
        yield f"dask:{{address: '{started.address}', tls: '{place / 'tls'}'}}"


@pytest.mark.parametrize("form", ["started here", "of an address"])
@pytest.mark.parametrize("pickled", ["", "+pickled"])
@pytest.mark.parametrize("mode", SAID)
def test_nothing_of_it_runs_here(
    tmp_path: Path, form: str, mode: str, pickled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ""
    with cluster(form, tmp_path, mode + pickled, monkeypatch) as on:
        try:
            with opened_cluster_work(on) as work:
                work.submit(doubled, 21).result(timeout=100)
        except PgstrataError as error:
            said = str(error)
    mark = tmp_path / "mark"
    ran_in = mark.read_text().split() if mark.exists() else []
    assert str(os.getpid()) not in ran_in
    assert re.search(f"{SAID[mode]}|only able to deserialize" if pickled else SAID[mode], said), said


def test_the_scheduler_in_this_process_takes_no_orders_from_workers() -> None:
    with opened_cluster_work("dask:local") as work:
        told = json.loads(work.submit(orders).result(timeout=100))
        assert set(told) == {"run_function", "register_scheduler_plugin", "update-graph", "broadcast"}
        assert str(os.getpid()) not in told.values()
        assert set(told.values()) == {"refused"}, told
        assert work.submit(doubled, 21).result(timeout=100) == 42
