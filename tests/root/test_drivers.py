"""Real trials whose load is not pgbench."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.metrics import primary_value
from pgstrata.host.capabilities import program_path
from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import discover
from pgstrata.record.reader import read
from pgstrata.trial.events import Event, StepBegun
from pgstrata.workload.replay_driver import PROGRAM
from small_campaigns import campaign, run, stack
from statement_driver import registered


@pytest.fixture
def outside() -> Iterator[None]:
    """A driver from outside the package, known for the time of a test."""
    with registered():
        yield


@pytest.mark.usefixtures("outside")
def test_a_driver_from_outside_loads_runs_and_is_recorded_by_its_own_metric(place: Path) -> None:
    workload = {"driver": {"kind": "statement", "rows": 7}, "script": "count", "scale": 2, "duration": 2}
    asked = campaign(stack("memory", "tmpfs"), workload=workload, blocks=2)
    assert run(place, asked).counts == {"ok": 2}
    data = read(place / "out")
    first, second = data.trials
    assert first.load is not None
    assert list(first.load.phases_s) == ["fill"]
    assert second.load is not None
    assert second.load.how == "copy"
    for trial in data.trials:
        (cell,) = trial.cells
        assert cell.result.transactions > 10
        assert cell.result.tps is None
        assert primary_value(trial, cell, data.campaign.goal.primary) == cell.result.transactions * 30.0
        assert (place / "out" / cell.folder / "raw" / "statement.err").read_text().startswith("psql:<stdin>:1: NOTICE:")


TPCC = {"script": "tpcc", "clients": 2, "duration": 2}


def test_tpcc_is_loaded_run_and_checked(place: Path) -> None:
    asked = campaign(stack("memory", "tmpfs"), workload=TPCC, blocks=1)
    assert run(place, asked).counts == {"ok": 1}
    (trial,) = read(place / "out").trials
    assert trial.load is not None
    assert list(trial.load.phases_s) == ["tables and keys", "vacuum"]
    (cell,) = trial.cells
    assert [one.weight for one in cell.result.scripts] == [45, 43, 4, 4, 4]
    orders = cell.result.scripts[0]
    assert orders.name == "new_order"
    assert primary_value(trial, cell, "nopm") == pytest.approx(60 * orders.tps)


def test_data_that_breaks_a_condition_fails_the_trial(place: Path) -> None:
    def spoil(event: Event) -> None:
        if isinstance(event, StepBegun) and event.step.endswith("collect"):
            (lock,) = place.rglob("postmaster.pid")  # servers of other tests have sockets too
            folder = lock.read_text().splitlines()[4]
            user = lock.owner()
            (psql,) = {one.program("psql") for one in discover(LocalHost())[:1]}
            argv = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", psql, "-h", folder]
            change = "UPDATE customer SET c_balance = c_balance + 1 WHERE c_id = 7 AND c_d_id = 3"
            subprocess.run([*argv, "-U", "postgres", "-c", change, "postgres"], check=True, timeout=60, cwd="/")

    asked = campaign(stack("memory", "tmpfs"), workload=TPCC, blocks=1)
    assert run(place, asked, spoil).counts == {"failed": 1}
    (trial,) = read(place / "out").trials
    assert "condition 10 of TPC-C 3.3.2 (1 rows); condition 12 of TPC-C 3.3.2 (1 rows)" in trial.verdict.reason


@pytest.mark.skipif(not Path(PROGRAM).exists(), reason="strata-load is not built")
def test_a_replay_runs_on_the_dump_and_every_block_begins_with_it(place: Path) -> None:
    (place / "fill.sql").write_text("CREATE TABLE item (id int PRIMARY KEY);\nINSERT INTO item VALUES (1);\n")
    load = [
        ["d", 0, "00", "insert into item values (?)"],
        *(["x", number % 2, number * 100_000, 10, 0, f"INSERT INTO item VALUES ({number + 2})"] for number in range(8)),
        {
            "format": 1, "statements": 8, "sessions": 2, "digests": 1, "first_us": 0, "last_us": 700_010, "bytes": 0,
            "without_duration": 0, "whole_seconds": False, "literals": "keep", "database": None, "left_out": {},
        },
    ]  # fmt: skip
    (place / "my.load").write_text("".join(json.dumps(line) + "\n" for line in load))
    driver = {"kind": "replay", "load": str(place / "my.load"), "speed": "2"}
    workload = {"driver": driver, "sql": str(place / "fill.sql"), "duration": 5}
    assert run(place, campaign(stack("memory", "tmpfs"), workload=workload, blocks=2)).counts == {"ok": 2}
    for trial in read(place / "out").trials:
        (cell,) = trial.cells
        assert (cell.result.transactions, cell.result.failed) == (8, 0)
        assert 0.3 < cell.result.duration_s < 5
        assert cell.result.tps == pytest.approx(8 / cell.result.duration_s)
        assert "lateness_driver_p99_ms" in cell.result.extra
        (statement,) = cell.result.scripts
        assert (statement.name, statement.transactions) == ("insert into item values (?) (00)", 8)
        assert 0 < statement.percentiles_ms["p99"] < 5000


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (b"PGDMP" + bytes([1, 99, 0, 4, 8, 1]), "unsupported version (1.99) in file header"),
        (b"PGDMP" + bytes([1, 14, 0, 4, 8, 1]), "end of file"),
        (b"CREATE TABLE item (id int);\n", "does not appear to be a valid archive"),
    ],
    ids=["of a newer major", "truncated", "no archive"],
)
def test_a_dump_that_cannot_be_restored_fails_the_trial_in_words(place: Path, archive: bytes, reason: str) -> None:
    (place / "shop.dump").write_bytes(archive)
    workload = {"pg_restore": str(place / "shop.dump"), "script": "select-only", "duration": 1}
    assert run(place, campaign(stack("memory", "tmpfs"), workload=workload, blocks=1)).counts == {"failed": 1}
    (trial,) = read(place / "out").trials
    assert reason in trial.verdict.reason


FILL = "psql -qXc 'CREATE TABLE sold AS SELECT n FROM generate_series(1, {scale} * 1000) n'"
SELL = "UPDATE sold SET n = n + 1 WHERE n % 2 = 0"


@pytest.mark.skipif(program_path(LocalHost(), "sysbench") is None, reason="sysbench is not installed")
def test_sysbench_loads_and_runs(place: Path) -> None:
    workload = {"driver": "sysbench", "clients": 2, "duration": 1}
    assert run(place, campaign(stack("memory", "tmpfs"), workload=workload)).counts == {"ok": 1}
    (trial,) = read(place / "out").trials
    assert trial.load is not None
    assert list(trial.load.phases_s) == ["prepare", "vacuum"]
    (cell,) = trial.cells
    assert cell.result.tps is not None
    assert cell.result.transactions > 10
    assert cell.result.percentiles_ms["p99"] > 0


GO_TPC = """#!/bin/sh
# go-tpc in small: $2 is the verb, what it prints is recorded.
test "$6" = 127.0.0.1 && test "$(stat -c %a "$PGPASSFILE")" = 600 || exit 9
export PGHOST=$6 PGPORT=$8 PGUSER=${10} PGDATABASE=${12}
case $2 in
prepare) psql -qXwc 'CREATE TABLE seen AS SELECT inet_server_addr()' ;;
check) for n in 1 2 3 4 5 6 7 8 9 10 12; do echo "begin to check warehouse 1 at condition 3.3.2.$n"; done
    echo Finished ;;
run) psql -qXwc 'UPDATE seen SET inet_server_addr = inet_server_addr()'; cat <<'END'
OUTPUT
END
esac
"""
RECORDED = (Path(__file__).parents[1] / "fixtures" / "importers" / "go-tpc" / "tpcc-1.0.12.json").read_text()


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (RECORDED, ""),
        (f"execute run failed, err pq: broken\n{RECORDED}", "execute run failed, err pq: broken"),
    ],
    ids=["whole", "a worker is lost"],
)
def test_go_tpc_connects_by_tcp_and_its_words_count(place: Path, output: str, reason: str) -> None:
    toy = place / "go-tpc"
    toy.write_text(GO_TPC.replace("OUTPUT", output))
    toy.chmod(0o755)
    workload = {"driver": {"kind": "go-tpc", "program": str(toy)}, "clients": 2, "duration": 1}
    counts = run(place, campaign(stack("memory", "tmpfs"), workload=workload)).counts
    (trial,) = read(place / "out").trials
    if reason:
        assert counts == {"failed": 1}
        assert reason in trial.verdict.reason
    else:
        assert counts == {"ok": 1}, trial.verdict.reason
        assert primary_value(trial, trial.cells[0], "tpmc") == 12075.4


def program(run: str, **more: object) -> dict[str, object]:
    result = {"metric": "orders_per_s", "last_line": True}
    driver = {"prepare": ["sh", "-c", FILL], "run": ["sh", "-c", run], "result": result, **more}
    return {"driver": driver, "script": "orders", "clients": 1, "duration": 1}


def test_a_program_loads_runs_and_is_checked_as_an_unprivileged_user(place: Path) -> None:
    by_tcp = "psql -qXAtwc 'SELECT inet_server_addr()' && stat -c %a {passfile}"
    run_it = f"psql -qXwc '{SELL}' >/dev/null && id -u && {by_tcp} && psql -qXAtwc 'SELECT count(*) FROM sold'"
    verify = ["sh", "-c", "test $(psql -qXAtc 'SELECT count(*) FROM sold') = 1000 && test $(id -u) != 0"]
    asked = campaign(stack("memory", "tmpfs"), workload=program(run_it, check=verify, tcp=True), blocks=2)
    assert run(place, asked).counts == {"ok": 2}
    data = read(place / "out")
    assert [trial.load.how for trial in data.trials if trial.load] == ["fresh", "copy"]
    for trial in data.trials:
        (cell,) = trial.cells
        assert primary_value(trial, cell, data.campaign.goal.primary) == 1000.0
        found = (place / "out" / cell.folder / "raw" / "program.out").read_text().split()
        assert found[0] != "0"
        assert found[1:3] == ["127.0.0.1", "600"]


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("sleep 300", "program did not end within"),
        ("printf '12\\n\\377 7\\001 8'", "the program printed no orders_per_s: '12"),
        ("true", "the program printed no orders_per_s: an empty output"),
        ("setsid sleep 300 & exit 0", "the program printed no orders_per_s: an empty output"),
        ("exec head -c 100000000 /dev/zero", "program ended with exit code"),
        ("echo 5; exit 3", "program ended with exit code 3"),
    ],
    ids=["hangs", "prints garbage", "prints nothing", "forks away", "fills its output", "fails"],
)
def test_a_program_that_misbehaves_fails_its_trial_in_words(place: Path, does: str, reason: str) -> None:
    asked = campaign(stack("memory", "tmpfs"), workload=program(does), blocks=1)
    assert run(place, asked).counts == {"failed": 1}
    (trial,) = read(place / "out").trials
    assert reason in trial.verdict.reason


def test_data_that_its_check_refuses_fails_the_trial(place: Path) -> None:
    asked = campaign(stack("memory", "tmpfs"), workload=program("echo 1", check="false"), blocks=1)
    assert run(place, asked).counts == {"failed": 1}
