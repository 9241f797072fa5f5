"""Hosts and stacks as a table: the same text for terminal, page and Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.analyze.campaign.scale import Metric, metric_of
from pgstrata.analyze.findings import CellFinding, Findings, HostFinding, HostsFinding
from pgstrata.report.sentences.figures import render_metric
from pgstrata.report.sentences.markup import quoted
from pgstrata.report.sentences.statements import signed_change

TITLE = "Each host by itself"
EXPLAINED = (
    "What each stack does on each host by the host's own blocks, and how far it is there from the first of the "
    "ranking. In parentheses: not beyond doubt on this host alone. An exclamation mark: this host differs from the "
    "others by more than its runs scatter."
)


def hosts_titles(found: HostsFinding) -> tuple[str, ...]:
    """Return the titles of the columns: the host, then every stack."""
    return ("Host", *dict.fromkeys(row.stack for row in found.rows))


def hosts_rows(found: HostsFinding) -> tuple[tuple[str, ...], ...]:
    """Return a row for each host, in the order of `hosts_titles`."""
    by_host: dict[str, list[str]] = {}
    for row in found.rows:
        by_host.setdefault(row.host, []).append(_text(metric_of(found.metric), row))
    return tuple((host, *texts) for host, texts in by_host.items())


def hosts_of_cell(findings: Findings, cell: CellFinding) -> HostsFinding | None:
    """Return the findings by host; None for a campaign on one host."""
    return next((found for found in findings.hosts if found.cell == cell.id), None)


def hosts_words(found: HostsFinding) -> Iterator[str]:
    """Yield a sentence for each host that disagrees with the others on a stack."""
    metric = metric_of(found.metric)
    for row in found.rows:
        if row.disagrees and row.ratio is not None:
            yield (
                f"{quoted(row.host)} differs from the other hosts: {quoted(row.stack)} is there at "
                f"{signed_change(metric, row.ratio)} against {quoted(found.against)}."
            )


def _text(metric: Metric, row: HostFinding) -> str:
    level = render_metric(row.level, metric)
    if row.ratio is None:
        return level
    change = signed_change(metric, row.ratio)
    shown = change if row.verdict != "undecided" else f"({change})"
    return f"{level} {shown}{' !' if row.disagrees else ''}"
