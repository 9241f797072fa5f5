"""Which files of a run are fetched: names that are known beforehand, and no more than a run can have written."""

from __future__ import annotations

import pytest

from pgstrata.spec.workload import Cell, Workload
from pgstrata.trial.steps.collect import PROBE_OUTPUTS, run_outputs
from pgstrata.workload.driver import summed
from pgstrata.workload.pgbench import LOG_BYTES_AT_LEAST, PgbenchDriver
from pgstrata.workload.tool_run import ToolRun

DRIVER = PgbenchDriver()

CELL = Cell(script="tpcb-like", scale=1, clients=3)


@pytest.mark.parametrize(
    ("jobs", "log", "names"),
    [
        (1, "all", ("pgbench_log.7",)),
        (2, "all", ("pgbench_log.7", "pgbench_log.7.1")),
        (8, "sampled", ("pgbench_log.7", "pgbench_log.7.1", "pgbench_log.7.2")),  # no more threads than clients
    ],
)
def test_logs_are_those_of_the_threads_of_that_pgbench(jobs: int, log: str, names: tuple[str, ...]) -> None:
    assert DRIVER.log_names(Workload.model_validate({"jobs": jobs, "log": log}), CELL, 7) == names


def test_logs_are_no_longer_than_a_run_can_make_them() -> None:
    by_time = Workload.model_validate({"duration": 10})
    assert DRIVER.most_log_bytes(by_time, CELL, 10.0) == LOG_BYTES_AT_LEAST + 320_000_000
    assert DRIVER.most_log_bytes(by_time, CELL, 1.0) == LOG_BYTES_AT_LEAST + 32_000_000
    by_count = Workload.model_validate({"transactions": 100})
    assert DRIVER.most_log_bytes(by_count, CELL, None) == LOG_BYTES_AT_LEAST + 100 * 3 * 80


def test_all_other_outputs_have_fixed_names() -> None:
    names = (*run_outputs(DRIVER), *PROBE_OUTPUTS)
    assert names[:2] == ("pgbench.out", "pgbench.err")
    assert all("/" not in name for name in names)
    assert len(set(names)) == 6


def turn(orders: int, reports: int) -> ToolRun:
    none = {"failed": 0, "skipped": 0, "latency_avg_ms": None, "latency_stddev_ms": None}
    scripts = [
        none | {"name": "1", "weight": 9, "transactions": orders, "failed": 1, "latency_avg_ms": 2.0, "tps": 1.0},
        none | {"name": "2", "weight": 1, "transactions": reports, "skipped": 2, "tps": 1.0},
    ]
    result = {"transactions": orders + reports, "duration_s": 2.0, "scripts": scripts}
    return ToolRun("x", "mix", {"tps": (orders + reports) / 2, "latency_avg_ms": orders / 10}, result=result)


def test_turns_and_their_scripts_are_summed() -> None:
    found = summed([turn(30, 0), turn(60, 10)])
    assert found.result["transactions"] == 100
    assert found.figures == {"tps": 25.0, "latency_avg_ms": pytest.approx((3 * 30 + 6 * 70) / 100)}
    orders, reports = found.result["scripts"]
    assert (orders["name"], orders["weight"], orders["transactions"], orders["failed"]) == ("1", 9, 90, 2)
    assert (orders["tps"], orders["latency_avg_ms"], orders["latency_stddev_ms"]) == (22.5, 2.0, None)
    assert (reports["transactions"], reports["tps"], reports["skipped"]) == (10, 2.5, 4)
