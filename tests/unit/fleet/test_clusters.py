"""Clusters that cannot be had are refused by name."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgstrata.errors import PreflightError, UsageError
from pgstrata.fleet import clusters
from pgstrata.fleet.clusters import connected, require_dask
from pgstrata.fleet.opening import refuse_own_files
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.dask_cluster import DaskCluster


@pytest.mark.parametrize("missing", ["distributed", "cryptography"])
def test_without_the_extra_the_package_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    pytest.importorskip("distributed", reason="needs Dask: make setup")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PreflightError, match=f"needs the package {missing}") as refused:
        require_dask()
    assert refused.value.hint == f"{sys.executable} -m pip install 'pgstrata[dask]'"


def test_files_of_ones_own_are_not_sent() -> None:
    asked = {"name": "c", "stacks": [{"name": "ext4", "data": {"fs": {"kind": "ext4"}}}], "hosts": ["dask:local"]}
    refuse_own_files(Campaign.model_validate(asked))
    with pytest.raises(UsageError, match=r"/srv/own\.sql, which is not sent"):
        refuse_own_files(Campaign.model_validate({**asked, "workload": {"script": ["/srv/own.sql"]}}))


class TestCertificates:
    @pytest.fixture(autouse=True)
    def _dask(self) -> None:
        pytest.importorskip("distributed", reason="needs Dask: make setup")

    def test_they_must_be_there_and_nobody_elses(self, tmp_path: Path) -> None:
        cluster = DaskCluster(address="tls://127.0.0.1:1", tls=str(tmp_path))
        with pytest.raises(PreflightError, match=r"ca\.pem is missing"), connected(cluster):
            pass
        for name in ("ca", "cert", "key"):
            (tmp_path / f"{name}.pem").write_text("x")
        (tmp_path / "key.pem").chmod(0o644)
        with pytest.raises(PreflightError, match="others may read") as refused, connected(cluster):
            pass
        assert refused.value.hint.startswith("chmod 600")

    def test_dask_must_know_some(self) -> None:
        with (
            pytest.raises(PreflightError, match="no certificates"),
            connected(DaskCluster(address="tls://127.0.0.1:1")),
        ):
            pass


@pytest.fixture
def plain_server() -> Iterator[int]:
    """Listens without TLS, as a scheduler would that somebody started in a hurry."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1)
                    connection.sendall(b"not TLS at all, and long enough to be read as a record")

        answering = threading.Thread(target=serve)
        answering.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        answering.join()


def test_a_scheduler_without_tls_is_refused(tmp_path: Path, plain_server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="needs Dask: make setup")
    from dask_processes import write_certificates

    monkeypatch.setattr(clusters, "CONNECT_S", 0.5)
    cluster = DaskCluster(address=f"tls://127.0.0.1:{plain_server}", tls=str(write_certificates(tmp_path / "tls")))
    with pytest.raises(PreflightError, match="cannot be reached") as refused, connected(cluster):
        pass
    assert "with TLS" in refused.value.hint


class OneWorker:
    """A client whose one worker answers so."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def wait_for_workers(self, count: int, timeout: float) -> None:
        if self._answer is None:
            raise TimeoutError

    def ncores(self) -> dict[str, int]:
        return {"tls://10.0.0.7:4000": 1}

    def ask(self, workers: list[str], work: object) -> dict[str, object]:
        return dict.fromkeys(workers, self._answer)


@pytest.mark.parametrize(
    ("answer", "said", "hint"),
    [
        (None, "no worker came", "firewall keep them from the scheduler"),
        (OSError("timed out"), r"worker tls://10\.0\.0\.7:4000 has found the scheduler, but", "one direction through"),
        (ModuleNotFoundError("No module named 'pgstrata'"), "cannot run pgstrata: No module", "pip install"),
        (b"{}", r"worker tls://10\.0\.0\.7:4000 gave a wrong answer: 6 errors", "another program"),
        (7, r"worker tls://10\.0\.0\.7:4000 gave a wrong answer: int instead of text", "another program"),
    ],
)
def test_a_firewall_and_a_worker_without_pgstrata_are_told(answer: object, said: str, hint: str) -> None:
    pytest.importorskip("distributed", reason="needs Dask: make setup")
    from pgstrata.fleet.cluster_backend import described_workers

    client: Any = OneWorker(answer)
    with pytest.raises(PreflightError, match=said) as refused:
        described_workers(client)
    assert hint in refused.value.hint
