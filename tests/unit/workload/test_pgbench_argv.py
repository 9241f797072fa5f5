"""Exact arguments of pgbench."""

from dataclasses import replace

import pytest

from pgstrata.errors import PreflightError
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.pgbench import Target, plan_init, plan_run

TARGET = Target("/opt/pg/bin/pgbench", 18, "/run/x", 5433, "pgstrata", database="bench", marker="t1")
CONNECTION = ("/opt/pg/bin/pgbench", "--host", "/run/x", "--port", "5433", "--username", "postgres")
CELL = Cell(script="tpcb-like", scale=50, clients=8)


def options(*args: object, **kwargs: object) -> str:
    command = plan_run(*args, **kwargs)  # type: ignore[arg-type]
    assert command.argv[: len(CONNECTION)] == CONNECTION
    assert command.argv[-1] == "bench"
    return " ".join(command.argv[len(CONNECTION) : -1])


def test_a_plain_run() -> None:
    assert options(TARGET, CELL, Workload(duration="30s", jobs=2), seed=7) == (
        "--builtin tpcb-like --no-vacuum --client 8 --jobs 2 --protocol simple --random-seed 7 --progress 1 --time 30"
    )


def test_it_runs_as_the_server_user_and_is_marked() -> None:
    command = plan_run(TARGET, CELL, Workload(duration="30s"), seed=7)
    assert (command.user, command.env) == ("pgstrata", (("PGSTRATA_TRIAL", "t1"),))
    assert command.timeout_s > 30


def test_transactions_instead_of_a_duration() -> None:
    text = options(TARGET, CELL, Workload(transactions=100), seed=1)
    assert text.endswith("--transactions 100")
    assert "--time" not in text


def test_warm_up_overrides_the_bound() -> None:
    text = options(TARGET, CELL, Workload(transactions=100), seed=1, duration_s=4.2)
    assert text.endswith("--time 5")


def test_open_loop_with_limit_and_sampled_log() -> None:
    workload = Workload(latency_limit_ms=20, log="sampled", sampling_rate=0.05)
    cell = CELL.model_copy(update={"rate_tps": 123.5})
    assert options(TARGET, cell, workload, seed=1, log_prefix="/l/x").endswith(
        "--rate 123.5 --latency-limit 20 --log --log-prefix=/l/x --sampling-rate=0.05"
    )


def test_full_and_aggregated_logs() -> None:
    workload = Workload(log="all")
    assert options(TARGET, CELL, workload, seed=1, log_prefix="/l/x").endswith("--log --log-prefix=/l/x")
    text = options(TARGET, CELL, Workload(log="sampled"), seed=1, log_prefix="/l/x", aggregate_interval_s=5)
    assert text.endswith("--log --log-prefix=/l/x --aggregate-interval=5")


def test_custom_script_and_protocol() -> None:
    cell = Cell(script="mine.sql", scale=1, clients=1)
    text = options(TARGET, cell, Workload(protocol="prepared", jobs=4), seed=1, script_path="/s/mine.sql")
    assert text.startswith("--file /s/mine.sql --scale 1 --no-vacuum")
    assert "--client 1 --jobs 1 --protocol prepared" in text


def test_tries_need_pgbench_15() -> None:
    assert options(TARGET, CELL, Workload(), seed=1, max_tries=5).endswith("--max-tries=5")
    with pytest.raises(PreflightError, match="pgbench 14"):
        plan_run(replace(TARGET, major=14), CELL, Workload(), seed=1, max_tries=5)


def test_loading() -> None:
    command = plan_init(TARGET, 50, tablespace="fast")
    assert " ".join(command.argv[len(CONNECTION) :]) == (
        "--initialize --init-steps=dtgvp --quiet --scale 50 --tablespace fast --index-tablespace fast bench"
    )
