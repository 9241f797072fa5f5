"""The page of the live view and the verdict so far: charts and words of the report, updated while a campaign runs."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Any

from markupsafe import Markup

from pgstrata import __version__
from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.html import page_environment, page_payload, page_script, page_style
from pgstrata.report.pictures.drawing import ZERO_BELOW, Drawing, draw_intervals
from pgstrata.report.pictures.sample import Sample
from pgstrata.report.sentences.markup import plain_words
from pgstrata.report.sentences.summary import told
from pgstrata.report.tables.verdicts import verdict_tables

SCRIPTS = ("base.js", "scale.js", "panel.js", "intervals.js", "timeline.js", "live.js")


@dataclass(frozen=True)
class LivePage:
    """The page, which contains no figures, and the policy sent with it."""

    text: str
    policy: str


@cache
def live_page() -> LivePage:
    """Return everything but the figures: those arrive as events of the same server, and from nowhere else."""
    script = page_script(SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    empty = Drawing(primary="tps", margin=0.0, zero_below=ZERO_BELOW, stacks=[], shapes=[], metrics={}, cells=[])
    text = page_environment().get_template("live.html.j2").render(
        version=__version__, style=Markup(page_style()), script=Markup(script), payload=page_payload(empty)
    )  # fmt: skip
    return LivePage(text, policy)


def live_verdict(data: CampaignData, findings: Findings) -> dict[str, Any]:
    """Return the current verdict: data of the charts, leading sentences and the table, by cell."""
    return {
        "trials": len(data.trials),
        "unreadable": len(data.unreadable),
        "drawing": draw_intervals(data, findings, Sample.of(data)),
        "cells": [
            {
                "title": table.title,
                "words": [plain_words(one.words) for one in told(table.cell).said],
                "rows": [
                    [
                        row.name,
                        row.primary.value,
                        row.primary.interval,
                        row.against_best.value,
                        row.verdict,
                        str(row.runs),
                    ]
                    for row in table.rows
                ],
            }
            for table in verdict_tables(findings)
        ],
    }
