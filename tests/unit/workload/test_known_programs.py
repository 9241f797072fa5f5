"""go-tpc and sysbench as drivers: what is planned, and what is read of recorded output."""

from __future__ import annotations

from dataclasses import replace

import pytest

from importing import FIXTURES
from pgstrata.errors import PgstrataError, TrialError
from pgstrata.host.protocol import Completed
from pgstrata.spec.drivers import GoTpc, Sysbench
from pgstrata.spec.workload import Workload
from pgstrata.workload.driver import DataRequest, RunOutput, RunRequest, driver_of
from pgstrata.workload.target import Target

TARGET = replace(Target("/opt/pg/bin", 18, "127.0.0.1", 25433, "pgstrata"), passfile="/run/x/passfile")
GO_TPC = Workload.model_validate({"script": "go-tpc", "scale": 3, "clients": 4, "duration": 10})
SYSBENCH = Workload.model_validate({"script": "oltp_read_only", "scale": 3, "clients": 4, "duration": 10.5})
RECORDED = (FIXTURES / "go-tpc" / "tpcc-1.0.12.json").read_text()


def request(workload: Workload) -> RunRequest:
    return RunRequest(TARGET, workload, workload.cells[0], 7, workload.duration_s, "/out")


def test_a_script_or_a_name_chooses_the_driver() -> None:
    assert isinstance(GO_TPC.driver, GoTpc)
    assert isinstance(SYSBENCH.driver, Sysbench)
    assert Workload.model_validate({"driver": "sysbench"}).script == ("oltp_read_write",)
    assert (GO_TPC.driver.primary, SYSBENCH.driver.primary) == ("tpmc", "tps")
    assert (GO_TPC.driver.over_tcp, SYSBENCH.driver.over_tcp) == (True, False)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"driver": "sysbench", "script": "oltp"}, "sysbench has no script 'oltp'"),
        ({"driver": "sysbench", "rate": 5}, "rate means nothing to the driver sysbench"),
        ({"driver": "go-tpc", "transactions": 5}, "transactions means nothing to the driver go-tpc"),
    ],
)
def test_what_a_program_cannot_do_is_refused(asked: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Workload.model_validate(asked)


def test_a_run_of_go_tpc_gets_its_password_from_a_file() -> None:
    run = driver_of(GO_TPC).plan_run(request(GO_TPC))
    words = " ".join(run.argv)
    assert " go-tpc tpcc run --driver postgres --host 127.0.0.1 --port 25433 --user postgres --db postgres " in words
    assert words.endswith("--warehouses 3 --threads 4 --time 10s --interval 1s --output json")
    assert dict(run.env) == {"PGPASSFILE": "/run/x/passfile"}


def test_the_check_of_go_tpc_runs_after_the_load_or_each_run() -> None:
    driver, data = driver_of(GO_TPC), DataRequest(TARGET, GO_TPC, 3)
    assert driver.plan_check(data, fresh=True)[0].argv[-1] == "--check-all"
    assert driver.plan_check(data, fresh=False) == ()
    always = GO_TPC.model_copy(update={"driver": GoTpc(check="runs")})
    assert driver.plan_check(replace(data, workload=always), fresh=False)[0].argv[-2:] == ("--warehouses", "3")


CHECKED = "".join(f"begin to check warehouse 1 at condition 3.3.2.{n}\n" for n in range(1, 12))


@pytest.mark.parametrize("text", ["", "Finished\n", f"{CHECKED}cut", "failed to ping db, err pq: no\nFinished\n"])
def test_a_check_that_did_not_reach_every_condition_is_none(text: str) -> None:
    with pytest.raises(PgstrataError, match="go-tpc did not check the conditions of TPC-C"):
        driver_of(GO_TPC).broken_conditions([Completed(("go-tpc",), 0, text, "", 0.1)])


def test_a_broken_condition_is_told_although_the_program_ends_well() -> None:
    broken = "execute check failed, err check warehouse 1 at condition 3.3.2.4 failed\n"
    driver = driver_of(GO_TPC)
    found = driver.broken_conditions([Completed(("go-tpc",), 0, f"{CHECKED}{broken}Finished\n", "", 0.1)])
    assert found == ["check warehouse 1 at condition 3.3.2.4 failed"]
    assert driver.broken_conditions([Completed(("go-tpc",), 0, f"{CHECKED}Finished\n", "", 0.1)]) == ()


def test_a_recorded_run_of_go_tpc_has_its_own_metric_and_seconds() -> None:
    run = driver_of(GO_TPC).parse_run(RunOutput(RECORDED, "", workload=GO_TPC), GO_TPC.cells[0])
    assert (run.script, run.incomplete) == ("go-tpc", "")
    assert run.figures == {"tpmc": 12075.4, "latency_new_order_ms": pytest.approx(6339.6 / 1184)}
    assert run.result["transactions"] == 104 + 1184 + 121 + 1177 + 107
    first, second = run.progress
    assert first[0] == 1.0
    assert first[1] == pytest.approx((979.2 + 8971.4 + 1201.5 + 9380.7 + 1178.9) / 60)
    assert second[2] == pytest.approx((216.1 + 1093.2 + 21.8 + 462.8 + 128.9) / (17 + 191 + 22 + 176 + 21))


@pytest.mark.parametrize("workload", [GO_TPC, SYSBENCH], ids=["go-tpc", "sysbench"])
@pytest.mark.parametrize("text", ["", "\0\x01garbage", "12\n", '[{"Prefix": 3'])
def test_an_output_without_a_result_is_no_run(workload: Workload, text: str) -> None:
    with pytest.raises(TrialError, match=f"{workload.driver.kind} printed 0 results"):
        driver_of(workload).parse_run(RunOutput(text, "", workload=workload), workload.cells[0])


def test_sysbench_runs_a_script_on_its_tables() -> None:
    driver = driver_of(SYSBENCH)
    run = driver.plan_run(request(SYSBENCH))
    assert run.argv[-1] == "run"
    assert {"oltp_read_only", "--tables=3", "--threads=4", "--time=11", "--rand-seed=7"} < set(run.argv)
    prepare, vacuum = driver.plan_load(DataRequest(TARGET, SYSBENCH, 3))
    assert (prepare.argv[0], prepare.argv[-1]) == ("sysbench", "prepare")
    assert vacuum.stdin == "VACUUM ANALYZE;\n"
    output = RunOutput((FIXTURES / "sysbench" / "read-write.out").read_text(), "", workload=SYSBENCH)
    found = driver.parse_run(output, SYSBENCH.cells[0])
    assert found.script == "oltp_read_only"
    assert found.figures["tps"] > 0
    fatal = RunOutput((FIXTURES / "sysbench" / "fatal.out").read_text(), "", workload=SYSBENCH)
    assert "FATAL" in driver.parse_run(fatal, SYSBENCH.cells[0]).incomplete
