"""Findings as JSON: schema `pgstrata.report/1`, described in docs/reference/report-json.md."""

from __future__ import annotations

import json
from typing import Any

from pgstrata.analyze.findings import Findings


def report_value(findings: Findings) -> dict[str, Any]:
    """The findings as plain values; numbers that are not finite become null, which JSON can say."""
    value: dict[str, Any] = json.loads(findings.model_dump_json(by_alias=True))
    return value


def render_json(findings: Findings) -> str:
    """One JSON document, ending in a newline."""
    return json.dumps(report_value(findings), indent=1, allow_nan=False) + "\n"
