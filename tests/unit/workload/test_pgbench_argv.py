"""Exact arguments of pgbench."""

from dataclasses import replace

from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.pgbench import plan_init, plan_run, script_fields, workload_of
from pgstrata.workload.pgbench_output import PgbenchResult, ScriptResult
from pgstrata.workload.target import Target

TARGET = Target("/opt/pg/bin", 18, "/run/x", 5433, "pgstrata", database="bench", marker="t1")
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


def test_full_logs() -> None:
    workload = Workload(log="all")
    assert options(TARGET, CELL, workload, seed=1, log_prefix="/l/x").endswith("--log --log-prefix=/l/x")


def test_custom_script_and_protocol() -> None:
    cell = Cell(script="mine.sql", scale=1, clients=1)
    text = options(
        TARGET, cell, Workload(protocol="prepared", jobs=4), seed=1, script_paths={"mine.sql": "/s/mine.sql"}
    )
    assert text.startswith("--file /s/mine.sql --scale 1 --no-vacuum")
    assert "--client 1 --jobs 1 --protocol prepared" in text


def test_a_mix_is_one_run() -> None:
    cell = Cell(script="/a/orders.sql@9+tpcb-like@1", scale=3, clients=1)
    text = options(TARGET, cell, Workload(), seed=1, script_paths={"/a/orders.sql": "/s/1.sql"})
    assert text.startswith("--file /s/1.sql@9 --builtin tpcb-like@1 --no-vacuum")
    own = Cell(script="a.sql@2+b.sql@3", scale=3, clients=1)
    text = options(TARGET, own, Workload(), seed=1, script_paths={"a.sql": "/s/1.sql", "b.sql": "/s/2.sql"})
    assert text.startswith("--file /s/1.sql@2 --file /s/2.sql@3 --scale 3 --no-vacuum")


def test_variables() -> None:
    workload = Workload(variables={"first_day": "2026-01-01 + 1", "n": "5", "empty": ""})
    text = options(TARGET, CELL, workload, seed=1)
    wanted = "--define first_day=2026-01-01 + 1 --define n=5 --define empty= --no-vacuum"
    assert text.startswith(f"--builtin tpcb-like {wanted}")


def test_the_mix_that_an_output_names() -> None:
    mix = (ScriptResult("<builtin: TPC-B (sort of)>", 9, 90), ScriptResult("/tmp/orders.sql", 1, 10))
    result = PgbenchResult("multiple scripts", 1, "simple", 1, 1, 100, 10.0, scripts=mix)
    assert workload_of(result) == "tpcb-like@9+orders@1"
    assert [one["name"] for one in script_fields(result)] == ["tpcb-like", "orders"]
    assert [one["name"] for one in script_fields(result, ["a", "b"])] == ["a", "b"]
    many = tuple(ScriptResult(f"{'x' * 40}{n}", 1) for n in range(60))
    assert workload_of(replace(result, scripts=many)) == "multiple scripts"
    assert workload_of(replace(result, script="<builtin: select only>", scripts=())) == "select-only"


def test_loading() -> None:
    command = plan_init(TARGET, 50, tablespace="fast")
    assert " ".join(command.argv[len(CONNECTION) :]) == (
        "--initialize --init-steps=dtgvp --quiet --scale 50 --tablespace fast --index-tablespace fast bench"
    )
