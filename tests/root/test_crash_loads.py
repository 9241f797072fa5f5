"""Loads beside the ledger in crash trials: whatever runs, what was acknowledged is known."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from campaigning import environment, nothing_left, reachable, run_in_fork
from pgstrata.host.capabilities import program_path
from pgstrata.host.local import LocalHost
from pgstrata.workload.tpcc_driver import TpccDriver

DISK = Path(sys.executable).parent / "strata-disk"
pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")

PSQL = "/usr/bin/psql --no-psqlrc --quiet --command"
PROGRAM = f"""  scale: 1
  driver:
    prepare: {PSQL} "CREATE TABLE heap (i int)"
    run: {PSQL} "{{run}}"
    result: {{{{metric: rows, last_line: true}}}}
"""


GO_TPC = """#!/bin/sh
# $2 is the verb; connects as go-tpc does.
test "$(stat -c %a "$PGPASSFILE")" = 600 || exit 9
export PGHOST=$6 PGPORT=$8 PGUSER=${10} PGDATABASE=${12}
case $2 in
prepare) psql -qXwc 'CREATE TABLE seen (i int)' ;;
check) for n in 1 2 3 4 5 6 7 8 9 10 12; do echo "begin to check warehouse 1 at condition 3.3.2.$n"; done
    echo Finished ;;
run) while psql -qXwc 'INSERT INTO seen SELECT generate_series(1, 1000)'; do :; done ;;
esac
"""


def crash(
    place: Path, *words: str, code: int = 0, around: AbstractContextManager[object] | None = None
) -> tuple[dict[str, Any], str]:
    """The durability of each stack, by name, and what was printed."""
    printed = place / "printed"
    own = ("--transactions", "10", "--minimise", "0", "--nested", "0", "--quiet", "--json")
    argv = ["crash", *words, *own, "--out", str(place / "out"), "--scratch", str(place / "scratch")]
    assert run_in_fork(argv, environment(place), printed, around) == code, printed.read_text()
    text = printed.read_text()
    found = json.loads(text[text.index("{") :])["stacks"] if code == 0 else []
    return {stack["name"]: stack["durability"] for stack in found}, text


def raw(place: Path, name: str) -> str:
    return next((place / "out" / "crash").glob(f"*/raw/{name}")).read_text()


def load_file(place: Path, workload: str) -> str:
    file = place / "loaded.yaml"
    file.write_text(f"name: loaded\nstacks: [ext4]\nworkload:\n{workload}", encoding="utf-8")
    return str(file)


def test_a_mix_with_a_script_of_ones_own_runs_beside_the_ledger(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        (place / "mine.sql").write_text("UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 1;\n")
        mix = f"tpcb-like@1+{place}/mine.sql@2"
        found, _ = crash(place, "ext4", "ext4@fsync=off", "--script", mix, "--states", "4")
        nothing_left(place)
        told = raw(place, "load-beside.err")
    assert (found["ext4"]["verdict"], found["ext4"]["script"]) == ("held", "workload")
    assert found["ext4@fsync=off"]["verdict"] in ("lost", "corrupt")
    assert "progress:" in told


def test_the_conditions_of_tpcc_are_checked_in_each_state(tmp_path: Path) -> None:
    """They hold; and where one is made that does not, every state is told as corrupt."""

    @contextmanager
    def broken() -> Iterator[None]:
        truth = TpccDriver().state_conditions
        query = f"SELECT * FROM ({truth}) t UNION ALL SELECT 13, 7"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TpccDriver, "state_conditions", query)
            yield

    with reachable(tmp_path) as place:
        found, _ = crash(place, "ext4", "--script", "tpcc", "--states", "2")
        nothing_left(place)
        assert found["ext4"]["verdict"] == "held"
        (place / "printed").unlink()
        (place / "out").rename(place / "before")
        found, _ = crash(place, "ext4", "--script", "tpcc", "--states", "2", around=broken())
        nothing_left(place)
    assert (found["ext4"]["verdict"], found["ext4"]["corrupt"]) == ("corrupt", 2)
    assert "wrong: condition 13 (7)" in found["ext4"]["first_counterexample"]


def test_a_declared_program_and_a_replay_run_beside_the_ledger(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        insert = PROGRAM.format(run="INSERT INTO heap SELECT generate_series(1, 100000)")
        found, _ = crash(place, load_file(place, insert), "--script", "workload", "--states", "2")
        assert found["ext4"]["verdict"] == "held"
        (place / "out").rename(place / "before")
        (place / "printed").unlink()
        statement = ["x", 0, 0, 1, 0, "INSERT INTO heap SELECT generate_series(1, 1000)"]
        summary = {"format": 1, "statements": 1, "sessions": 1, "digests": 1, "first_us": 0, "last_us": 1, "bytes": 0}
        rest = {"without_duration": 0, "whole_seconds": False, "literals": "keep", "database": None, "left_out": {}}
        lines = (["d", 0, "00", "insert"], statement, {**summary, **rest})
        (place / "my.load").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        (place / "heap.sql").write_text("CREATE TABLE heap (i int);\n")
        replay = "  driver: {kind: replay, load: my.load}\n  sql: heap.sql\n  warmup: 0\n"
        found, _ = crash(place, load_file(place, replay), "--script", "workload", "--states", "2")
        nothing_left(place)
    assert found["ext4"]["verdict"] == "held"


@pytest.mark.skipif(program_path(LocalHost(), "sysbench") is None, reason="sysbench is not installed")
def test_sysbench_runs_beside_the_ledger(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        found, _ = crash(place, "ext4", "--script", "oltp_write_only", "--states", "2")
        nothing_left(place)
        printed = next((place / "out" / "crash").glob("*/events.jsonl")).read_text()
    assert (found["ext4"]["verdict"], found["ext4"]["script"]) == ("held", "workload")
    assert '"oltp_write_only"' in printed


def test_a_load_that_needs_tcp_runs_beside_the_ledger(tmp_path: Path) -> None:
    """It is a go-tpc that writes a row a turn: the program itself loads a warehouse for minutes."""
    with reachable(tmp_path) as place:
        toy = place / "go-tpc"
        toy.write_text(GO_TPC)
        toy.chmod(0o755)
        file = load_file(place, f"  scale: 1\n  clients: 2\n  driver: {{kind: go-tpc, program: {toy}}}\n")
        found, _ = crash(place, file, "--script", "workload", "--states", "2")
        nothing_left(place)
    assert found["ext4"]["verdict"] == "held"


def test_a_load_that_fails_fails_the_trial(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        wrong = PROGRAM.format(run="SELECT 1 / 0")
        _, told = crash(place, load_file(place, wrong), "--script", "workload", "--states", "2", code=4)
        nothing_left(place)
        reasons = [json.loads(file.read_text())["reason"] for file in (place / "out").glob("crash/*/verdict.json")]
    assert len(reasons) == 1, told
    assert "division by zero" in reasons[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ext4", "--script", "nowhere.sql"), "nowhere.sql"),
        (("cluster(2)/ext4", "--power", "--script", "tpcc"), "on one server"),
        (("ext4", "--script", "tpcc", "--fault", "write-error"), "pages of a table"),
    ],
)
def test_a_load_that_cannot_run_beside_the_ledger_is_refused(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with reachable(tmp_path) as place:
        argv = ["crash", *words, "--out", str(place / "out"), "--scratch", str(place / "scratch")]
        assert run_in_fork(argv, environment(place), place / "printed") == 2
        told = (place / "printed").read_text()
        nothing_left(place)
    assert message in told
    assert "HINT:" in told
