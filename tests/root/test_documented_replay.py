"""The way from a dump and a log to a verdict, as docs/workloads.md shows it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from servers import ready

from campaigning import environment, nothing_left, reachable, run_in_fork
from pgstrata.host.delivery import LOAD_PROGRAM, OWN
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command
from pgstrata.postgres.server import Server
from pgstrata.record.reader import read

pytestmark = pytest.mark.skipif(not OWN.with_name(LOAD_PROGRAM).exists(), reason="strata-load is not built")
PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"
TITLE = "## From a dump and yesterday's log to a verdict"
LOGGED = {"log_min_duration_statement": "0", "log_line_prefix": "%m [%p] %q%u@%d "}


def documented_commands() -> list[list[str]]:
    """The commands of the section, as they are written."""
    section = PAGE.read_text(encoding="utf-8").partition(TITLE)[2].partition("\n## ")[0]
    return [shlex.split(line) for line in section.splitlines() if line.startswith("    pgstrata ")]


def make_dump_and_log(host: LocalHost, server: Server, place: Path) -> None:
    """A shop's database, dumped; then the log of what happened to it."""

    def call(program: str, *words: str) -> str:
        where = ("--host", server.run_directory, "--username", "postgres")
        path = server.installation.program(program)
        return host.run(Command((path, *where, *words), user=server.user, timeout_s=120, cwd="/")).stdout

    ready(server)
    call("createdb", "shop")
    call("pgbench", "--initialize", "--quiet", "--scale", "1", "shop")
    (place / "shop.dump").touch()
    shutil.chown(place / "shop.dump", server.user)
    call("pg_dump", "--format", "custom", "--file", str(place / "shop.dump"), "shop")
    for name, value in LOGGED.items():
        server.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    server.value("SELECT pg_reload_conf() AS done")
    before = Path(server.log_file).stat().st_size
    call("pgbench", "--client", "3", "--time", "3", "--rate", "50", "--no-vacuum", "shop")
    server.stop()
    (place / "postgresql.log").write_bytes(Path(server.log_file).read_bytes()[before:])


@pytest.mark.parametrize("installation", [15], indirect=True)
def test_the_five_commands_of_the_page_lead_to_a_verdict(
    host: LocalHost, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = documented_commands()
    assert len(commands) == 5
    with reachable(tmp_path) as place:
        make_dump_and_log(host, server, place)
        monkeypatch.chdir(place)
        for number, (_, *argv) in enumerate(commands):
            printed = place / f"printed-{number}"
            code = run_in_fork(argv, environment(place), printed)
            assert code == 0, (argv, printed.read_text())
        nothing_left(place)
        data = read(place / "out" / "quick-ext4-xfs")
        told = [(place / f"printed-{number}").read_text() for number in range(5)]
        page = (place / "out" / "quick-ext4-xfs" / "report.html").read_text()
    assert "statements of the database shop in 4 sessions" in told[0]
    assert data.campaign.goal.primary == "latency_avg_ms"
    assert [trial.verdict.status for trial in data.trials] == ["ok"] * 6
    assert "answer: " in told[2]
    assert {trial.trial.stack for trial in data.trials} == {"ext4", "xfs"}
    assert "update pgbench_accounts" in page
    assert told[4].count("held in 20 states") == 2
