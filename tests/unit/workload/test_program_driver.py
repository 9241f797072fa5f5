"""Any program as a driver: its commands, and outputs of every form, whole and broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pgstrata.errors import TrialError, UsageError
from pgstrata.spec.drivers import Program
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.file.schema import campaign_schema
from pgstrata.spec.workload import Workload
from pgstrata.workload.driver import DataRequest, RunOutput, RunRequest
from pgstrata.workload.program_driver import MOST_OUTPUT_BYTES, ProgramDriver
from pgstrata.workload.target import Target

DRIVER = ProgramDriver()
TARGET = Target("/opt/pg/bin", 18, "/run/x", 5433, "pgstrata", database="bench")


def workload(result: dict[str, Any] | None = None, **driver: Any) -> Workload:
    result = {"metric": "orders_per_s", **(result or {"json_path": "result.rate"})}
    asked = {"run": "bench --for {seconds} -c {clients} 'a b'", **driver, "result": result}
    return Workload.model_validate({"driver": asked, "script": "orders", "scale": 3, "clients": 4, "duration": 10})


def figure(result: dict[str, Any], out: str) -> float:
    asked = workload(result)
    run = DRIVER.parse_run(RunOutput(out, "", workload=asked, asked_s=10.0), asked.cells[0])
    assert run.result["duration_s"] == 10.0
    return run.figures["orders_per_s"]


def test_a_mapping_without_kind_is_a_program_and_its_metric_the_primary_one(tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"
    driver = "{run: bench -t {seconds}, result: {metric: orders_per_s, last_line: true}, check: [test, -d, /]}"
    file.write_text(f"stacks: [ext4, xfs]\nworkload:\n  script: orders\n  driver: {driver.replace('{seconds}', 'x')}\n")
    campaign = load_campaign(file)
    assert isinstance(campaign.workload.driver, Program)
    assert campaign.workload.driver.check == ("test", "-d", "/")
    assert campaign.goal.primary == "orders_per_s"
    whole = {"kind": "program", "run": "x", "result": {"metric": "a", "csv": "rate"}}
    jsonschema.validate({"stacks": ["ext4"], "workload": {"driver": whole}}, campaign_schema())


def test_commands_get_their_values_and_the_server() -> None:
    asked = workload(prepare=["load", "{scale}", "{other"], check="verify {port}")
    run = DRIVER.plan_run(RunRequest(TARGET, asked, asked.cells[0], 7, 10.0, "/out"))
    assert run.argv == (
        "prlimit", f"--fsize={MOST_OUTPUT_BYTES}", "--core=0", "bench", "--for", "10", "-c", "4", "a b",
    )  # fmt: skip
    assert run.user == "pgstrata"
    assert run.timeout_s == pytest.approx(10 + 31 + 0.4)
    assert dict(run.env) == {"PGHOST": "/run/x", "PGPORT": "5433", "PGUSER": "postgres", "PGDATABASE": "bench"}
    assert DRIVER.plan_load(DataRequest(TARGET, asked, 3))[0].argv == ("load", "3", "{other")
    assert DRIVER.plan_check(DataRequest(TARGET, asked, 3), fresh=False)[0].argv == ("verify", "5433")
    assert [one.name for one in DRIVER.capabilities(asked)] == ["driver.load", "driver.bench", "driver.verify"]


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        ({"run": "bench {second}"}, "{second} stands for nothing"),
        ({"run": ""}, "at least 1"),
        ({"result": {"metric": "a", "json_path": "x", "csv": "y"}}, "one of json_path, json_lines, csv and last_line"),
        ({"result": {"metric": "a"}}, "one of json_path, json_lines, csv and last_line"),
        ({"result": {"metric": "A b", "csv": "y"}}, "match"),
    ],
)
def test_a_program_that_cannot_be_read_is_refused(driver: dict[str, Any], reason: str) -> None:
    asked = {"run": "x", "result": {"metric": "a", "csv": "y"}, **driver}
    with pytest.raises((ValueError, UsageError), match=reason):
        Workload.model_validate({"driver": asked})


@pytest.mark.parametrize(
    ("result", "out", "value"),
    [
        ({"json_path": "result.rate"}, '{"result": {"rate": 12.5}}', 12.5),
        ({"json_path": "0.rate"}, '[{"rate": "7"}]', 7.0),
        ({"json_lines": "rate"}, 'begin\n{"rate": 1}\n{"rate": 3}\n', 2.0),
        ({"csv": "rate"}, "second,rate\n1,10\n2,20\n", 15.0),
        ({"last_line": True}, "warming up 3\ndone: 4 threads, 1.5e3 orders\n\n", 1500.0),
    ],
)
def test_every_form_of_a_result_is_read(result: dict[str, Any], out: str, value: float) -> None:
    assert figure(result, out) == value


@pytest.mark.parametrize(
    ("result", "out", "reason"),
    [
        ({"json_path": "rate"}, "", "printed no JSON .*an empty output"),
        ({"json_path": "rate"}, "\0\x01garbage", "printed no JSON"),
        ({"json_path": "rate"}, "[" * 100_000, "printed no JSON"),
        ({"json_path": "a.rate"}, '{"a": 3}', "has no 'a.rate'"),
        ({"json_path": "rate"}, '{"rate": NaN}', "'nan' for rate, which is no finite number"),
        ({"json_path": "rate"}, '{"rate": true}', "no finite number"),
        ({"json_lines": "rate"}, "nothing\n", "printed no orders_per_s"),
        ({"json_lines": "rate"}, '{"rate": 1}\n{"rate', "printed no JSON"),
        ({"csv": "rate"}, "second,tps\n1,2\n", "no table with a column 'rate'"),
        ({"csv": "rate"}, "second,rate\n", "printed no orders_per_s"),
        ({"csv": "rate"}, "second,rate\n1\n", "'None' for rate"),
        ({"last_line": True}, "12\nfinished\n", "printed no orders_per_s"),
        ({"last_line": True}, "12\nx9 7b .5\n", "printed no orders_per_s"),
        ({"last_line": True}, "12\n7 \x01 8\n", "printed no orders_per_s"),
        ({"last_line": True}, "12\n7 \ufffd 8\n", "printed no orders_per_s"),
        ({"last_line": True}, "1e999\n", "no finite number"),
    ],
)
def test_an_output_without_its_figure_is_no_run(result: dict[str, Any], out: str, reason: str) -> None:
    with pytest.raises(TrialError, match=reason):
        figure(result, out)
