"""A cluster of two from its namespaces to its verdict: done as planned, attested, and nothing left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigning import nothing_left, reachable, run, run_directories, write_campaign
from following import not_followed
from pgstrata.record.reader import read


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


def test_a_cluster_is_built_attested_measured_and_taken_down(place: Path) -> None:
    file = write_campaign(place, "cluster(2,ANY 1,remote_apply,bandwidth_mbit=1000)/tmpfs@archive=tmpfs")
    assert run(file, place) == 0, (place / "log.txt").read_text()
    (trial,) = (place / "out" / "trials").iterdir()
    assert not_followed(trial) == []
    attested = json.loads((trial / "attested.json").read_text())
    found = {(row["what"], row["actual"]) for row in attested if row["moment"] == "after cell"}
    assert {
        ("cluster standby1 state", "streaming"),
        ("cluster standby1 sync_state", "quorum"),
        ("cluster standby1 address", "198.18.0.3"),
        ("cluster archive", "0 failures"),
        ("network standby1 addresses", "127.0.0.1 198.18.0.3"),
        ("network driver queue", "tbf 125000000 B/s"),
        ("PostgreSQL synchronous_commit", "remote_apply"),
        ("standby1 PostgreSQL listen_addresses", "198.18.0.3"),
    } <= found
    (cell,) = read(place / "out").cells()
    assert cell.result.transactions > 0
    primary, follower = cell.result.nodes
    assert (primary.node, follower.node) == ("primary", "standby1")
    assert primary.cpu_s is not None
    assert primary.cpu_s > 0
    assert follower.received_bytes is not None
    assert cell.result.wal_bytes is not None
    assert follower.received_bytes > cell.result.wal_bytes, "all WAL went over the network"
    assert follower.disk_written_bytes is None, "it is in memory"
    assert follower.replay_lag_ms is not None
    assert (trial / "raw" / "postgresql-standby1.log").exists()
    recorded = b"".join(path.read_bytes() for path in (place / "out").rglob("*") if path.is_file())
    assert b"SCRAM-SHA-256" not in recorded, "a password's verifier is on record"
    assert b"pgstrata_standby:" not in recorded, "a password is on record"
    assert not run_directories(file, place)
    nothing_left(place)
