"""Imports of other tools: what all of them share, and sysbench and HammerDB."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from importing import BY_NAME, FIXTURES, imported, only_cell
from pgstrata.analyze.campaign.judge import judge
from pgstrata.errors import UsageError
from pgstrata.importers.csv_runs import import_csv
from pgstrata.importers.tool_runs import import_tool
from pgstrata.record.reader import CampaignData, read
from pgstrata.report.html import html_text
from pgstrata.report.markdown import render_markdown
from pgstrata.report.render import render_csv, render_json
from pgstrata.report.terminal import render_terminal

SYSBENCH = FIXTURES / "sysbench"

HAMMERDB = (FIXTURES / "hammerdb" / "tproc-c.log").read_text()


def hammerdb(nopm: int = 18664, tpm: int = 43386) -> str:
    return HAMMERDB.replace("18664", str(nopm)).replace("43386", str(tpm))


def recorded(name: str) -> str:
    return (SYSBENCH / f"{name}.out").read_text()


class TestSysbench:
    def test_figures_are_those_of_the_final_report(self, tmp_path: Path) -> None:
        result = only_cell(imported("sysbench", tmp_path, {"xfs=a.out": recorded("read-write")})).result
        assert (result.tps, result.transactions, result.retried, result.duration_s) == (138.51, 834, 43, 6.021)
        assert (result.latency_avg_ms, result.percentiles_ms, result.cell.clients) == (28.82, {"p95": 27.66}, 4)
        assert result.failed == 0

    def test_seconds_are_those_of_the_intermediate_reports(self, tmp_path: Path) -> None:
        cell = only_cell(imported("sysbench", tmp_path, {"xfs=a.out": recorded("read-write")}))
        assert cell.table("progress")["tps"].tolist() == [389.72, 264.05, 4.0, 66.95, 84.93, 20.03]
        assert np.isnan(cell.table("progress")["latency_ms"]).sum() == 6  # sysbench prints a percentile, no mean

    def test_checkpoint_reports_are_no_runs_and_begin_the_counters_anew(self, tmp_path: Path) -> None:
        cell = only_cell(imported("sysbench", tmp_path, {"xfs=a.out": recorded("checkpoint")}))
        assert (cell.result.tps, cell.result.transactions) == (661.70, 1331)
        assert cell.result.duration_s == pytest.approx(2.0116)
        assert cell.table("progress")["t_s"].tolist() == [1.0, 2.0]

    def test_a_rate_limit_is_an_open_loop_and_latency_is_compared(self, tmp_path: Path) -> None:
        data = imported("sysbench", tmp_path, {"xfs=a.out": recorded("rate")})
        cell = only_cell(data)
        assert (cell.result.cell.rate_tps, cell.result.open_loop) == (50.0, True)
        assert cell.result.percentiles_ms == {"p99": 41.85}
        assert data.campaign.goal.primary == "latency_avg_ms"

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("cut", "printed no final report, and stack 'xfs' has no other run"),
            ("fatal", "FATAL: Connection to database failed"),
            ("cpu", "a test of sysbench without a database"),
        ],
    )
    def test_incomplete_runs_are_refused(self, tmp_path: Path, name: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            imported("sysbench", tmp_path, {"xfs=a.out": recorded(name)})

    def test_incomplete_runs_are_counted_where_others_are_left(self, tmp_path: Path) -> None:
        whole = recorded("read-write")
        head = whole[: whole.index("General statistics")]
        data = imported("sysbench", tmp_path, {"xfs=a.out": whole + recorded("cut") + whole, "xfs=b.out": head})
        assert len(list(data.cells())) == 2
        assert data.record.rejected == {
            "run: sysbench printed no final report": 1,
            "run: the final report of sysbench is cut": 1,
        }

    def test_0_5_prints_other_words(self, tmp_path: Path) -> None:
        text = (
            "sysbench 0.5:  multi-threaded system evaluation benchmark\n\n"
            "Running the test with following options:\nNumber of threads: 8\n\n"
            "[   1s] threads: 8, tps: 866.00, reads: 12121.9, writes: 3463.0, response time: 13.5ms (95%)\n"
            "OLTP test statistics:\n    queries performed:\n        read:  121296\n        write: 34656\n"
            "        other: 17328\n        total: 173280\n    transactions:      8664   (866.12 per sec.)\n"
            "    ignored errors:    3      (0.00 per sec.)\n\nGeneral statistics:\n    total time:   10.0032s\n"
            "    response time:\n         min:   3.77ms\n         avg:   9.23ms\n         max:   82.51ms\n"
            "         approx.  95 percentile:   14.00ms\n"
        )
        result = only_cell(imported("sysbench", tmp_path, {"xfs=a.out": text})).result
        assert (result.tps, result.latency_avg_ms, result.percentiles_ms) == (866.12, 9.23, {"p95": 14.0})
        assert (result.retried, result.cell.clients) == (3, 8)

    def test_latency_without_a_unit_is_not_known(self, tmp_path: Path) -> None:
        text = recorded("read-write").replace("Latency (ms):", "Latency:")
        assert only_cell(imported("sysbench", tmp_path, {"xfs=a.out": text})).result.latency_avg_ms is None

    @pytest.mark.parametrize(("unit", "factor"), [("us", 0.001), ("s", 1000.0)])
    def test_latency_in_another_unit(self, tmp_path: Path, unit: str, factor: float) -> None:
        text = recorded("read-write").replace("Latency (ms):", f"Latency ({unit}):")
        result = only_cell(imported("sysbench", tmp_path, {"xfs=a.out": text})).result
        assert result.latency_avg_ms == pytest.approx(28.82 * factor)

    def test_a_decimal_comma_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="the final report of sysbench is cut"):
            imported("sysbench", tmp_path, {"xfs=a.out": recorded("read-write").replace(".", ",")})

    def test_runs_of_other_queries_are_cells_of_their_own(self, tmp_path: Path) -> None:
        files = {"xfs=a.out": recorded("read-write"), "xfs=b.out": recorded("checkpoint")}
        scripts = sorted(cell.result.cell.script for cell in imported("sysbench", tmp_path, files).cells())
        assert scripts == [
            "sysbench, read-only, 16 queries, 2 clients",
            "sysbench, read-write, 21 queries, 4 clients",
        ]

    def test_the_script_is_that_of_the_command_in_the_file(self, tmp_path: Path) -> None:
        text = "$ sysbench --threads=4 /usr/share/sysbench/oltp_read_write.lua run\n" + recorded("read-write")
        assert only_cell(imported("sysbench", tmp_path, {"xfs=a.out": text})).result.cell.script == "oltp_read_write"

    def test_reports_every_ten_seconds_say_nothing_of_single_seconds(self, tmp_path: Path) -> None:
        text = recorded("read-write")
        for second in range(6, 0, -1):
            text = text.replace(f"[ {second}s ]", f"[ {second * 10}s ]")
        data = imported("sysbench", tmp_path, {"xfs=a.out": text.replace("6.0210s", "60.0210s")})
        assert "progress every 10 s" in data.campaign.note

    def test_carriage_returns_and_prefixes(self, tmp_path: Path) -> None:
        text = "".join(f"bench-1  | {line}\r\n" for line in recorded("read-write").splitlines())
        assert only_cell(imported("sysbench", tmp_path, {"xfs=a.out": text})).result.tps == 138.51


class TestHammerDB:
    def test_nopm_and_tpm_keep_their_names(self, tmp_path: Path) -> None:
        data = imported("hammerdb", tmp_path, {"xfs=a.log": hammerdb()})
        result = only_cell(data).result
        assert result.tps is None
        assert result.extra == {"nopm": 18664.0, "tpm": 43386.0}
        assert (result.cell.clients, result.duration_s, data.campaign.goal.primary) == (8, 300.0, "nopm")

    def test_the_old_order_of_the_words(self, tmp_path: Path) -> None:
        text = (
            "Vuser 1:Beginning rampup time of 2 minutes\nVuser 1:Timing test period of 5 in minutes\n"
            "Vuser 1:5 Virtual Users configured\n"
            "Vuser 1:TEST RESULT : System achieved 250134 PostgreSQL TPM at 108742 NOPM\n"
        )
        result = only_cell(imported("hammerdb", tmp_path, {"xfs=a.log": text})).result
        assert (result.extra, result.cell.clients) == ({"nopm": 108742.0, "tpm": 250134.0}, 4)

    @pytest.mark.parametrize(
        "job",
        [
            ["6612DCDE615803E293338333", "2024-04-07 17:51:26", "8 Active Virtual Users configured",
             "TEST RESULT : System achieved 18664 NOPM from 43386 PostgreSQL TPM"],
            ["0", "Vuser 1:RUNNING", "1", "Beginning rampup time of 2 minutes",
             "1", "Timing test period of 5 in minutes", "1", "8 Active Virtual Users configured",
             "1", "TEST RESULT : System achieved 18664 NOPM from 43386 PostgreSQL TPM",
             "0", "Vuser 1:FINISHED SUCCESS"],
        ],
    )  # fmt: skip
    def test_json_of_a_job(self, tmp_path: Path, job: list[str]) -> None:
        result = only_cell(imported("hammerdb", tmp_path, {"xfs=a.json": json.dumps(job, indent=2)})).result
        assert (result.extra["nopm"], result.cell.clients) == (18664.0, 8)

    def test_json_of_several_jobs(self, tmp_path: Path) -> None:
        lines = ["8 Active Virtual Users configured", "TEST RESULT : System achieved 100 NOPM from 200 PostgreSQL TPM"]
        data = imported("hammerdb", tmp_path, {"xfs=a.json": json.dumps({"A": lines, "B": lines})})
        assert len(list(data.cells())) == 2

    def test_each_result_of_a_log_is_a_run(self, tmp_path: Path) -> None:
        data = imported("hammerdb", tmp_path, {"xfs=a.log": hammerdb(100) + hammerdb(200) + hammerdb(300)})
        assert [cell.result.extra["nopm"] for cell in data.cells()] == [100.0, 200.0, 300.0]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (hammerdb().replace("Vuser 1:FINISHED SUCCESS", "Vuser 3:FINISHED FAILED"), "Vuser 3:FINISHED FAILED"),
            (hammerdb()[: hammerdb().index("Vuser 1:TEST RESULT")], "HammerDB printed no TEST RESULT"),
            (hammerdb().replace("PostgreSQL TPM", "SQL Server TPM"), "a run on SQL Server, not on PostgreSQL"),
            (hammerdb(0), "its nopm is 0, and stack 'xfs' has no other run"),
            ("Vuser 1:Completed 1 query set(s) in 123 seconds\n", "a TPROC-H run"),
            ('{"NEWORD": {"elapsed_ms": "299839.0", "calls": "9331"}}', "response times without the result"),
            ('["TEST RESULT : System achieved 1 NOPM from 2 PostgreSQL TPM"', "neither a log nor the JSON"),
            ("Hammerdb Log @ Sun Apr 07\n", "no result of HammerDB"),
        ],
    )
    def test_what_is_no_whole_run_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            imported("hammerdb", tmp_path, {"xfs=a.log": text})

    def test_a_run_cut_by_the_next_is_counted(self, tmp_path: Path) -> None:
        cut = hammerdb()[: hammerdb().index("Vuser 1:TEST RESULT")]
        data = imported("hammerdb", tmp_path, {"xfs=a.log": cut + hammerdb(200)})
        assert [cell.result.extra["nopm"] for cell in data.cells()] == [200.0]
        assert data.record.rejected == {"run: HammerDB printed no TEST RESULT": 1}


class TestReports:
    def campaign(self, tmp_path: Path) -> CampaignData:
        return imported(
            "hammerdb",
            tmp_path,
            {
                "ext4=a.log": "".join(hammerdb(n) for n in (18664, 18710, 18601, 18690)),
                "xfs=b.log": "".join(hammerdb(n) for n in (12664, 12810, 12701, 12699)),
            },
        )

    def test_nopm_is_compared_and_nowhere_called_tps(self, tmp_path: Path) -> None:
        data = self.campaign(tmp_path)
        findings = judge(data)
        for text in (render_terminal(data, findings, width=200), render_markdown(data, findings)):
            assert "NOPM" in text
            for word in ("TPS", "tps", "hroughput", "faster", "a second"):
                assert word not in text
        assert json.loads(render_json(findings))["campaign"]["primary"] == "nopm"
        assert '"tps"' not in json.dumps(json.loads(render_json(findings))["cells"])
        page = html_text(data, findings)
        assert '<th scope="col" class="num">NOPM</th>' in page
        assert "Ours, TPS" not in page

    def test_its_own_table_is_taken_back_by_its_metric(self, tmp_path: Path) -> None:
        data = self.campaign(tmp_path)
        (tmp_path / "own.csv").write_text(render_csv(data))
        with pytest.raises(UsageError, match="no row with a run that has tps"):
            import_csv(tmp_path / "own.csv", tmp_path / "again")
        import_csv(tmp_path / "own.csv", tmp_path / "again", metric="nopm")
        again = read(tmp_path / "again")
        assert [c.result.extra for c in again.cells()] == [c.result.extra for c in data.cells()]
        assert all(c.result.tps is None for c in again.cells())

    def test_a_table_may_have_another_metric_than_tps(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("stack,geomean_s\nxfs,1.5\next4,1.2\nxfs,1.6\next4,1.1\n")
        import_csv(tmp_path / "t.csv", tmp_path / "out", metric="geomean_s")
        assert read(tmp_path / "out").campaign.goal.primary == "geomean_s"


class TestAll:
    def test_a_file_of_another_tool_is_refused_with_its_import(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError) as caught:
            imported("sysbench", tmp_path, {"xfs=a.log": hammerdb()})
        assert caught.value.hint == "the file is of another tool: pgstrata import hammerdb"

    def test_a_metric_that_the_runs_do_not_have(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError) as caught:
            imported("hammerdb", tmp_path, {"xfs=a.log": hammerdb()}, metric="tps")
        assert "it has no tps" in caught.value.message
        assert caught.value.hint == "these runs have: --metric nopm or tpm"

    def test_another_metric_may_be_compared(self, tmp_path: Path) -> None:
        assert imported("hammerdb", tmp_path, {"xfs=a.log": hammerdb()}, metric="tpm").campaign.goal.primary == "tpm"

    def test_huge_files_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pgstrata.importers.source.LARGEST_FILE_BYTES", 100)
        with pytest.raises(UsageError, match="is larger than"):
            imported("hammerdb", tmp_path, {"xfs=a.log": hammerdb()})

    @pytest.mark.parametrize("source", ["xfs=", "xfs=nowhere.log"])
    def test_files_that_cannot_be_read(self, tmp_path: Path, source: str) -> None:
        with pytest.raises(UsageError):
            import_tool(BY_NAME["sysbench"], [source], tmp_path / "out")
