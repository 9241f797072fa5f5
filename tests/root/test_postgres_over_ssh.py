"""The same server, run and probes on a host behind ssh (a real sshd on loopback)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from loopback_sshd import LoopbackSshd
from pgstrata.errors import PreflightError
from pgstrata.postgres.binaries import choose, discover
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.probe.parse import device_rows, parse_lines, postgres_rows
from pgstrata.probe.start import POSTGRES, SAMPLES, plan_host_probe, plan_postgres_probe, start_probes
from pgstrata.spec.stack import Postgres
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.pgbench import plan_init, plan_run
from pgstrata.workload.pgbench_output import parse_progress, parse_result
from pgstrata.workload.target import Target


def test_a_run_on_a_host_behind_ssh(sshd: LoopbackSshd) -> None:
    host = sshd.connect()
    try:
        chosen = choose(discover(host), Postgres(source="system"))
    except PreflightError as error:
        pytest.skip(str(error))
    user = run_user(host)
    installation = readable_installation(host, chosen, user)
    with tempfile.TemporaryDirectory(prefix="pgstrata-test-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        server = Server(host, installation, user, ServerDirectories(f"{name}/data"), marker=folder.name)
        try:
            server.init(options=("--no-sync",))
            server.configure({"fsync": "off", "shared_buffers": "16MB"})
            server.start()
            assert all(a.holds for a in server.attest_settings())
            target = Target(
                installation.client_directory, installation.client_major, server.run_directory, server.port, user
            )
            host.run(plan_init(target, 1))
            status = host.status(name)
            assert status is not None
            device = status.device
            postgres_probe = plan_postgres_probe(server.psql(), installation.major, user=user)
            probes = start_probes(host, name, plan_host_probe(f"{device[0]}:{device[1]}"), postgres_probe)
            done = host.run(
                plan_run(target, Cell(script="simple-update", scale=1, clients=2), Workload(duration=3), seed=1)
            )
            probes.stop()
            assert parse_result(done.stdout).tps > 0
            assert parse_progress(done.stderr).rows
            samples = parse_lines(host.read_text(f"{name}/{SAMPLES}"))
            assert len(device_rows(samples, {f"{device[0]}:{device[1]}": "data"}, 0.0)) >= 3
            rows = postgres_rows(parse_lines(host.read_text(f"{name}/{POSTGRES}")), 0.0)
            assert rows[-1]["xact_commit"] > 0
            assert json.loads(host.read_text(f"{name}/{SAMPLES}").splitlines()[0])["disk"]
        finally:
            server.crash_stop()
            host.remove(server.run_directory)
            host.close()
