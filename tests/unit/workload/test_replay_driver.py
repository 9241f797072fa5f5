"""The replay driver: what a campaign may ask, its command, and what it reads of strata-load's output."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pgstrata.errors import PgstrataError, UsageError
from pgstrata.record.schema import ScriptRun
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.workload.driver import RunOutput, RunRequest, driver_of, summed
from pgstrata.workload.replay_driver import MOST_STATEMENTS, PROGRAM, ReplayDriver
from pgstrata.workload.target import Target

FIGURES = {"mean_ms": 2.0, "p50_ms": 1.0, "p95_ms": 3.0, "p99_ms": 4.0, "max_ms": 9.0}
RESULT = {
    "seconds": 2.0, "statements": 14, "transactions": 6, "tps": 3.0, "statements_per_s": 7.0, "unfinished": 0,
    "errors": {"22012": 2}, "lost_connections": 0, "gave_up": False, "response": FIGURES, "latency": FIGURES,
    "lateness_driver": {**FIGURES, "p99_ms": 0.5}, "lateness_server": FIGURES,
    "digests": [
        {"digest": f"{n:08x}00000000", "statement": f"{'select ' * 20}{n}", "count": 30 - n, "errors": n % 2, **FIGURES}
        for n in range(25)
    ],
}  # fmt: skip


def read(tmp_path: Path, workload: str) -> Campaign:
    for name in ("my.load", "my.dump"):
        (tmp_path / name).write_text("")
    file = tmp_path / "campaign.yaml"
    file.write_text(f"stacks: [ext4, xfs]\nworkload: {workload}\n")
    return load_campaign(file)


def test_a_campaign_replays_a_load_on_its_dump(tmp_path: Path) -> None:
    asked = read(tmp_path, "{driver: {kind: replay, load: my.load, speed: 2x}, pg_restore: my.dump, warmup: 0}")
    driver, cell = driver_of(asked.workload), asked.workload.cells[0]
    assert isinstance(driver, ReplayDriver)
    assert cell.script == "replay"
    assert driver.files(asked.workload, cell) == {f"{tmp_path}/my.load": "my.load", PROGRAM: "strata-load"}
    files = {f"{tmp_path}/my.load": "/there/my.load", PROGRAM: "/there/strata-load"}
    target = Target(programs="/bin", major=18, server="/run/server", port=5432, os_user="postgres")
    call = driver.plan_run(RunRequest(target, asked.workload, cell, 1, 60.0, "/there", files))
    assert call.argv[:3] == ("/there/strata-load", "replay", "/there/my.load")
    assert call.argv[-4:] == ("--speed", "2x", "--seconds", "60")
    assert call.user == "postgres"


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("{driver: {kind: replay, load: none.load}, sql: my.dump, warmup: 0}", "none.load does not exist"),
        ("{driver: {kind: replay, load: my.load}, warmup: 0}", "needs its data"),
        ("{driver: {kind: replay, load: my.load}, sql: my.dump}", "warmup must be 0"),
        ("{driver: {kind: replay, load: my.load}, sql: my.dump, warmup: 0, clients: [1, 2]}", "one cell"),
        ("{driver: {kind: replay, load: my.load}, sql: my.dump, warmup: 0, rate: 5}", "rate means nothing"),
        ("{driver: {kind: replay, load: my.load, speed: fast}, sql: my.dump, warmup: 0}", "speed"),
    ],
)
def test_what_would_replay_on_other_data_is_refused(tmp_path: Path, workload: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, workload)


def parsed(tmp_path: Path, **changes: Any) -> Any:
    asked = read(tmp_path, "{driver: {kind: replay, load: my.load}, sql: my.dump, warmup: 0}")
    lines = [{"second": 1, "statements": 7, "transactions": 3}, {**RESULT, **changes}]
    output = RunOutput("".join(json.dumps(line) + "\n" for line in lines), "")
    return ReplayDriver().parse_run(output, asked.workload.cells[0])


def test_a_result_has_rates_percentiles_and_lateness(tmp_path: Path) -> None:
    run = parsed(tmp_path)
    assert list(run.figures.items())[:2] == [("tps", 3.0), ("latency_avg_ms", 2.0)]
    assert (run.figures["lateness_driver_p99_ms"], run.figures["lateness_server_p99_ms"]) == (0.5, 4.0)
    assert run.result["percentiles_ms"] == {"p50": 1.0, "p95": 3.0, "p99": 4.0}
    assert (run.result["failed"], run.result["transactions"], run.result["duration_s"]) == (2, 6, 2.0)
    assert run.progress == [(1.0, 3.0, 0.0, 0.0)]
    assert run.incomplete == ""


def test_the_statements_that_took_most_are_told_like_the_scripts_of_a_mix(tmp_path: Path) -> None:
    run = parsed(tmp_path)
    scripts = [ScriptRun.model_validate(one) for one in run.result["scripts"]]
    assert len(scripts) == MOST_STATEMENTS == len({one.name for one in scripts})
    assert (scripts[1].transactions, scripts[1].failed, scripts[1].tps) == (28, 1, 14.0)
    assert scripts[1].percentiles_ms == {"p50": 1.0, "p95": 3.0, "p99": 4.0}
    other = replace(run, result={**run.result, "scripts": run.result["scripts"][1:]})
    turns = {one["name"]: one for one in summed([run, other]).result["scripts"]}
    assert [turns[one.name]["transactions"] for one in scripts[:2]] == [30, 56]


def test_a_run_that_lost_its_server_does_not_count(tmp_path: Path) -> None:
    assert "2 connections broke: reset" in parsed(tmp_path, lost_connections=2, lost_because="reset").incomplete
    assert "no answer" in parsed(tmp_path, gave_up=True).incomplete
    with pytest.raises(PgstrataError, match="strata-load is not understood"):
        parsed(tmp_path, response={})
