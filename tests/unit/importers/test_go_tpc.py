"""Imports of go-tpc's output in its three styles."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from importing import FIXTURES, imported, only_cell
from pgstrata.errors import UsageError

PLAIN = (FIXTURES / "go-tpc" / "tpcc.out").read_text()
TPCH = (FIXTURES / "go-tpc" / "tpch.out").read_text()
SUMMARY = {
    found[1]: dict(re.findall(r"([^ ]+): ([\d.]+)", found[2]))
    for found in re.finditer(r"^\[Summary\] (\w+) +- (.*)$", PLAIN, re.MULTILINE)
}
OLD = (
    "[Summary] NEW_ORDER - Takes(s): 60.0, Count: 450, TPM: 450.0, Sum(ms): 13500, Avg(ms): 30, 90th(ms): 64, "
    "99th(ms): 96, 99.9th(ms): 128\n"
    "[Summary] STOCK_LEVEL - Takes(s): 55.6, Count: 25, TPM: 27.0, Sum(ms): 12327, Avg(ms): 493, 90th(ms): 1000, "
    "99th(ms): 1500, 99.9th(ms): 1500\n"
)
COMMAND = "$ ./bin/go-tpc tpcc -d postgres --warehouses 40 -T 16 --time 1m run\n"


def table() -> str:
    names = list(SUMMARY["NEW_ORDER"])
    rows = [["Prefix", "Operation", *names], *(["[Summary]", name, *row.values()] for name, row in SUMMARY.items())]
    rows += [["tpmC", "efficiency"], ["4500.0", "3499.2%"]]
    return "+---+\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n+---+\n"


def as_json() -> str:
    rows = [{"Prefix": "[Summary] ", "Operation": name, **row} for name, row in SUMMARY.items()]
    return f"Finished\n{json.dumps(rows)}\n" + json.dumps([{"tpmC": "4500.0", "efficiency": "3499.2%"}]) + "\n"


class TestTpcc:
    @pytest.mark.parametrize("text", [PLAIN, table(), table().replace("|", "\u2502"), as_json()])
    def test_tpmc_is_no_tps(self, tmp_path: Path, text: str) -> None:
        data = imported("go-tpc", tmp_path, {"xfs=a.out": text})
        result = only_cell(data).result
        assert result.tps is None
        assert result.extra == {"tpmc": 4500.0, "latency_new_order_ms": 30.0}
        assert (result.transactions, result.failed, result.duration_s) == (9610, 20, 60.0)
        assert (result.latency_avg_ms, result.percentiles_ms) == (None, {})
        assert data.campaign.goal.primary == "tpmc"
        assert "does not report which database" in data.campaign.note

    def test_warehouses_follow_from_the_efficiency(self, tmp_path: Path) -> None:
        assert only_cell(imported("go-tpc", tmp_path, {"xfs=a.out": PLAIN})).result.cell.scale == 10

    def test_rounded_efficiency_leaves_warehouses_open(self, tmp_path: Path) -> None:
        text = PLAIN.replace("efficiency: 3499.2%", "efficiency: 0.5%")
        assert only_cell(imported("go-tpc", tmp_path, {"xfs=a.out": text})).result.cell.scale == 0

    def test_the_command_names_warehouses_and_threads(self, tmp_path: Path) -> None:
        cell = only_cell(imported("go-tpc", tmp_path, {"xfs=a.out": COMMAND + PLAIN})).result.cell
        assert (cell.scale, cell.clients) == (40, 16)

    def test_the_first_releases_print_no_tpmc(self, tmp_path: Path) -> None:
        assert only_cell(imported("go-tpc", tmp_path, {"xfs=a.out": OLD})).result.extra["tpmc"] == 450.0

    def test_each_summary_is_a_run(self, tmp_path: Path) -> None:
        second = PLAIN.replace("4500.0", "4400.0")
        data = imported("go-tpc", tmp_path, {"xfs=a.out": PLAIN + second})
        assert [cell.result.extra["tpmc"] for cell in data.cells()] == [4500.0, 4400.0]

    def test_waits_are_another_measurement(self, tmp_path: Path) -> None:
        waits = PLAIN.replace("Finished\n", "Finished\n[Summary] KEYINGTIME-NEW_ORDER - 18.0s\n")
        data = imported("go-tpc", tmp_path, {"xfs=a.out": PLAIN, "xfs=b.out": waits})
        assert sorted(cell.result.cell.script for cell in data.cells()) == [
            "tpcc", "tpcc, with keying and thinking times"
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (PLAIN[: PLAIN.index("[Summary]")], "go-tpc printed no summary"),
            (PLAIN[: PLAIN.index("tpmC")], "the summary of go-tpc is cut"),
            (PLAIN[: PLAIN.index("00.0, efficiency")], "the summary of go-tpc is cut"),
            (PLAIN.replace("Finished", "execute run failed, err ERROR: no space left on device\nFinished"),
             "execute run failed, err ERROR: no space left"),
        ],
    )  # fmt: skip
    def test_incomplete_runs(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            imported("go-tpc", tmp_path, {"xfs=a.out": text})
        data = imported("go-tpc", tmp_path / "both", {"xfs=a.out": text, "xfs=b.out": PLAIN})
        assert sum(data.record.rejected.values()) == 1

    def test_the_end_of_the_time_is_no_error(self, tmp_path: Path) -> None:
        text = PLAIN.replace("Finished", "execute run failed, err context deadline exceeded\nFinished")
        assert only_cell(imported("go-tpc", tmp_path, {"xfs=a.out": text})).result.extra["tpmc"] == 4500.0


class TestTpch:
    def test_times_of_queries(self, tmp_path: Path) -> None:
        data = imported("go-tpc", tmp_path, {"xfs=a.out": TPCH})
        assert only_cell(data).result.extra == {"total_s": 4.0, "q1_s": 2.25, "q10_s": 1.5, "q2_s": 0.25}
        assert data.campaign.goal.primary == "total_s"

    def test_a_time_without_its_unit_is_cut(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="the summary of go-tpc is cut"):
            imported("go-tpc", tmp_path, {"xfs=a.out": TPCH.rstrip("s\n")})

    def test_other_queries_are_another_measurement(self, tmp_path: Path) -> None:
        files = {"xfs=a.out": TPCH, "xfs=b.out": TPCH.replace("[Summary] Q2: 0.25s\n", "")}
        assert len({cell.result.cell.script for cell in imported("go-tpc", tmp_path, files).cells()}) == 2

    def test_tpcc_and_tpch_have_different_metrics(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="measured different metrics: total_s, tpmc"):
            imported("go-tpc", tmp_path, {"xfs=a.out": TPCH, "xfs=b.out": PLAIN})

    def test_queries_beside_transactions(self, tmp_path: Path) -> None:
        text = PLAIN + "[Summary] Q1     - Count: 11, Sum(ms): 42738.2, Avg(ms): 3885.0\nQphH: 100.0\n"
        result = only_cell(imported("go-tpc", tmp_path, {"xfs=a.out": text})).result
        assert (result.cell.script, result.extra["q1_s"], result.transactions) == ("tpcc and queries", 3.885, 9610)
