"""docs/results/outcomes.md, written from the JSON reports beside it: `python -m pgstrata_docs.outcomes`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pgstrata.report.tables.agreement import ALIKE, read_report, table_lines

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def render_outcomes() -> str:
    """Return the page of the documentation."""
    lines = [
        "# The published comparisons, arm by arm",
        "",
        "`make docs` writes this page from the JSON reports in this folder, as `pgstrata studies table FILE...` does.",
        "Published ratios have no intervals.",
        f"A ratio *agrees* if the measured interval lies within a factor of {ALIKE} of it, or includes it and spans a",
        f"factor of at most {ALIKE * ALIKE:.3g}. It *differs* if the interval lies beyond a factor of {ALIKE}.",
        "Otherwise it takes more runs to tell. [README](README.md) describes how each campaign was run.",
    ]
    for file in sorted(RESULTS.glob("*.json")):
        if not json.loads(file.read_text(encoding="utf-8"))["published"]:
            continue  # a load of its own, no published comparison
        report = read_report(file)
        lines += ["", f"## [{report.campaign.name}]({file.name})", "", *table_lines(report)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_outcomes())
