"""Which files of a run are fetched: names that are known beforehand, and no more than a run can have written."""

from __future__ import annotations

import pytest

from pgstrata.spec.workload import Cell, Workload
from pgstrata.trial.steps.collect import LOG_BYTES_AT_LEAST, RUN_OUTPUTS, log_names, most_log_bytes, summed_results
from pgstrata.workload.pgbench_output import PgbenchResult, ScriptResult

CELL = Cell(script="tpcb-like", scale=1, clients=3)


@pytest.mark.parametrize(
    ("jobs", "log", "names"),
    [
        (1, "all", ("pgbench_log.7",)),
        (2, "all", ("pgbench_log.7", "pgbench_log.7.1")),
        (8, "sampled", ("pgbench_log.7", "pgbench_log.7.1", "pgbench_log.7.2")),  # no more threads than clients
        (2, "none", ()),
    ],
)
def test_logs_are_those_of_the_threads_of_that_pgbench(jobs: int, log: str, names: tuple[str, ...]) -> None:
    assert log_names(Workload.model_validate({"jobs": jobs, "log": log}), CELL, 7) == names


def test_logs_are_no_longer_than_a_run_can_make_them() -> None:
    by_time = Workload.model_validate({"duration": 10})
    assert most_log_bytes(by_time, CELL, None) == LOG_BYTES_AT_LEAST + 320_000_000
    assert most_log_bytes(by_time, CELL, 1.0) == LOG_BYTES_AT_LEAST + 32_000_000
    by_count = Workload.model_validate({"transactions": 100})
    assert most_log_bytes(by_count, CELL, None) == LOG_BYTES_AT_LEAST + 100 * 3 * 80


def test_all_other_outputs_have_fixed_names() -> None:
    assert all("/" not in name for name in RUN_OUTPUTS)
    assert len(set(RUN_OUTPUTS)) == 6


def turn(orders: int, reports: int) -> PgbenchResult:
    scripts = (
        ScriptResult("1.sql", 9, orders, orders / 2, failed=1, latency_avg_ms=2.0, latency_stddev_ms=1.0),
        ScriptResult("2.sql", 1, reports, reports / 2, skipped=2),
    )
    return PgbenchResult(
        "multiple scripts", 1, "simple", 1, 1, orders + reports, (orders + reports) / 2, scripts=scripts
    )


def test_scripts_of_turns_are_summed() -> None:
    orders, reports = summed_results([turn(30, 0), turn(60, 10)]).scripts
    assert (orders.name, orders.weight, orders.transactions, orders.failed) == ("1.sql", 9, 90, 2)
    assert (orders.tps, orders.latency_avg_ms, orders.latency_stddev_ms) == (22.5, 2.0, None)
    assert (reports.transactions, reports.tps, reports.skipped) == (10, 2.5, 4)
    assert summed_results([PgbenchResult("x", 1, "simple", 1, 1, 4, 2.0)] * 2).scripts == ()
