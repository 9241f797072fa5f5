"""A load whose program runs on another host: an sshd in namespaces of its own, which reaches the server by TCP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigning import clean, nothing_left, reachable, run, write_campaign
from far_hosts import SSHD, FarHost, far_hosts
from following import not_followed
from pgstrata.host.capabilities import program_path
from pgstrata.host.local import LocalHost
from pgstrata.record.reader import read

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        SSHD is None or shutil.which("ssh-keygen") is None, reason="apt-get install openssh-server openssh-client"
    ),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


@pytest.fixture
def loadgen(tmp_path: Path) -> Iterator[tuple[FarHost, str]]:
    with far_hosts(tmp_path / "far", ("loadgen",)) as (hosts, path):
        yield hosts["loadgen"], path


def _campaign(place: Path, client: str, **workload: str) -> Path:
    file = write_campaign(place, "tmpfs")
    further = "".join(f", {key}: {value}" for key, value in workload.items())
    file.write_text(file.read_text().replace("rate: 100", f"client: {client}{further}"))
    return file


def _ran(trial: Path) -> list[tuple[str, list[str]]]:
    events = map(json.loads, (trial / "events.jsonl").read_text().splitlines())
    return [(event["host"], event["argv"]) for event in events if event["event"] == "command"]


def test_pgbench_runs_on_its_host_and_the_server_admits_it_alone(place: Path, loadgen: tuple[FarHost, str]) -> None:
    host, path = loadgen
    file = _campaign(place, host.target, log="all")
    assert run(file, place, PATH=path) == 0, (place / "log.txt").read_text()
    (trial,) = (place / "out" / "trials").iterdir()
    assert not_followed(trial) == []
    drove = {name for name, argv in _ran(trial) if any(word.endswith("/pgbench") for word in argv)}
    served = {name for name, argv in _ran(trial) if any(word.endswith("/pg_ctl") for word in argv)}
    assert (drove, served) == ({host.target}, {"local"})
    (found,) = read(place / "out").trials
    (listening,) = (
        row for row in found.attested if row.what.endswith("listen_addresses") and row.moment == "after cell"
    )
    assert listening.actual.startswith("10.211.")
    assert found.facts is not None
    assert found.facts.checked[f"machine id of {host.target}"] != found.facts.checked["machine id"]
    assert f"PostgreSQL programs of {host.target}" in found.facts.told
    (cell,) = found.cells
    assert cell.result.transactions > 0
    assert cell.result.percentiles_ms["p99"] > 0
    assert cell.result.client is not None
    assert cell.result.client.host == host.target
    assert cell.result.client.round_trip_ms is not None
    assert cell.result.client.processors > 0
    recorded = b"".join(one.read_bytes() for one in (place / "out").rglob("*") if one.is_file())
    assert b"SCRAM-SHA-256" not in recorded, "a password's verifier is on record"
    assert b"*:*:*:postgres:" not in recorded, "a password is on record"
    assert host.remains() == []
    nothing_left(place)


@pytest.mark.skipif(program_path(LocalHost(), "sysbench") is None, reason="sysbench is not installed")
def test_sysbench_loads_and_runs_from_there(place: Path, loadgen: tuple[FarHost, str]) -> None:
    host, path = loadgen
    file = _campaign(place, host.target, driver="sysbench")
    assert run(file, place, PATH=path) == 0, (place / "log.txt").read_text()
    (trial,) = (place / "out" / "trials").iterdir()
    assert {name for name, argv in _ran(trial) if "sysbench" in argv} == {host.target}
    assert read(place / "out").trials[0].cells[0].result.transactions > 10
    assert host.remains() == []
    nothing_left(place)


def test_an_address_of_ipv6_and_a_kill_that_leaves_folders_there(place: Path, tmp_path: Path) -> None:
    """The killed run is undone on the client's host by the journal there, and the next one ends well."""
    with far_hosts(tmp_path / "far", ("loadgen",), 6) as (hosts, path):
        host = hosts["loadgen"]
        file = _campaign(place, f'"{host.target}"')
        assert run(file, place, PATH=path, PGSTRATA_KILL_AFTER_STEP="12") == -9
        assert host.remains() != []
        assert clean(place) == 0, (place / "log.txt").read_text()
        assert run(file, place, PATH=path) == 0, (place / "log.txt").read_text()
        assert read(place / "out").trials[0].cells[0].result.transactions > 0
        assert host.remains() == []
        nothing_left(place)


def test_a_program_that_its_host_lacks_is_named_before_anything_is_built(
    place: Path, loadgen: tuple[FarHost, str]
) -> None:
    host, path = loadgen
    file = _campaign(place, host.target, driver="{kind: go-tpc, program: /opt/none/go-tpc}")
    assert run(file, place, PATH=path) != 0
    said = (place / "log.txt").read_text()
    assert f"the driver go-tpc cannot run on {host.target}: /opt/none/go-tpc is not installed" in said
    assert list((place / "out").glob("trials/*")) == []
    assert host.remains() == []
    nothing_left(place)


def test_the_server_listens_on_no_public_address(place: Path, loadgen: tuple[FarHost, str]) -> None:
    host, path = loadgen
    assert run(_campaign(place, f"{{host: '{host.target}', address: 203.0.113.9}}"), place, PATH=path) != 0
    assert "address 203.0.113.9 is public" in (place / "log.txt").read_text()
    nothing_left(place)
