"""Imports of BenchBase's summary, samples, results and raw data."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from importing import FIXTURES, imported, imported_from, only_cell
from pgstrata.analyze.campaign.judge import judge
from pgstrata.errors import UsageError
from pgstrata.report.terminal import render_terminal

FOLDER = FIXTURES / "benchbase"
BASE = "tpcc_2024-05-02_10-11-12"
RESULTS = (
    "Time (seconds),Throughput (requests/second),Average Latency (millisecond),Minimum Latency (millisecond),"
    "25th Percentile Latency (millisecond),Median Latency (millisecond),75th Percentile Latency (millisecond),"
    "90th Percentile Latency (millisecond),95th Percentile Latency (millisecond),99th Percentile Latency (millisecond),"
    "Maximum Latency (millisecond),tp (req/s) scaled\n"
    "0,800.200,10.000,1.0,2.0,8.0,12.0,20.0,26.0,47.0,80.0,100.000\n"
    "5,799.800,11.000,1.0,2.0,8.0,12.0,20.0,26.0,47.0,80.0,90.909\n"
    "10,90.000,11.000,1.0,2.0,8.0,12.0,20.0,26.0,47.0,80.0,90.909\n"
)


def recorded(kind: str) -> str:
    return (FOLDER / f"{BASE}.{kind}").read_text()


def summary(**changes: Any) -> str:
    """A summary with other values; None removes a field."""
    value = json.loads(recorded("summary.json")) | changes
    return json.dumps({key: one for key, one in value.items() if one is not None}, indent=4)


class TestSummary:
    def test_requests_keep_their_name(self, tmp_path: Path) -> None:
        data = imported_from("benchbase", [f"xfs={FOLDER / BASE}.summary.json"], tmp_path / "out")
        cell = only_cell(data)
        assert cell.result.tps is None
        assert cell.result.extra == {"throughput_rps": 850.0, "goodput_rps": 843.25}
        assert (cell.result.latency_avg_ms, cell.result.transactions, cell.result.duration_s) == (9.411, 3400, 4.0)
        assert cell.result.percentiles_ms == {"p50": 7.25, "p90": 20.1, "p95": 26.3, "p99": 48.7}
        assert (cell.result.cell.script, cell.result.cell.scale, cell.result.cell.clients) == ("tpcc", 20, 8)
        assert data.campaign.goal.primary == "throughput_rps"
        assert "does not report a rate limit" in data.campaign.note
        assert "did not succeed" not in data.campaign.note

    def test_samples_beside_it_are_its_seconds(self, tmp_path: Path) -> None:
        cell = only_cell(imported_from("benchbase", [f"xfs={FOLDER / BASE}.summary.json"], tmp_path / "out"))
        assert cell.table("progress")["t_s"].tolist() == [1.0, 2.0, 3.0, 4.0]
        assert cell.table("progress")["tps"].tolist() == [900.0, 880.0, 0.0, 860.0]
        assert cell.table("progress")["latency_ms"].tolist() == pytest.approx([9.0, 9.1, math.nan, 9.3], nan_ok=True)

    def test_a_release_without_state_and_elapsed_time(self, tmp_path: Path) -> None:
        old = {"Final State": None, "Elapsed Time (nanoseconds)": None, "Measured Requests": None}
        result = only_cell(imported("benchbase", tmp_path, {"xfs=a.json": summary(**old)})).result
        assert (result.extra["throughput_rps"], result.duration_s, result.transactions) == (850.0, 0.0, 0)

    def test_requests_that_failed_are_named(self, tmp_path: Path) -> None:
        text = summary(**{"Goodput (requests/second)": 425.0})
        data = imported("benchbase", tmp_path, {"xfs=a.json": text})
        assert "50 % of the requests did not succeed" in data.campaign.note
        good = imported("benchbase", tmp_path / "good", {"xfs=a.json": text}, metric="goodput_rps")
        assert good.campaign.goal.primary == "goodput_rps"

    def test_latency_of_no_request_is_not_known(self, tmp_path: Path) -> None:
        text = summary(**{"Latency Distribution": {"Average Latency (microseconds)": -1}})
        assert only_cell(imported("benchbase", tmp_path, {"xfs=a.json": text})).result.latency_avg_ms is None

    def test_isolation_levels_are_cells_of_their_own(self, tmp_path: Path) -> None:
        files = {"xfs=a.json": summary(), "xfs=b.json": summary(isolation="TRANSACTION_READ_COMMITTED")}
        assert len({cell.result.cell.script for cell in imported("benchbase", tmp_path, files).cells()}) == 2

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (summary(**{"Final State": "ERROR"}), "a worker of BenchBase ended with an error"),
            (summary(**{"DBMS Type": "MYSQL"}), "a run on MYSQL, not on PostgreSQL"),
            (summary(**{"Throughput (requests/second)": 0.0}), "its throughput_rps is 0"),
            (recorded("summary.json")[:-30], "no whole summary of BenchBase"),
            ('{"Latency Distribution": {}, "x": "Throughput (requests/second)"}', "a summary of BenchBase without"),
        ],
    )
    def test_what_is_no_whole_run_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            imported("benchbase", tmp_path, {"xfs=a.json": text})

    def test_the_report_names_the_unit(self, tmp_path: Path) -> None:
        texts = {
            f"{stack}={stack}{n}.json": summary(**{"Throughput (requests/second)": level + n})
            for stack, level in (("xfs", 800), ("ext4", 600))
            for n in range(4)
        }
        data = imported("benchbase", tmp_path, texts)
        shown = render_terminal(data, judge(data), width=200)
        assert "req/s" in shown
        assert "TPS" not in shown


class TestTables:
    def test_samples_alone(self, tmp_path: Path) -> None:
        result = only_cell(imported("benchbase", tmp_path, {f"xfs={BASE}.samples.csv": recorded("samples.csv")})).result
        assert (result.extra["throughput_rps"], result.duration_s, result.transactions) == (660.0, 4.0, 2640)
        assert result.latency_avg_ms == pytest.approx((900 * 9.0 + 880 * 9.1 + 860 * 9.3) / 2640)
        assert result.cell.script == "tpcc"

    def test_results_of_five_seconds(self, tmp_path: Path) -> None:
        data = imported("benchbase", tmp_path, {"xfs=ycsb.results.csv": RESULTS})
        assert only_cell(data).result.extra["throughput_rps"] == 800.0
        assert "progress every 5 s" in data.campaign.note

    def test_raw_data(self, tmp_path: Path) -> None:
        cell = only_cell(imported("benchbase", tmp_path, {f"xfs={BASE}.raw.csv": recorded("raw.csv")}))
        assert (cell.result.extra["throughput_rps"], cell.result.transactions) == (2.0, 4)
        assert (cell.result.latency_avg_ms, cell.result.percentiles_ms["p50"]) == (350.0, 500.0)
        assert cell.result.cell.clients == 2
        assert cell.table("progress")["tps"].tolist() == [3.0, 1.0]

    def test_phases_are_runs_of_their_own(self, tmp_path: Path) -> None:
        text = recorded("raw.csv") + "1,NewOrder,1714644690.0,500000,0,1\n1,NewOrder,1714644691.0,500000,1,1\n"
        assert len(list(imported("benchbase", tmp_path, {"xfs=a.raw.csv": text}).cells())) == 2

    def test_a_torn_last_line_is_counted(self, tmp_path: Path) -> None:
        data = imported("benchbase", tmp_path, {"xfs=a.raw.csv": recorded("raw.csv") + "1,NewOrder,17146"})
        assert data.record.rejected == {"torn last line of a table": 1}

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("a.raw.csv", recorded("raw.csv").replace("2.100000,", "2.100000;"), "line 3 is not a row"),
            ("a.samples.csv", recorded("samples.csv").replace("880.000", "880,000"), "line 3 is not a row"),
            ("a.raw.csv", recorded("raw.csv").splitlines()[0] + "\n", "no request was measured"),
            ("a.samples.csv", "\n".join(recorded("samples.csv").splitlines()[:2]) + "\n", "no whole window"),
            ("tpcc.results.NewOrder.csv", RESULTS, "the requests of one type of transaction"),
        ],
    )
    def test_damaged_tables(self, tmp_path: Path, name: str, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            imported("benchbase", tmp_path, {f"xfs={name}": text})
