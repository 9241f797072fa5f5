"""Clusters with nodes on several hosts: built, attested, measured, taken down; killed in the middle; a host lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pytest

from awaiting import wait_until
from campaigning import clean, environment, nothing_left, reachable, run, run_in_fork, write_campaign
from far_hosts import SSHD, FarHost, far_hosts
from following import not_followed
from pgstrata.record.reader import read

pytestmark = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh-keygen") is None, reason="apt-get install openssh-server openssh-client"
)

STACK = "cluster(3,ANY 1,bandwidth_mbit=1000)/tmpfs@standby1.host={}@standby2.host={}@standby2=ext4"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


@pytest.fixture
def far(tmp_path: Path) -> Iterator[tuple[dict[str, FarHost], str]]:
    with far_hosts(tmp_path / "far", ("db2", "db3")) as hosts:
        yield hosts


def _campaign(place: Path, hosts: Mapping[str, FarHost]) -> Path:
    return write_campaign(place, STACK.format(*(host.target for host in hosts.values())))


def left_on(hosts: Mapping[str, FarHost]) -> list[str]:
    return [f"{name}: {one}" for name, host in hosts.items() for one in host.remains()]


@pytest.mark.parametrize("version", [4, 6])
def test_nodes_on_other_hosts_are_attested_measured_and_taken_down(
    version: Literal[4, 6], place: Path, tmp_path: Path
) -> None:
    with far_hosts(tmp_path / "far", ("db2", "db3"), version) as (hosts, path):
        _measured_and_taken_down(place, hosts, path)
        assert left_on(hosts) == []


def _measured_and_taken_down(place: Path, hosts: dict[str, FarHost], path: str) -> None:
    file = _campaign(place, hosts)
    assert run(file, place, PATH=path) == 0, (place / "log.txt").read_text()
    (trial,) = (place / "out" / "trials").iterdir()
    assert not_followed(trial) == []
    attested = json.loads((trial / "attested.json").read_text())
    found = {(row["what"], row["actual"]) for row in attested if row["moment"] == "after cell"}
    assert {
        ("cluster standby1 address", "198.18.0.3"),
        ("cluster standby2 address", "198.18.0.4"),
        ("cluster standby1 sync_state", "quorum"),
        ("cluster standby2 state", "streaming"),
        ("network standby2 addresses", "127.0.0.1 198.18.0.4"),
        ("network standby1 queue", "tbf 125000000 B/s"),
        ("standby2 PostgreSQL listen_addresses", "198.18.0.4"),
    } <= found
    ran_on = {
        (event["host"], Path(event["argv"][-1]).name)
        for line in (trial / "events.jsonl").read_text().splitlines()
        if (event := json.loads(line))["event"] == "command" and "fdb" in event["argv"]
    }
    first, second = hosts.values()
    assert {
        ("local", first.address),
        ("local", second.address),
        (first.target, second.address),
        (second.target, first.address),
    } <= ran_on
    (cell,) = read(place / "out").cells()
    primary, *standbys = cell.result.nodes
    assert (primary.host, [node.host for node in standbys]) == ("", [host.target for host in hosts.values()])
    assert cell.result.wal_bytes is not None
    for node in standbys:
        assert node.cpu_s is not None
        assert node.cpu_s > 0
        assert node.received_bytes is not None
        assert node.received_bytes > cell.result.wal_bytes, "all WAL came by its own link"
    assert [node.disk_written_bytes is None for node in standbys] == [True, False]
    assert (trial / "raw" / "postgresql-standby2.log").exists()
    recorded = b"".join(path.read_bytes() for path in (place / "out").rglob("*") if path.is_file())
    assert b"SCRAM-SHA-256" not in recorded, "a password's verifier is on record"
    assert b"pgstrata_standby:" not in recorded, "a password is on record"
    assert left_on(hosts) == []
    nothing_left(place)


def test_after_a_kill_each_host_is_cleaned_by_its_own_journal(place: Path, far: tuple[dict[str, FarHost], str]) -> None:
    hosts, path = far
    assert run(_campaign(place, hosts), place, PATH=path, PGSTRATA_KILL_AFTER_STEP="30") == -9
    assert all(host.remains() for host in hosts.values())
    assert clean(place) == 0, (place / "log.txt").read_text()
    nothing_left(place)
    for host in hosts.values():
        argv = ["clean", "--host", host.target]
        assert run_in_fork(argv, {**environment(place), "PATH": path}, place / "log.txt") == 0, (
            place / "log.txt"
        ).read_text()
    assert left_on(hosts) == []


def test_a_host_that_is_lost_in_a_run_sets_the_trial_aside_until_it_is_back(
    place: Path, far: tuple[dict[str, FarHost], str]
) -> None:
    hosts, path = far
    file = _campaign(place, hosts)
    lost = hosts["db3"]
    pid = os.fork()
    if not pid:
        code = 70
        try:
            code = run(file, place, PATH=path)
        finally:
            os._exit(code)
    wait_until(lambda: _begun(place, "attest before"), "a run")
    lost.kill()
    lost.start()
    _, status = os.waitpid(pid, 0)
    said = (place / "log.txt").read_text()
    assert os.waitstatus_to_exitcode(status) == 0, said
    (given_up,) = (place / "out" / "interrupted").iterdir()
    events = [json.loads(line) for line in (given_up / "events.jsonl").read_text().splitlines()]
    assert any(f"connection to {lost.target} was lost" in event.get("error", "") for event in events)
    (trial,) = (place / "out" / "trials").iterdir()
    assert json.loads((trial / "verdict.json").read_text())["status"] == "ok"
    assert left_on(hosts) == []
    nothing_left(place)


def _begun(place: Path, step: str) -> bool:
    return any(step in path.read_text() for path in (place / "out").rglob("events.jsonl"))


def test_where_no_packet_comes_through_the_trial_fails_before_anything_is_loaded(
    place: Path, far: tuple[dict[str, FarHost], str]
) -> None:
    hosts, path = far
    nobody = hosts["db2"].address.rpartition(".")[0] + ".99"
    stack = f"cluster(2)/tmpfs@standby1.host={hosts['db2'].target}@standby1.address={nobody}"
    file = write_campaign(place, stack)
    argv = ["plan", str(file), "--out", str(place / "out"), "--commands"]
    assert run_in_fork(argv, {**environment(place), "PATH": path}, place / "plan.txt") == 0
    planned = (place / "plan.txt").read_text()
    assert f"[{hosts['db2'].target}] ip link add pgstrata-vxlan" in planned
    assert f"{nobody} and {nobody.rpartition('.')[0]}.1: WAL and the base backup travel there unencrypted" in planned
    assert run(file, place, PATH=path) != 0
    (trial,) = (place / "out" / "trials").iterdir()
    reason = json.loads((trial / "verdict.json").read_text())["reason"]
    assert "network standby1 round trip: expected at least 0 ms, found not answered" in reason
    assert not (trial / "load.json").exists()
    assert left_on(hosts) == []
    nothing_left(place)
