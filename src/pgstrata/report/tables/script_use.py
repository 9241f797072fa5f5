"""Figures of the scripts of a mix, as a table: the same text for terminal, page and Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.findings import CellFinding, Findings, ScriptFinding
from pgstrata.report.sentences.figures import NOT_KNOWN, render_metric, render_number, render_percent

TITLE = "The scripts of the mix"
EXPLAINED = (
    "Over all runs of a stack. Share: of the transactions of all scripts. Latencies are those of the script's own "
    "transactions. Verdicts are on the mix as a whole."
)
COLUMNS = ("Stack", "Script", "Weight", "Share", "TPS", "Latency", "Standard deviation", "Failed or skipped")
TEXTS = 2
"""Number of leading columns with words; the others have figures."""


def script_rows(findings: Findings, cell: CellFinding) -> tuple[tuple[str, ...], ...]:
    """Return a row of `COLUMNS` for each script of each stack; none if the workload is one script."""
    stacks = (stack for stack in findings.stacks if stack.cell == cell.id)
    return tuple((stack.name, *_row(script)) for stack in stacks for script in stack.scripts)


def _row(script: ScriptFinding) -> Iterator[str]:
    yield script.script
    yield render_number(script.weight)
    yield NOT_KNOWN if script.share is None else render_percent(script.share)
    yield render_number(script.tps)
    for name in ("latency_avg_ms", "latency_stddev_ms"):
        yield render_metric(getattr(script, name), metric_of(name))
    yield NOT_KNOWN if script.failed_share is None else render_percent(script.failed_share)
