"""In front of a cluster: Pgpool-II sends reads to every node, PgBouncer serves many clients with few sessions."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from campaigning import nothing_left, run, run_directories, write_campaign
from following import not_followed
from pgstrata.host.capabilities import program_path
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Process
from pgstrata.postgres.pooler import SERVER_SESSIONS
from pgstrata.record.reader import read
from pgstrata.record.schema import CellResult
from pgstrata.trial.context import TrialContext
from pgstrata.trial.steps import measure

TRANSACTIONS = 200
"""Of each of the two clients."""
NODES = ("primary", "standby1", "standby2")
MANY, FEW = 30, 20
"""Clients, more than PgBouncer opens sessions, and transactions of each."""
LEAST_QUERY_BYTES = 20
"""Of a SELECT on the network, whatever it asks."""


def with_program(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(program_path(LocalHost(), name) is None, reason=f"{name} is not installed")


@with_program("pgpool")
def test_reads_are_balanced_and_writes_go_to_the_primary(place: Path) -> None:
    file = write_campaign(place, "cluster(3,ANY 1,pooler=pgpool)/tmpfs")
    file.write_text(
        file.read_text().replace("duration: 1,", f"transactions: {TRANSACTIONS}, script: [select-only, tpcb-like],")
    )
    assert run(file, place) == 0, (place / "log.txt").read_text()
    (trial,) = (place / "out" / "trials").iterdir()
    assert not_followed(trial) == []
    by_script = {cell.result.cell.script: cell.result for cell in read(place / "out").cells()}

    reading = by_script["select-only"]
    assert tuple(node.node for node in reading.nodes) == NODES
    reads, writes = counted(reading)
    assert reading.transactions == 2 * TRANSACTIONS
    assert all(reads[name] > reading.transactions / 10 for name in NODES), reads
    assert sum(reads.values()) > reading.transactions / 2
    assert set(writes.values()) == {0}
    for node in reading.nodes:
        assert node.received_bytes is not None
        assert node.received_bytes > LEAST_QUERY_BYTES * reads[node.node], f"{node.node} got what the pooler says"

    reads, writes = counted(by_script["tpcb-like"])
    assert writes["primary"] > 2 * by_script["tpcb-like"].transactions == 4 * TRANSACTIONS
    assert writes["standby1"] == writes["standby2"] == 0

    attested = json.loads((trial / "attested.json").read_text())
    for moment in ("before cell", "after cell"):
        found = {row["what"]: row["actual"] for row in attested if row["moment"] == moment}
        assert found["pooler primary"] == "up primary"
        assert found["pooler standby2"] == "up standby"
    recorded = b"".join(path.read_bytes() for path in (place / "out").rglob("*") if path.is_file())
    assert b"postgres:TEXT" not in recorded, "a password is on record"
    assert not run_directories(file, place)
    nothing_left(place)


@with_program("pgbouncer")
def test_few_sessions_of_the_primary_serve_many_clients(place: Path) -> None:
    file = write_campaign(place, "cluster(2,ANY 1,pooler=pgbouncer)/tmpfs")
    asked = f"transactions: {FEW}, script: tpcb-like,"
    file.write_text(file.read_text().replace("duration: 1,", asked).replace("clients: 2,", f"clients: {MANY},"))
    sessions = place / "sessions"

    def counting(context: TrialContext, process: Process, timeout_s: float) -> int:
        count = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'pgbench'"
        most = 0
        while process.poll() is None:
            with context.host.looking():
                most = max(most, int(context.server.sql(count)[0]["n"]))
        sessions.write_text(str(most))
        return process.wait(timeout_s)

    around = mock.patch.object(measure, "wait_for_run", counting)
    assert run(file, place, around=around) == 0, (place / "log.txt").read_text()
    assert int(sessions.read_text()) <= SERVER_SESSIONS
    (cell,) = read(place / "out").cells()
    assert cell.result.transactions == MANY * FEW
    assert {(node.reads, node.writes) for node in cell.result.nodes} == {(None, None)}
    (trial,) = (place / "out" / "trials").iterdir()
    attested = json.loads((trial / "attested.json").read_text())
    found = {row["actual"] for row in attested if row["what"] == "pooler primary"}
    assert found == {f"port 5432, {SERVER_SESSIONS} sessions, transaction"}
    nothing_left(place)


def counted(result: CellResult) -> tuple[dict[str, int], dict[str, int]]:
    """Reads and writes by node."""
    reads = {node.node: node.reads for node in result.nodes if node.reads is not None}
    writes = {node.node: node.writes for node in result.nodes if node.writes is not None}
    assert tuple(reads) == tuple(writes) == NODES
    return reads, writes
