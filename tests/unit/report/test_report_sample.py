"""Campaigns of thousands of runs: the page shows some of them and says so, figures and tables are of all."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.pictures import drawing
from pgstrata.report.pictures.drawing import Sample, draw
from pgstrata.report.render import render


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign of these tests has 20 trials of 5 stacks; more than 5 runs are many."""
    monkeypatch.setattr(drawing, "MOST_RUNS", 5)


def test_of_a_campaign_of_ordinary_size_every_run_is_shown(data: CampaignData) -> None:
    every = Sample.of(data)
    assert every.words == ""
    assert every.trials == {t.id for t in data.trials}


@pytest.mark.usefixtures("large")
def test_of_a_large_one_the_slowest_and_the_fastest_run_of_each_stack_are_among_those_shown(data: CampaignData) -> None:
    some = Sample.of(data)
    assert len(some.shown) < some.total == len(data.trials)
    for name in {t.trial.stack for t in data.trials}:
        runs = sorted((c.result.tps, t.id) for t in data.trials if t.trial.stack == name and t.valid for c in t.cells)
        assert {runs[0][1], runs[-1][1]} <= some.trials


@pytest.mark.usefixtures("large")
def test_failures_are_shown_also_where_most_runs_are_not(data: CampaignData) -> None:
    assert {t.id for t in data.trials if not t.valid} <= Sample.of(data).trials


@pytest.mark.usefixtures("large")
def test_what_is_drawn_is_bounded_and_figures_are_of_all(data: CampaignData, findings: Findings) -> None:
    some = Sample.of(data)
    drawn = draw(data, findings, some)
    assert len(drawn.runs) <= len(some.shown)
    assert len(drawn.drift) <= len(some.shown)
    (cell,) = drawn.cells
    by_name = {s.name: s for s in findings.stacks}
    for metric in cell.metrics["tps"]:
        stack = by_name[drawn.stacks[metric.stack]]
        assert metric.count == stack.n
        assert set(metric.trials) == set(stack.trials) & some.trials
        assert metric.estimate == pytest.approx(stack.metrics["tps"].estimate, rel=1e-5)


@pytest.mark.usefixtures("large")
def test_the_page_says_what_is_left_out_and_its_links_lead_somewhere(
    data: CampaignData, findings: Findings, tmp_path: Path
) -> None:
    (path,) = render(data, findings, ["html"], tmp_path).paths
    page = path.read_text(encoding="utf-8")
    some = Sample.of(data)
    assert page.count(f"Of 20 runs {len(some.shown)} are drawn and listed") == 4
    anchors = set(re.findall(r'id="trial-([^"]+)"', page))
    assert anchors == some.trials
    assert set(re.findall(r'href="#trial-([^"]+)"', page)) <= anchors


@pytest.mark.usefixtures("large")
def test_the_csv_has_every_trial(data: CampaignData, findings: Findings, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(render(data, findings, ["csv"], tmp_path).texts["csv"])))
    assert {row["trial"] for row in rows} == {t.id for t in data.trials}
