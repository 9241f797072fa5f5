"""Which server of a cluster goes on, and how it is brought up, with programs that answer as PostgreSQL's do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pgstrata.crash import failover
from pgstrata.crash.failover import NOWHERE, Server, furthest, last_commit
from pgstrata.crash.ledger import LedgerSize, parse_answers
from pgstrata.crash.verdict import Recovery, judge_state

COMMIT = "rmgr: Transaction len (rec/tot): 34/ 34, tx: 745, lsn: 0/{at}, prev 0/1, desc: COMMIT 2026-11-23 08:00:00 UTC"
ABORT = COMMIT.replace("COMMIT 2026", "ABORT 2026")
PROGRAMS = {
    "pg_controldata": 'test -e "$1/redo" && echo "Latest checkpoint\'s REDO location:    $(cat "$1/redo")"',
    "pg_waldump": 'cat "$2/records"; echo "error in WAL record" >&2; exit 1',
    "pg_ctl": 'echo "$*" | cut -d " " -f 6 >> "$2/asked"; test ! -e "$2/broken"',
    "postgres": 'echo "single $3"; cat',
}


def job_of(folder: Path, *servers: dict[str, str]) -> dict[str, Any]:
    for name, body in PROGRAMS.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    return {
        **{name: str(folder / name) for name in PROGRAMS},
        "timeout_s": 60.0,
        "servers": servers,
    }


def server(folder: Path, name: str, role: str, redo: str = "", *commits: str) -> dict[str, str]:
    data = folder / f"data-{name}"
    (data / "pg_wal").mkdir(parents=True)
    (data / "postgresql.conf").write_text("port = 5432\n")
    (data / "pg_wal" / "records").write_text("".join(f"{COMMIT.format(at=at)}\n" for at in commits))
    if redo:
        (data / "redo").write_text(redo)
    return {"name": name, "role": role, "data": str(data), "wal": ""}


def run(job: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", failover.__file__, json.dumps(job)]
    return subprocess.run(argv, input="SELECT 1;\n", capture_output=True, text=True, check=False, timeout=60)


def test_the_last_commit_counts_and_nothing_else() -> None:
    printed = f"{COMMIT.format(at='20')}\n{COMMIT.format(at='A0')}\n{ABORT.format(at='B0')}\n"
    assert last_commit(printed, 5) == 0xA0
    assert last_commit("", 5) == 5


def test_the_one_that_reaches_furthest_goes_on_the_first_where_they_are_level(tmp_path: Path) -> None:
    given = [
        server(tmp_path, "primary", "primary", "0/10", "20", "A0"),
        server(tmp_path, "standby1", "standby", "0/10", "20", "A0", "F0"),
        server(tmp_path, "standby2", "standby", "0/10", "F0"),
        server(tmp_path, "standby3", "standby"),
    ]
    job = job_of(tmp_path, *given)
    servers = [Server(one, job) for one in given]
    assert [one.reach() for one in servers] == [0xA0, 0xF0, 0xF0, NOWHERE]
    assert furthest(servers).name == "standby1"


def test_a_standby_is_started_promoted_and_stopped_before_it_is_looked_at(tmp_path: Path) -> None:
    given = server(tmp_path, "standby1", "standby")
    done = run(job_of(tmp_path, given))
    assert (done.returncode, done.stderr) == (0, "")
    data = Path(given["data"])
    assert (data / "asked").read_text().split() == ["start", "promote", "stop"]
    assert done.stdout.splitlines()[1:] == [f"single {data}", "SELECT 1;"]
    assert parse_answers(done.stdout, "").values == {"promoted": "standby1"}
    assert "primary_conninfo = ''\nprimary_slot_name = ''" in (data / "postgresql.conf").read_text()


def test_a_primary_recovers_by_itself(tmp_path: Path) -> None:
    given = server(tmp_path, "primary", "primary")
    (Path(given["data"]) / "postmaster.pid").write_text("1\n")
    assert run(job_of(tmp_path, given)).stdout.endswith("SELECT 1;\n")
    assert not (Path(given["data"]) / "asked").exists()
    assert not (Path(given["data"]) / "postmaster.pid").exists()
    conf = (Path(given["data"]) / "postgresql.conf").read_text()
    assert "listen_addresses = ''" in conf
    assert "dynamic_shared_memory_type = sysv" in conf  # it goes with the namespace of whoever is killed


def test_an_archive_is_restored_onto_its_base_backup(tmp_path: Path) -> None:
    given = {**server(tmp_path, "archive", "archive"), "archive": "/mnt/archive/pgarchive"}
    assert run(job_of(tmp_path, given)).returncode == 0
    data = Path(given["data"])
    assert (data / "recovery.signal").read_text() == ""
    assert "restore_command = 'cp /mnt/archive/pgarchive/%f \"%p\"'" in (data / "postgresql.conf").read_text()


@pytest.mark.parametrize("left", ["broken", "nothing"])
def test_one_that_cannot_be_brought_up_is_damaged(left: str, tmp_path: Path) -> None:
    given = server(tmp_path, "standby1", "standby")
    conf = Path(given["data"]) / "postgresql.conf"
    if left == "broken":
        conf.with_name("broken").touch()
    else:
        conf.unlink()
    done = run(job_of(tmp_path, given))
    answers = parse_answers(done.stdout, done.stderr)
    judged = judge_state(Recovery(0, server=done.returncode, answers=answers), {0: 7}, LedgerSize(), ())
    assert (judged.verdict, judged.lost) == ("corrupt", 7)
    assert judged.reason.startswith("FATAL: ")
