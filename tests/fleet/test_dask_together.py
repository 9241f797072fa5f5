"""Calls that share messages with others: each comes back once, from its own worker, whatever becomes of the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from awaiting import wait_until
from pgstrata.errors import UsageError
from pgstrata.fleet.clusters import connected, described_workers
from pgstrata.spec.dask_cluster import DaskCluster
from pieces import held, process_id, refused_if_asked, where

pytest.importorskip("distributed", reason="needs Dask: make setup")

from dask.utils import key_split
from distributed import Client, KilledWorker

from pgstrata.fleet import together as together_module
from pgstrata.fleet.together import Together

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture
def client() -> Iterator[Client]:
    with connected(DaskCluster(local=2)) as client:
        yield client


@pytest.fixture
def processes(client: Client) -> dict[str, str]:
    """The workers' processes by their addresses; from now on they have a host each."""
    assert len(described_workers(client)) >= 1
    wait_until(lambda: len(described_workers(client)) == 2, "both workers are there")
    return {address: found.partition(":")[0] for address, found in client.run(process_id).items()}


def counted(client: Client, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many calls and results go with each message."""
    messages = {"map": 0, "gather": 0}
    for name in messages:
        real = getattr(client, name)

        def counting(*given: Any, real: Any = real, name: str = name, **options: Any) -> Any:
            messages[name] += 1
            return real(*given, **options)

        monkeypatch.setattr(client, name, counting)
    return messages


def test_calls_share_messages_and_each_has_its_own_result(
    client: Client, processes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, together = counted(client, monkeypatch), Together(client, where)
    asked = [(str(number), address) for number in range(20) for address in processes]
    futures = [together.submit(*one) for one in asked]
    assert [f.result(timeout=60) for f in futures] == [f"{text} {processes[address]}" for text, address in asked]
    assert messages["map"] < len(asked) / 2
    assert messages["gather"] < len(asked) / 2
    wait_until(lambda: not client.futures, "no result is kept")


def test_dask_does_not_remember_the_names_of_all_calls(
    client: Client, processes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would those of the last 100,000."""
    monkeypatch.setattr(together_module, "NAMES", 20)
    together, address = Together(client, where), next(iter(processes))
    for number in range(8):
        for future in [together.submit(f"{number}", address) for _ in range(10)]:
            future.result(timeout=60)
    assert key_split.cache_info().currsize < 60


def test_an_error_is_of_one_call(client: Client, processes: dict[str, str]) -> None:
    together, address = Together(client, refused_if_asked), next(iter(processes))
    futures = {text: together.submit(text, address) for text in ("one", "refuse two", "three")}
    with pytest.raises(UsageError, match="refuse two"):
        futures["refuse two"].result(timeout=60)
    assert [futures[text].result(timeout=60) for text in ("one", "three")] == ["one", "three"]


def test_what_is_cancelled_does_not_run_and_holds_nobody_up(
    client: Client, processes: dict[str, str], tmp_path: Path
) -> None:
    together = Together(client, held)
    first, second = processes
    runs = together.submit(str(tmp_path), first)
    wait_until(lambda: bool(list(tmp_path.glob("held.*"))), "a call runs")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    waits, other = together.submit(str(elsewhere), first), together.submit(str(tmp_path), second)
    wait_until(lambda: len(list(tmp_path.glob("held.*"))) == 2, "the other worker has the next one")
    assert waits.cancel()
    unsent = together.submit(str(elsewhere), second)
    assert unsent.cancel()
    (tmp_path / "go").touch()
    assert [future.result(timeout=60) for future in (runs, other)] == [str(tmp_path)] * 2
    wait_until(lambda: not client.futures, "nothing of the cancelled ones is left")
    assert list(elsewhere.iterdir()) == []


def test_a_worker_that_is_lost_takes_its_own_calls_alone(
    client: Client, processes: dict[str, str], tmp_path: Path
) -> None:
    together = Together(client, held)
    futures = {address: together.submit(str(tmp_path), address) for address in processes}
    wait_until(lambda: len(list(tmp_path.glob("held.*"))) == 2, "both run")
    lost, there = processes
    os.kill(int(processes[lost]), signal.SIGKILL)
    assert isinstance(futures[lost].exception(timeout=60), KilledWorker)
    (tmp_path / "go").touch()
    assert futures[there].result(timeout=60) == str(tmp_path)


def test_a_result_that_does_not_arrive_is_lost_and_says_so(
    client: Client, processes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*given: Any, **options: Any) -> Any:
        raise OSError("the scheduler does not answer")

    monkeypatch.setattr(client, "gather", gone)
    futures = [Together(client, where).submit("x", address) for address in processes]
    assert [type(future.exception(timeout=60)) for future in futures] == [CancelledError] * 2
