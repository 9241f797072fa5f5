"""Real servers: their logs are captured and replayed, and mixes are made from pg_stat_statements."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from servers import ready

from pgstrata.capture.logs import Captured, plan_capture, run_capture
from pgstrata.capture.statements import make_mix, read_statements, write_mix
from pgstrata.host.delivery import LOAD_PROGRAM, OWN
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command
from pgstrata.postgres.server import Server
from pgstrata.record.reader import read
from small_campaigns import QUICK, campaign, run, stack

pytestmark = pytest.mark.skipif(not OWN.with_name(LOAD_PROGRAM).exists(), reason="strata-load is not built")
LOGGED = {"log_min_duration_statement": "0"}


@dataclass
class Captures:
    """A server with pgbench's tables that logs its statements, and what is captured of them."""

    host: LocalHost
    server: Server
    place: Path
    """Of the server's user, too."""
    folder: Path

    def user(self, program: str, *words: str) -> str:
        path = self.server.installation.program(program)
        where = ("--host", self.server.run_directory, "--username", "postgres")
        call = Command((path, *where, *words, "postgres"), user=self.server.user, timeout_s=120, cwd="/")
        return self.host.run(call).stdout

    def capture(self) -> Captured:
        log = Path(self.server.log_file)
        shutil.copy(log, self.folder / "x.log")
        os.truncate(log, 0)
        call = plan_capture(
            [self.folder / "x.log"], self.folder / "my.load", prefix=None, database=None, literals="keep"
        )
        return run_capture(self.host, call)

    def plan_replay(self, *options: str, user: str = "postgres") -> Command:
        """A call as the server's user, who may not see the folders of the tests."""
        shutil.copy(self.folder / "my.load", self.place / "my.load")
        shutil.copy(OWN.with_name(LOAD_PROGRAM), self.place / LOAD_PROGRAM)
        (self.place / "my.load").chmod(0o644)
        where = ("--host", self.server.run_directory, "--username", user)
        argv = (f"{self.place}/{LOAD_PROGRAM}", "replay", f"{self.place}/my.load", *where, *options)
        return Command(argv, user=self.server.user, timeout_s=120, cwd="/")

    def replay(self, *options: str) -> list[dict[str, Any]]:
        done = self.host.run(self.plan_replay(*options))
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def captures(host: LocalHost, server: Server, folder: Path, tmp_path: Path) -> Captures:
    ready(server, **LOGGED, max_connections="60")
    made = Captures(host, server, folder, tmp_path)
    made.user("pgbench", "--initialize", "--quiet", "--scale", "1")
    made.capture()
    return made


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
def test_a_run_of_pgbench_comes_again(captures: Captures, protocol: str) -> None:
    captures.user(
        "pgbench", "--client", "5", "--transactions", "20", "--no-vacuum", "--protocol", protocol, "--rate", "60"
    )
    captured = captures.capture()
    assert captured.sessions == 6
    assert captured.left_out == {}
    count = "SELECT count(*) AS rows FROM pgbench_history"
    assert captures.server.value(count) == 100
    *seconds, result = captures.replay()
    assert captures.server.value(count) == 200
    assert result["errors"] == {}
    assert (result["statements"], result["unfinished"]) == (captured.statements, 0)
    assert result["connections"] == 5
    assert sum(one["transactions"] for one in seconds) <= result["transactions"] == 100 + captured.statements - 700
    assert result["seconds"] >= captured.duration_s * 0.9
    update = next(one for one in result["digests"] if one["statement"].startswith("update pgbench_accounts"))
    assert update["count"] == 100
    assert update["p50_ms"] <= update["p99_ms"] <= update["max_ms"]
    *_, fast = captures.replay("--speed", "max")
    assert fast["statements"] == captured.statements
    assert captures.server.value(count) == 300
    assert fast["lateness_server"]["max_ms"] == 0


def test_sessions_wait_for_their_statements_and_errors_are_counted(captures: Captures, tmp_path: Path) -> None:
    load = [
        ["d", 0, "00", "select pg_sleep(?)"],
        ["d", 1, "01", "select ? / ?"],
        ["x", 0, 0, 1, 0, "SELECT pg_sleep(0.3)"],
        ["x", 0, 100_000, 1, 1, "SELECT 1/0"],
        ["x", 1, 50_000, 1, 1, "SELECT 1/1"],
        ["x", 2, 90_000, None, 1, "BEGIN; COPY pgbench_branches FROM STDIN; COMMIT"],
        ["x", 2, 95_000, 1, 1, "ROLLBACK"],
    ]
    lines = [json.dumps(line) for line in load]
    summary = {"format": 1, "statements": 5, "sessions": 3, "digests": 2, "first_us": 0, "last_us": 1}
    rest = {"without_duration": 0, "whole_seconds": False, "literals": "keep", "database": None, "left_out": {}}
    text = "\n".join([*lines, json.dumps({**summary, **rest, "bytes": 0})]) + "\n"
    (captures.folder / "my.load").write_text(text)
    *_, result = captures.replay("--threads", "1")
    assert result["errors"] == {"22012": 1, "57014": 1}
    assert (result["statements"], result["unfinished"]) == (5, 0)
    assert 100 <= result["lateness_server"]["max_ms"] <= result["response"]["max_ms"]
    *_, cut = captures.replay("--seconds", "0.1")
    assert cut["unfinished"] >= 1


def test_a_server_that_asks_for_a_password(captures: Captures) -> None:
    captures.user("pgbench", "--client", "1", "--transactions", "2", "--no-vacuum", "--select-only")
    captures.capture()
    server = captures.server
    server.execute("CREATE ROLE ada SUPERUSER LOGIN PASSWORD 'it is secret'")
    hba = Path(server.layout.data_directory, "pg_hba.conf")
    hba.write_text("local all ada scram-sha-256\n" + hba.read_text())
    server.value("SELECT pg_reload_conf() AS done")
    call = captures.plan_replay(user="ada")
    refused = captures.host.run(call, check=False)
    assert refused.exit_code == 1
    assert "neither PGPASSWORD nor PGPASSFILE" in refused.stderr
    passfile = captures.place / "passfile"
    passfile.write_text("*:5432:*:ada:it is secret\n")
    done = captures.host.run(replace(call, env=(("PGPASSFILE", str(passfile)),)))
    assert json.loads(done.stdout.splitlines()[-1])["errors"] == {}


def test_a_server_that_dies_is_told(captures: Captures) -> None:
    captures.user("pgbench", "--client", "2", "--transactions", "60", "--rate", "30", "--no-vacuum", "--select-only")
    captures.capture()
    out, err = str(captures.folder / "out"), str(captures.folder / "err")
    process = captures.host.start(captures.plan_replay(), stdout=out, stderr=err)
    captures.host.pause(1)
    captures.server.crash_stop()
    assert process.wait(60) == 0
    result = json.loads((captures.folder / "out").read_text().splitlines()[-1])
    assert result["lost_connections"] >= 2
    assert result["unfinished"] > 0


@pytest.mark.parametrize("installation", [15], indirect=True)  # the embedded ones have no pg_stat_statements
def test_a_mix_from_statements_runs(host: LocalHost, server: Server, folder: Path, tmp_path: Path) -> None:
    ready(server, shared_preload_libraries="pg_stat_statements")
    captures = Captures(host, server, folder, tmp_path)
    captures.user("pgbench", "--initialize", "--quiet", "--scale", "1")
    server.execute("CREATE EXTENSION pg_stat_statements")
    server.value("SELECT pg_stat_statements_reset() AS done")
    captures.user("pgbench", "--client", "2", "--transactions", "50", "--no-vacuum")
    csv = captures.user(
        "psql", "--no-psqlrc", "--quiet", "--command",
        r"\copy (SELECT s.* FROM pg_stat_statements s JOIN pg_database d ON d.oid = dbid "
        "WHERE datname = current_database() AND query ILIKE '%pgbench_%') TO STDOUT CSV HEADER",
    )  # fmt: skip
    (tmp_path / "statements.csv").write_text(csv)
    mix = make_mix(read_statements(tmp_path / "statements.csv"))
    assert 0.3 < mix.covered < 1
    place = folder / "mix"
    write_mix(mix, place)
    place.chmod(0o755)
    captures.user("psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file", str(place / "draw.sql"))
    scripts = [f"--file={word}" for word in mix.weighted(place).split("+")]
    done = captures.user("pgbench", "--transactions", "50", "--no-vacuum", "--protocol", "extended", *scripts)
    assert "number of transactions actually processed: 50/50" in done
    assert "number of failed transactions: 0" in done


def test_a_restore_is_timed_by_phase(captures: Captures, place: Path) -> None:
    dump = captures.place / "shop.dump"
    dump.touch()
    shutil.chown(dump, captures.server.user)
    captures.user("pg_dump", "--format=custom", f"--file={dump}")
    workload = {"pg_restore": str(dump), "script": "select-only"}
    major = captures.server.installation.major
    asked = campaign({**stack("memory", "tmpfs"), "postgresql": {**QUICK, "major": major}}, workload=workload)
    assert run(place, asked).counts == {"ok": 1}
    (trial,) = read(place / "out").trials
    assert trial.load is not None
    assert list(trial.load.phases_s) == ["tables", "rows", "indexes and constraints", "vacuum"]
    assert trial.load.total_s == pytest.approx(sum(trial.load.phases_s.values()))
