"""What is drawn is decided once, for the page and for the pictures."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from statistics import median_low

import pytest

from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.pictures.drawing import FACTOR_FOR_LOG, SHAPES, DrawnMetric, Sample, draw, is_cut
from pgstrata.report.pictures.files import PATHS, typical_runs, write_pictures
from pgstrata.report.sentences.header import report_head

pytestmark = pytest.mark.slow

FILLED = {"circle", "square", "cross", "diamond", "triangle-up", "triangle-down", "triangle-left", "triangle-right"}
"""Shapes that Vega knows by name and fills; its `stroke` and `arrow` vanish where marks are filled."""
BASE = files("pgstrata.report") / "static" / "base.js"


def test_page_and_pictures_draw_every_shape(data: CampaignData, findings: Findings) -> None:
    drawing = draw(data, findings, Sample.of(data))
    assert drawing.shapes == list(SHAPES[: len(drawing.stacks)])
    assert set(SHAPES) <= FILLED | set(PATHS)
    (table,) = re.findall(r"const SHAPES = \{\n(.*?)\n\};", BASE.read_text(encoding="utf-8"), re.DOTALL)
    assert set(re.findall(r'^  "?([a-z-]+)"?: ', table, re.MULTILINE)) == set(SHAPES)


def test_one_run_in_the_middle_stands_for_its_stack(data: CampaignData, findings: Findings) -> None:
    drawing = draw(data, findings, Sample.of(data))
    typical = [r for r in drawing.runs if r.typical]
    assert Counter((r.stack, r.cell) for r in typical) == Counter({(r.stack, r.cell) for r in drawing.runs if r.valid})
    for run in typical:
        alike = [r.tps for r in drawing.runs if r.valid and (r.stack, r.cell) == (run.stack, run.cell)]
        assert run.tps == median_low(alike)
    assert [r.stack for r in typical_runs(drawing, 0)] == drawing.cells[0].ranking


def test_metrics_whose_figures_differ_by_factors_have_a_logarithmic_axis(
    data: CampaignData, findings: Findings
) -> None:
    (cell,) = draw(data, findings, Sample.of(data)).cells
    for name, drawn in cell.metrics.items():
        known = [v for d in drawn for v in (d.low, d.high, d.estimate, *d.runs) if v is not None]
        apart = min(known) > 0 and max(known) > FACTOR_FOR_LOG * min(known)
        assert (name in cell.logarithmic) == apart


@pytest.mark.parametrize(
    ("runs", "cut"),
    [
        ([900.0, 1000.0], True),
        ([460.0, 1000.0], True),
        ([440.0, 1000.0], False),
        ([0.0, 1000.0], False),
        ([0.0, 0.0], False),
        ([-1.0, 2.0], False),
        ([-2.0, -1.0], True),
    ],
)
def test_an_axis_begins_at_zero_where_zero_is_near(runs: list[float], cut: bool) -> None:
    drawn = DrawnMetric(0, runs[0], None, None, len(runs), list(runs), ["t"] * len(runs), [None] * len(runs))
    assert is_cut([drawn]) is cut


def test_pictures_say_where_an_axis_is_cut_or_logarithmic(
    data: CampaignData, findings: Findings, tmp_path: Path
) -> None:
    drawing = draw(data, findings, Sample.of(data))
    write_pictures(data, findings, tmp_path, ["svg"], drawing)
    assert "(logarithmic axis)" in (tmp_path / "throughput.svg").read_text()
    (cell,) = drawing.cells
    near = [m for m in cell.metrics["tps"] if drawing.stacks[m.stack] in ("ext4", "xfs")]
    alike = replace(cell, metrics={**cell.metrics, "tps": near}, logarithmic=[])
    write_pictures(data, findings, tmp_path, ["svg"], replace(drawing, cells=[alike]))
    assert "(cut axis: it does not begin at 0)" in (tmp_path / "throughput.svg").read_text()


def test_runs_of_no_block_show_no_drift(data: CampaignData, findings: Findings) -> None:
    assert draw(data, findings, Sample.of(data)).drift
    unpaired = replace(data, record=data.record.model_copy(update={"paired": False}))
    assert not draw(unpaired, findings, Sample.of(data)).drift
    assert "block" in report_head(data, findings).facts["Measured"]
    assert "block" not in report_head(unpaired, findings).facts["Measured"]
