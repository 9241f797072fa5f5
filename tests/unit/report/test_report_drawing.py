"""What is drawn is decided once, for the page and for the pictures."""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files
from statistics import median_low

from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.drawing import FACTOR_FOR_LOG, SHAPES, draw
from pgstrata.report.pictures import PATHS, typical_runs
from pgstrata.report.sample import Sample

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
