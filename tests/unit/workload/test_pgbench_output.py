"""pgbench's output of majors 13 to 18: see tests/fixtures/pgbench; lines beginning with # say where a file is from."""

from pathlib import Path

import pytest

from pgstrata.workload.pgbench_output import (
    PgbenchOutputError,
    parse_init,
    parse_progress,
    parse_result,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "pgbench"
RECORDED = (15, 16, 18)


def read(name: str) -> str:
    lines = (FIXTURES / name).read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# "))


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.out")), ids=lambda p: p.name)
def test_every_recorded_result_is_understood(path: Path) -> None:
    result = parse_result(read(path.name))
    assert result.clients >= 1
    assert (result.tps > 0) == (result.transactions > 0)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.err")), ids=lambda p: p.name)
def test_every_recorded_error_output_is_understood(path: Path) -> None:
    if "-init" in path.name:
        times = parse_init(read(path.name))
        assert times.phases_s
        assert sum(times.phases_s.values()) == pytest.approx(times.total_s, abs=0.04)
    else:
        progress = parse_progress(read(path.name))
        assert progress.rows or progress.messages


def test_all_majors_have_fixtures() -> None:
    for kind in ("init.err", "tpcb-progress.out", "tpcb-progress.err"):
        assert {p.name.split("-")[0] for p in FIXTURES.glob(f"*-{kind}")} == {str(m) for m in range(13, 19)}


def test_tps_is_without_connections_in_13_too() -> None:
    result = parse_result(read("13-tpcb-progress.out"))
    assert (result.tps, result.tps_with_connections) == (592.724062, 592.722139)
    assert result.version is None
    assert result.initial_connection_ms is None
    assert (result.latency_avg_ms, result.latency_stddev_ms) == (13.493, 15.117)


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18])
def test_a_mix_of_scripts(major: int) -> None:
    result = parse_result(read(f"{major}-mix.out"))
    orders, report = result.scripts
    assert [(one.name, one.weight) for one in result.scripts] == [("orders.sql", 9), ("report.sql", 1)]
    assert orders.transactions + report.transactions == result.transactions
    assert orders.tps + report.tps == pytest.approx(result.tps, abs=1e-4)
    assert orders.latency_avg_ms
    assert orders.latency_stddev_ms
    assert report.latency_avg_ms
    assert report.latency_stddev_ms


@pytest.mark.parametrize("major", [13, 15, 16, 18])
def test_scripts_of_a_mix_without_the_skipped_transactions(major: int) -> None:
    result = parse_result(read(f"{major}-mix-rate.out"))
    assert sum(one.transactions for one in result.scripts) == result.transactions
    assert sum(one.skipped for one in result.scripts) == result.skipped > 0


@pytest.mark.parametrize("major", [15, 16, 18])
def test_a_script_of_a_mix_that_never_ran(major: int) -> None:
    rare = parse_result(read(f"{major}-mix-rare.out")).scripts[1]
    assert (rare.name, rare.weight, rare.transactions, rare.tps) == ("report.sql", 1, 0, 0.0)
    assert rare.latency_avg_ms is None


def test_rate_limit_and_latency_limit_in_18() -> None:
    result = parse_result(read("18-late-skipped.out"))
    assert (result.transactions, result.skipped, result.late) == (9292, 50787, 9249)
    assert (result.latency_limit_ms, result.lag_avg_ms, result.lag_max_ms) == (2.0, 1.950, 2.000)
    assert (result.initial_connection_ms, result.version) == (3.624, "18.4")
    rows = parse_progress(read("18-late-skipped.err")).rows
    assert [row.skipped for row in rows] == [16820, 16764, 17203]
    assert [row.lag_ms for row in rows] == [1.951, 1.950, 1.950]


def test_late_and_skipped_in_13() -> None:
    result = parse_result(read("13-late-skipped.out"))
    assert (result.skipped, result.late, result.lag_max_ms) == (12, 11, 4.915)
    assert [s.name for s in result.scripts] == ["<builtin: TPC-B (sort of)>", "<builtin: select only>"]
    assert [s.skipped for s in result.scripts] == [8, 4]
    assert [row.failed for row in parse_progress(read("13-late-skipped.err")).rows] == [None, None]


@pytest.mark.parametrize("major", RECORDED)
def test_failures_and_retries(major: int) -> None:
    result = parse_result(read(f"{major}-retries.out"))
    assert result.max_tries == 3
    assert result.failed > 0
    assert result.retries >= result.retried > 0
    rows = parse_progress(read(f"{major}-retries.err")).rows
    assert sum(row.failed or 0 for row in rows) == pytest.approx(result.failed, abs=10)
    assert all(row.retried for row in rows)


@pytest.mark.parametrize("major", RECORDED)
def test_several_scripts(major: int) -> None:
    result = parse_result(read(f"{major}-report-scripts.out"))
    first, second = result.scripts
    assert (first.weight, second.weight) == (2, 1)
    assert first.transactions + second.transactions == result.transactions
    assert first.tps + second.tps == pytest.approx(result.tps, rel=0.02)


@pytest.mark.parametrize("major", RECORDED)
def test_reconnecting_run(major: int) -> None:
    result = parse_result(read(f"{major}-connect.out"))
    assert result.average_connection_ms is not None
    assert result.initial_connection_ms is None


@pytest.mark.parametrize("major", RECORDED)
def test_unix_time_stamps_count_from_the_start(major: int) -> None:
    progress = parse_progress(read(f"{major}-timestamp.err"))
    assert [round(row.t_s) for row in progress.rows] == [1, 2]
    assert progress.started_epoch_s == pytest.approx(1_795_266_220, abs=60)


@pytest.mark.parametrize("major", RECORDED)
def test_an_aborted_run_has_no_throughput_and_says_why(major: int) -> None:
    result = parse_result(read(f"{major}-client-aborted.out"))
    assert (result.transactions, result.tps, result.latency_avg_ms) == (0, 0.0, None)
    assert any("division by zero" in m for m in parse_progress(read(f"{major}-client-aborted.err")).messages)


def test_transactions_per_client() -> None:
    result = parse_result(read("16-simple-transactions.out"))
    assert (result.transactions_per_client, result.transactions, result.transactions_planned) == (50, 100, 100)
    assert result.duration_s is None


def test_phases_of_loading() -> None:
    times = parse_init(read("18-init-fk.err"))
    assert list(times.phases_s) == [
        "drop tables", "create tables", "client-side generate", "vacuum", "primary keys", "foreign keys",
    ]  # fmt: skip
    assert times.total_s == 0.21
    assert "server-side generate" in parse_init(read("15-init-server-side.err")).phases_s


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no script"),
        ("transaction type: <builtin: select only>\n", "not complete"),
        ("a line of its own\n", "'a line of its own'"),
    ],
)
def test_incomplete_or_unknown_results_are_errors(text: str, message: str) -> None:
    with pytest.raises(PgbenchOutputError, match=message):
        parse_result(text)


def test_a_cut_off_result_is_an_error() -> None:
    lines = read("18-tpcb-progress.out").splitlines()
    for kept in range(len(lines)):
        with pytest.raises(PgbenchOutputError):
            parse_result("\n".join(lines[:kept]))


def test_two_results_in_one_text_are_an_error() -> None:
    with pytest.raises(PgbenchOutputError, match="twice"):
        parse_result(read("18-connect.out") + read("18-retries.out"))


def test_unknown_progress_and_loading_lines_are_errors() -> None:
    with pytest.raises(PgbenchOutputError, match="not understood"):
        parse_progress("progress: 1.0 s, many tps\n")
    with pytest.raises(PgbenchOutputError, match="not understood"):
        parse_init("inventing data...\n")
    with pytest.raises(PgbenchOutputError, match="did not say"):
        parse_init("creating tables...\n")
    with pytest.raises(PgbenchOutputError, match="phase"):
        parse_init("done in 1.00 s (sleeping).\n")


@pytest.mark.parametrize(
    "said",
    [
        "NOTICE:  slow path\nfor 4",
        "INFO:  info 4",
        "LOG:  statement: SELECT 1\nCONTEXT:  SQL statement",
        "debug(script=0,command=5): double 1.4142135623730951",
    ],
)
def test_lines_of_the_server_and_the_script_are_messages(said: str) -> None:
    progress = parse_progress(f"{said}\nprogress: 1.0 s, 5.0 tps, lat 1.0 ms stddev 0.5\n")
    assert progress.messages == tuple(said.splitlines())
    assert [row.tps for row in progress.rows] == [5.0]
    assert progress.messages_cut == 0


def test_messages_are_bounded_and_what_was_cut_is_counted() -> None:
    progress = parse_progress("INFO:  " + "x" * 9000 + "\n" + "INFO:  more\n" * 999)
    assert (len(progress.messages), progress.messages_cut) == (200, 800)
    assert max(map(len, progress.messages)) == 400
