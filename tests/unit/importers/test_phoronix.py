"""Imports of results of the Phoronix Test Suite: composite.xml and the JSON exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from importing import FIXTURES, imported, only_cell
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.errors import UsageError
from pgstrata.report.terminal import render_terminal

XML = (FIXTURES / "phoronix" / "composite.xml").read_text()
TEMPERATURE = XML[XML.rindex("  <Result>") : XML.index("</PhoronixTestSuite>")]


def one_result(scale: str, proportion: str, raw: str = "10:11:12", display: str = "BAR_GRAPH") -> str:
    return (
        '<?xml version="1.0"?><PhoronixTestSuite><Result><Identifier>pts/sqlite-2.1.0</Identifier>'
        f"<Arguments>1</Arguments><Scale>{scale}</Scale><Proportion>{proportion}</Proportion>"
        f"<DisplayFormat>{display}</DisplayFormat><Data><Entry><Identifier>xfs</Identifier><Value>11</Value>"
        f"<RawString>{raw}</RawString></Entry></Data></Result></PhoronixTestSuite>"
    )


def export(**changes: Any) -> str:
    """An export with the better direction."""
    result = {
        "identifier": "pts/pgbench-1.14.0",
        "title": "PostgreSQL",
        "arguments": "-s 100",
        "description": "Scaling Factor: 100",
        "scale": "TPS",
        "proportion": "HIB",
        "display_format": "BAR_GRAPH",
        "results": {"xfs": {"value": 2010, "raw_values": [2000.5, 2019.5]}, "ext4": {"value": 1810}},
    }
    return json.dumps({"title": "t", "systems": {}, "results": {"0a1b": result | changes}}, indent=4)


def old_export() -> str:
    """An older export: a list, texts with colons, and no better direction."""
    result = {
        "test": "pts/pgbench-1.8.4",
        "arguments": "Scaling: Buffer Test",
        "units": "TPS",
        "results": {"xfs": {"value": "2010", "all_results": "2000:2020"}},
    }
    return json.dumps({"title": "t", "results": [result]})


class TestXml:
    def test_systems_are_stacks_and_raw_values_runs(self, tmp_path: Path) -> None:
        data = imported("phoronix", tmp_path, {"=composite.xml": XML})
        found = sorted((cell.stack, cell.result.tps, cell.result.latency_avg_ms) for cell in data.cells())
        assert found == [
            ("ext4", 1800.0, 27.7), ("ext4", 1820.0, 27.5),
            ("xfs", 2000.5, 24.99), ("xfs", 2010.25, 24.87), ("xfs", 2019.75, 24.76),
        ]  # fmt: skip
        assert {cell.result.cell.script for cell in data.cells()} == {
            "pts/pgbench-1.14.0 Scaling Factor: 100 - Clients: 50 - Mode: Read Write"
        }
        assert data.record.rejected == {"result: LINE_GRAPH is no figure of a run": 1}

    @pytest.mark.parametrize(
        ("scale", "proportion", "metric", "better"),
        [
            ("Seconds", "LIB", "time_s", "lower"),
            ("MB/s", "HIB", "mb_per_s", "higher"),
            ("New Orders Per Minute", "HIB", "nopm", "higher"),
            ("Frames Per Second", "HIB", "frames_per_second_higher_is_better", "higher"),
            ("runs/s", "HIB", "runs_per_s_higher_is_better", "higher"),
            ("Nodes Visited", "LIB", "nodes_visited_lower_is_better", "lower"),
            ("Seconds", "HIB", "seconds_higher_is_better", "higher"),
        ],
    )
    def test_unit_and_direction_are_those_of_the_file(
        self, tmp_path: Path, scale: str, proportion: str, metric: str, better: str
    ) -> None:
        data = imported("phoronix", tmp_path, {"=composite.xml": one_result(scale, proportion)})
        assert [cell.result.extra for cell in data.cells()] == [{metric: 10.0}, {metric: 11.0}, {metric: 12.0}]
        assert data.campaign.goal.primary == metric
        assert metric_of(metric).better == better

    def test_the_report_shows_the_unit(self, tmp_path: Path) -> None:
        fast, slow = one_result("Nodes Visited", "LIB"), one_result("Nodes Visited", "LIB", "20:21:22:20:21")
        data = imported("phoronix", tmp_path, {"a=a.xml": fast.replace("12<", "12:10:11<"), "b=b.xml": slow})
        shown = render_terminal(data, judge(data), width=200)
        assert "nodes visited" in shown
        assert "TPS" not in shown

    def test_an_entry_without_raw_values_is_one_run(self, tmp_path: Path) -> None:
        data = imported("phoronix", tmp_path, {"=a.xml": one_result("TPS", "HIB", raw="")})
        assert only_cell(data).result.tps == 11.0

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (XML[:1500], "no whole XML"),
            ("<!DOCTYPE x [<!ENTITY a 'a'>]>" + XML, "a document type"),
            ("<PhoronixTestSuite><Benchmark/></PhoronixTestSuite>", "in the form of old releases"),
            ("<PhoronixTestSuite>" + TEMPERATURE + "</PhoronixTestSuite>", "LINE_GRAPH is no figure of a run"),
            (one_result("Score", ""), "whether higher or lower Score are better is not in the file"),
            (one_result("TPS", "HIB", raw="-").replace("11<", "<"), "the test has no figure"),
        ],
    )
    def test_what_has_no_figures_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            imported("phoronix", tmp_path, {"=composite.xml": text})


class TestJson:
    def test_export(self, tmp_path: Path) -> None:
        data = imported("phoronix", tmp_path, {"=a.json": export()})
        assert sorted((c.stack, c.result.tps) for c in data.cells()) == [
            ("ext4", 1810.0), ("xfs", 2000.5), ("xfs", 2019.5)
        ]  # fmt: skip

    def test_an_older_export_does_not_say_what_is_better(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="whether higher or lower TPS are better is not in the file"):
            imported("phoronix", tmp_path, {"=a.json": old_export()})

    def test_a_cut_export(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no whole export"):
            imported("phoronix", tmp_path, {"=a.json": export()[:-20]})
