"""Clusters that cannot be had are refused by name, and jobs of Slurm and PBS are what they should be."""

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
from pgstrata.fleet.clusters import connected, described_workers, jobs_cluster, require_dask
from pgstrata.fleet.opening import refuse_own_files
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.dask_cluster import DaskCluster, Pbs, Slurm


@pytest.mark.parametrize("missing", ["distributed", "cryptography"])
def test_without_the_extra_the_package_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    pytest.importorskip("distributed", reason="needs Dask: make setup")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PreflightError, match=f"need the package {missing}") as refused:
        require_dask()
    assert refused.value.hint == "pip install 'pgstrata[dask]'"


def test_files_of_ones_own_are_not_sent() -> None:
    asked = {"name": "c", "stacks": [{"name": "ext4", "data": {"fs": {"kind": "ext4"}}}], "hosts": ["dask:local"]}
    refuse_own_files(Campaign.model_validate(asked))
    with pytest.raises(UsageError, match=r"/work/own\.sql, which is not sent"):
        refuse_own_files(Campaign.model_validate({**asked, "workload": {"script": ["/work/own.sql"]}}))


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

    def run(self, work: object, on_error: str) -> dict[str, object]:
        return {"tls://10.0.0.7:4000": self._answer}


@pytest.mark.parametrize(
    ("answer", "said", "hint"),
    [
        (None, "no worker came", "firewall keep them from the scheduler"),
        (OSError("timed out"), r"worker tls://10\.0\.0\.7:4000 has found the scheduler, but", "one direction through"),
        (ModuleNotFoundError("No module named 'pgstrata'"), "cannot run pgstrata: No module", "pip install"),
    ],
)
def test_a_firewall_and_a_worker_without_pgstrata_are_told(answer: object, said: str, hint: str) -> None:
    pytest.importorskip("distributed", reason="needs Dask: make setup")
    client: Any = OneWorker(answer)
    with pytest.raises(PreflightError, match=said) as refused:
        described_workers(client)
    assert hint in refused.value.hint


JOB: dict[str, Any] = {
    "jobs": 1,
    "queue": "big",
    "account": "db",
    "cores": 8,
    "memory": "32GB",
    "python": "/opt/python",
}


def test_the_job_of_slurm_has_a_node_to_itself_and_tls(tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue", reason="needs Dask: make setup")
    job = job_of(DaskCluster(slurm=Slurm(**JOB, shared=str(tmp_path))))
    for line in ("-p big", "-A db", "--cpus-per-task=8", "--exclusive"):
        assert f"#SBATCH {line}\n" in job
    check_worker_of(job, tmp_path)


@pytest.mark.parametrize(
    ("more", "resources"),
    [({}, "select=1:ncpus=8:mem=30GB"), ({"resource_spec": "select=1:ncpus=4:model=x"}, "select=1:ncpus=4:model=x")],
)
def test_the_job_of_pbs_has_a_node_to_itself_and_tls(tmp_path: Path, more: dict[str, Any], resources: str) -> None:
    pytest.importorskip("dask_jobqueue", reason="needs Dask: make setup")
    job = job_of(DaskCluster(pbs=Pbs(**JOB, **more, shared=str(tmp_path))))
    for line in ("-q big", "-A db", f"-l {resources}", "-l walltime=04:00:00", "-l place=exclhost"):
        assert f"#PBS {line}\n" in job
    check_worker_of(job, tmp_path)


def job_of(cluster: DaskCluster) -> str:
    with jobs_cluster(cluster, submitted=False) as made:
        return str(made.job_script())


def check_worker_of(job: str, shared: Path) -> None:
    command = job.splitlines()[-1]
    for option in ("/opt/python -m", "tls://", "--nthreads 1", "--tls-key", "pgstrata.fleet.quiet.QuietWorker"):
        assert option in command
    assert all(path.stat().st_mode & 0o077 == 0 for path in shared.iterdir())
