"""Two running servers with passwords, measured over TCP and compared; whatever happens, their databases are dropped."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import Installation, choose
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.report.markdown import render_markdown
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.stack import Postgres
from pgstrata.stack.journal import clean
from pgstrata.trial.events import silent
from pgstrata.trial.executor import KILL_HOOK
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.scheduler import run_campaign
from pgstrata.trial.scheduling import FixedBlocks
from pgstrata.trial.servers import server_runner

SECRET = "only-in-the-password-file"
ROLE = "strata"
FAST = ("fsync=off", "shared_buffers=16MB", "max_connections=20")


@dataclass
class Running:
    """Two servers on 127.0.0.1 that ask every client for a password."""

    psql: str
    ports: tuple[int, int]
    folder: Path

    def ask(self, port: int, query: str) -> str:
        argv = [self.psql, "-XAtq", f"postgresql://{ROLE}@127.0.0.1:{port}/postgres", "--command", query]
        env = {"PGPASSFILE": str(self.folder / "passwords"), "PATH": os.environ["PATH"]}
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30, env=env).stdout.strip()

    def databases(self) -> list[str]:
        query = "SELECT datname FROM pg_database WHERE datname LIKE 'pgstrata%'"
        return [name for port in self.ports for name in self.ask(port, query).split()]

    def write_campaign(self, role: str = ROLE) -> Path:
        stacks = [f"  at-{port}: {{server: 'postgresql://{role}@127.0.0.1:{port}/postgres'}}" for port in self.ports]
        places = ", ".join(f"'127.0.0.1:{port}'" for port in self.ports)
        file = self.folder / "servers.yaml"
        lines = [
            "stacks:",
            *stacks,
            f"on_servers: [{places}]",
            "workload: {scale: 1, clients: 2, duration: 1s, warmup: 1s, log: all}",
            "runs: {blocks: 2}",
        ]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def started(found: tuple[Installation, ...]) -> Iterator[Running]:
    local = LocalHost()
    user = run_user(local)
    installation = readable_installation(local, choose(found, Postgres()), user)
    local.close()
    folder = Path("/var/tmp") / f"test-servers-{os.getpid()}"
    folder.mkdir(mode=0o755)
    (folder / "secret").write_text(SECRET, encoding="utf-8")
    (folder / "secret").chmod(0o644)
    ports, servers = (_free_port(), _free_port()), []
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
    try:
        for port in ports:
            data = folder / str(port)
            data.mkdir()
            shutil.chown(data, user)
            init = [installation.program("initdb"), "--no-sync", "--auth=scram-sha-256", f"--username={ROLE}"]
            init += [f"--pwfile={folder}/secret", f"--pgdata={data}"]
            subprocess.run([*as_user, *init], check=True, capture_output=True, timeout=60, cwd="/")
            options = [*FAST, f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories="]
            argv = [
                installation.program("postgres"),
                "-D",
                str(data),
                *(word for one in options for word in ("-c", one)),
            ]
            with (folder / f"{port}.log").open("w") as log:
                servers.append(subprocess.Popen([*as_user, *argv], stderr=log, stdout=log, cwd="/"))
        passwords = folder / "passwords"
        passwords.write_text("".join(f"127.0.0.1:{port}:*:*:{SECRET}\n" for port in ports), encoding="utf-8")
        passwords.chmod(0o600)
        for port in ports:
            ready = [
                f"{installation.client_directory}/pg_isready",
                "--host=127.0.0.1",
                f"--port={port}",
                "--timeout=30",
            ]
            while subprocess.run(ready, capture_output=True, timeout=60, check=False).returncode != 0:
                assert all(server.poll() is None for server in servers)
        yield Running(f"{installation.client_directory}/psql", ports, folder)
    finally:
        for server in servers:
            server.terminate()
            server.wait(timeout=60)
        shutil.rmtree(folder)


@pytest.fixture
def running(started: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.setenv("PGPASSFILE", str(started.folder / "passwords"))
    return started


def run(host: LocalHost, campaign: Campaign, out: Path) -> None:
    interruption = Interruption()
    with (
        CampaignDirectory.create_or_open(out, campaign, "run") as directory,
        server_runner(host, campaign, directory, silent, interruption) as (runner, stacks),
    ):
        run_campaign(
            campaign,
            directory,
            {"": runner},
            FixedBlocks(stacks, 2),
            silent,
            observe=Observer("tps", "p99"),
            interruption=interruption,
        )


def test_two_servers_are_compared(host: LocalHost, running: Running, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(host, load_campaign(running.write_campaign()), out)
    data = read(out)
    names = {f"at-{port}" for port in running.ports}
    assert [trial.verdict.status for trial in data.trials] == ["ok"] * 4
    assert [{trial.stack.name for trial in data.trials[block : block + 2]} for block in (0, 2)] == [names] * 2
    for trial in data.trials:
        result = trial.cells[0].result
        assert result.transactions > 0
        assert result.percentiles_ms["p99"] > 0
        assert (result.wal_bytes or 0) > 0
        assert "checkpoint before the run: done" in {f"{row.what}: {row.actual}" for row in trial.attested}
    findings = judge(data)
    assert {stack.name for stack in findings.stacks if "not attested" in stack.labels} == names
    assert "not attested" in render_markdown(data, findings)
    assert running.databases() == []
    text = "".join(path.read_text(errors="replace") for path in out.rglob("*") if path.is_file())
    assert SECRET not in text


def test_a_killed_run_leaves_no_database(host: LocalHost, running: Running, tmp_path: Path) -> None:
    argv = [
        str(Path(sys.executable).with_name("pgstrata")),
        "run",
        str(running.write_campaign()),
        "--out",
        str(tmp_path / "out"),
    ]
    env = {**os.environ, KILL_HOOK: "4", "PGSTRATA_STATE_DIRECTORY": host.state_directory()}
    killed = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -9, killed.stderr
    (left,) = running.databases()
    assert any(line.endswith(f"dropped database {left}") for line in clean(host).lines)
    assert running.databases() == []


def test_what_cannot_log_in_is_refused(host: LocalHost, running: Running, tmp_path: Path) -> None:
    """A role without a password in the file, and one that may not make databases."""
    for number, (role, said) in enumerate({"nobody": "cannot log in to 127.0.0.1", "plain": "may not make"}.items()):
        if role == "plain":
            for port in running.ports:
                running.ask(port, f"CREATE ROLE plain LOGIN PASSWORD '{SECRET}'")
        with pytest.raises(PreflightError, match=said) as refused:
            run(host, load_campaign(running.write_campaign(role)), tmp_path / str(number))
        assert SECRET not in str(refused.value)
    assert running.databases() == []
