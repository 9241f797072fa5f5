"""Findings as JSON: schema `pgstrata.report/1`, described in docs/reference/report-json.md."""

from __future__ import annotations

import json
from typing import Any

from pgstrata.analyze.findings import Findings
from pgstrata.report.sentences.statements import comparison_words, warning_words
from pgstrata.report.sentences.summary import cell_words
from pgstrata.report.sentences.why import profile_words, profiles_of, why_words


def report_value(findings: Findings) -> dict[str, Any]:
    """Return the findings as plain values, with their sentences; non-finite numbers become null, which JSON
    requires."""
    value: dict[str, Any] = json.loads(findings.model_dump_json(by_alias=True))
    for shown, cell in zip(value["cells"], findings.cells, strict=True):
        shown["words"] = list(cell_words(cell))
    for shown, comparison in zip(value["comparisons"], findings.comparisons, strict=True):
        shown["sentence"] = comparison_words(comparison)
        shown["warning"] = warning_words(comparison)
    by_cell = {cell.id: profiles_of(findings, cell) for cell in findings.cells}
    for shown, profile in zip(value["profiles"], findings.profiles, strict=True):
        shown["sentence"] = profile_words(profile)
    for shown, why in zip(value["whys"], findings.whys, strict=True):
        shown["sentence"] = why_words(why, by_cell[why.cell])
    return value


def render_json(findings: Findings) -> str:
    """Return one JSON document, ending in a newline."""
    return json.dumps(report_value(findings), indent=1, allow_nan=False) + "\n"
