"""TPC-C: what is planned, and what is read."""

from __future__ import annotations

import pytest

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import Completed
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.drivers import Tpcc
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.quick import quick_campaign
from pgstrata.spec.stack import Stack, Volume
from pgstrata.spec.workload import Workload
from pgstrata.workload.driver import DataRequest, RunOutput, RunRequest
from pgstrata.workload.target import Target
from pgstrata.workload.tpcc_driver import CONDITIONS, FOLDER, WEIGHTS, TpccDriver

DRIVER = TpccDriver()
TARGET = Target("/opt/pg/bin", 18, "/run/x", 5433, "pgstrata", database="bench")
WORKLOAD = Workload.model_validate({"script": "tpcc", "scale": 3, "clients": 4, "duration": 10})
(CELL,) = WORKLOAD.cells


def checked(*lines: str) -> list[Completed]:
    return [Completed(("psql",), 0, "\n".join(lines), "", 0.1)]


def test_the_script_chooses_the_driver_its_metric_and_its_scale() -> None:
    assert WORKLOAD.driver == Tpcc()
    assert Workload.model_validate({"driver": "tpcc"}).script == ("tpcc",)
    stack = Stack(name="a", data=Volume(fs=Tmpfs()))
    assert Campaign.model_validate({"name": "x", "stacks": (stack,), "workload": WORKLOAD}).goal.primary == "nopm"
    assert CELL.id == "tpcc-s3-c4"


def test_quick_measures_whole_runs_of_one_warehouse() -> None:
    found = quick_campaign(["ext4", "xfs"], lambda *_: 0.01, workload={"script": ("tpcc",)})
    assert (found.workload.scale, found.runs.design, found.goal.primary) == ((1,), "whole", "nopm")


def test_its_own_transactions_cannot_be_mixed_or_given_variables() -> None:
    with pytest.raises(ValueError, match="variables means nothing to the driver tpcc"):
        Workload.model_validate({"script": "tpcc", "variables": {"a": "1"}})


def test_a_run_is_the_mix_of_the_five_scripts() -> None:
    assert sum(WEIGHTS.values()) == 100
    files = DRIVER.files(WORKLOAD, CELL)
    placed = {path: f"/out/{name}" for path, name in files.items()}
    argv = DRIVER.plan_run(RunRequest(TARGET, WORKLOAD, CELL, 7, 10.0, "/out/logs", placed)).argv
    assert [argv[n + 1] for n, word in enumerate(argv) if word == "--file"] == [
        f"/out/{name}.sql@{weight}" for name, weight in WEIGHTS.items()
    ]
    assert argv[argv.index("--scale") + 1] == "3"


def test_load_and_check_are_texts_for_psql() -> None:
    fill, vacuum = DRIVER.plan_load(DataRequest(TARGET, WORKLOAD, 3, "fast"))
    assert fill.stdin.startswith("SET default_tablespace = 'fast';\n")
    assert "--set=scale=3" in fill.argv
    assert vacuum.stdin == "VACUUM ANALYZE;\n"
    (check,) = DRIVER.plan_check(DataRequest(TARGET, WORKLOAD, 3), fresh=True)
    assert "--set=fresh=true" in check.argv
    assert check.stdin == (FOLDER / "check.sql").read_text()


def test_broken_conditions_are_named_and_a_missing_one_is_an_error() -> None:
    whole = [f"{n}|0" for n in range(1, CONDITIONS + 1)]
    assert DRIVER.broken_conditions(checked(*whole)) == []
    assert DRIVER.broken_conditions(checked(*whole[:-1], "12|3")) == ["condition 12 of TPC-C 3.3.2 (3 rows)"]
    with pytest.raises(PgstrataError, match="11 of 12 conditions"):
        DRIVER.broken_conditions(checked(*whole[:-1]))


def test_nopm_are_the_new_orders_of_a_minute() -> None:
    scripts = "".join(
        f"SQL script {n}: /out/{name}.sql\n - weight: {weight} (targets {weight}.0% of total)\n"
        f" - {weight} transactions ({weight}.0% of total, tps = {weight / 10})\n"
        for n, (name, weight) in enumerate(WEIGHTS.items(), 1)
    )
    out = (
        "transaction type: multiple scripts\nscaling factor: 3\nquery mode: simple\nnumber of clients: 4\n"
        "number of threads: 2\nduration: 10 s\nnumber of transactions actually processed: 100\n"
        f"latency average = 4.000 ms\ntps = 10.0 (without initial connection time)\n{scripts}"
    )
    run = DRIVER.parse_run(RunOutput(out, "progress: 1.0 s, 9.0 tps, lat 4.0 ms stddev 1.0\n"), CELL)
    assert next(iter(run.figures)) == "nopm"
    assert run.figures["nopm"] == pytest.approx(270.0)
    assert [one["name"] for one in run.result["scripts"]] == list(WEIGHTS)
