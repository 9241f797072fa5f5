"""PostgreSQL 13 to 18: a server, its settings, a small pgbench with probes beside it, a crash, a golden copy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import Installation, choose, discover
from pgstrata.postgres.database import plan_checkpoint, prewarm, wal_position_bytes
from pgstrata.postgres.fetch import fetch
from pgstrata.postgres.golden import read_golden, restore_golden, save_golden
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.probe.parse import checkpoint_rows, parse_lines, postgres_rows, wait_rows
from pgstrata.probe.start import POSTGRES, plan_host_probe, plan_postgres_probe, start_probes
from pgstrata.record.schema import POSTGRES_COLUMNS
from pgstrata.spec.stack import Postgres
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.pgbench import plan_init, plan_run
from pgstrata.workload.pgbench_output import parse_init, parse_progress, parse_result
from pgstrata.workload.target import Target


@pytest.fixture(scope="module", params=[13, 14, 15, 16, 17, 18])
def installation(request: pytest.FixtureRequest) -> Installation:
    host = LocalHost()
    wanted = Postgres(major=request.param)
    try:
        chosen = choose(discover(host), wanted)
    except PreflightError:
        fetch(host, request.param)
        chosen = choose(discover(host), wanted)
    return readable_installation(host, chosen, run_user(host))


@pytest.fixture
def server(installation: Installation, folder: Path) -> Iterator[Server]:
    host = LocalHost()
    made = Server(host, installation, run_user(host), ServerDirectories(f"{folder}/data"), marker=folder.name)
    made.init(data_checksums=True, options=("--no-sync",))
    made.configure({"shared_buffers": "64MB", "checkpoint_timeout": "30s", "fsync": "off"})
    made.start()
    made.execute("CREATE DATABASE bench;")
    yield made
    made.crash_stop()
    host.remove(made.run_directory)


def target_of(server: Server) -> Target:
    i = server.installation
    return Target(i.client_directory, i.client_major, server.run_directory, server.port, server.user, database="bench")


def test_settings_hold(server: Server) -> None:
    attested = server.attest_settings()
    assert [a for a in attested if not a.holds] == []
    assert {a.what: a.actual for a in attested}["checkpoint_timeout"] == "30"
    assert server.value("SELECT current_setting('data_checksums') AS value") == "on"


def test_a_run_with_probes(server: Server, folder: Path) -> None:
    host, target = server.host, target_of(server)
    assert parse_init(host.run(plan_init(target, 1)).stderr).phases_s
    assert prewarm(server, "bench") in ("pg_prewarm", "sequential read")
    wal_before = wal_position_bytes(server)
    outputs = folder / "out"
    outputs.mkdir()
    major = server.installation.major
    postgres_probe = plan_postgres_probe(server.psql("bench"), major, user=server.user)
    probes = start_probes(host, str(outputs), plan_host_probe(""), postgres_probe)
    origin = time.time()
    try:
        done = host.run(plan_run(target, Cell(script="tpcb-like", scale=1, clients=4), Workload(duration=4), seed=1))
        host.run(plan_checkpoint(server))
        time.sleep(1.2)
    finally:
        probes.stop()
    result = parse_result(done.stdout)
    assert result.tps > 0
    assert len(parse_progress(done.stderr).rows) >= 3

    samples = parse_lines((outputs / POSTGRES).read_text())
    rows = postgres_rows(samples, origin)
    assert set(rows[0]) == set(POSTGRES_COLUMNS)
    last = rows[-1]
    assert 0 < last["wal_bytes"] <= wal_position_bytes(server) - wal_before
    assert last["xact_commit"] >= result.transactions * 0.8
    assert last["checkpoints_requested"] >= 1
    assert last["buffers_checkpoint"] > 0
    assert (last["io_writes"] is None) == (major < 16)
    assert any(row["sessions"] > 0 for row in wait_rows(samples, origin))

    checkpoints = [row for row in checkpoint_rows(server.read_log(), origin) if row["kind"] == "requested"]
    assert checkpoints[-1]["buffers_written"] > 0
    assert 0 <= checkpoints[-1]["start_t_s"] <= checkpoints[-1]["end_t_s"] <= time.time() - origin


def test_crash_recovery_and_golden_copy(server: Server, folder: Path) -> None:
    host = server.host
    host.run(plan_init(target_of(server), 1))
    server.crash_stop()
    server.start()
    assert server.value("SELECT count(*) AS n FROM pgbench_accounts", "bench") == 100000
    server.stop()
    save_golden(host, server.layout, f"{folder}/golden", {}, server.user)
    golden = read_golden(host, f"{folder}/golden")
    assert golden is not None
    layout = ServerDirectories(f"{folder}/copy", f"{folder}/wal")
    copy = Server(host, server.installation, server.user, layout)
    try:
        copy.make_directories()
        restore_golden(host, golden, layout, copy.user)
        copy.configure({"shared_buffers": "64MB", "fsync": "off"})
        copy.start()
        assert copy.value("SELECT count(*) AS n FROM pgbench_accounts", "bench") == 100000
    finally:
        copy.crash_stop()
        host.remove(copy.run_directory)
