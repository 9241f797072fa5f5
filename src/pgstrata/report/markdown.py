"""The answer and the verdict table as Markdown (GitHub's tables)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.findings import Findings, PublishedFinding
from pgstrata.record.reader import CampaignData
from pgstrata.report.sentences import crash
from pgstrata.report.sentences.answer import cell_answer, generic_command
from pgstrata.report.sentences.crash import crash_lines, shows_runs, stories, tested_stacks
from pgstrata.report.sentences.figures import NOT_KNOWN, render_factor, render_metric
from pgstrata.report.sentences.header import incidents, report_head
from pgstrata.report.sentences.markup import Span, parse_markup
from pgstrata.report.sentences.summary import cell_words, common_sentences
from pgstrata.report.sentences.why import time_view
from pgstrata.report.tables import grid
from pgstrata.report.tables.agreement import render_measured
from pgstrata.report.tables.further import further_tables
from pgstrata.report.tables.grid import GridMap, grid_map
from pgstrata.report.tables.verdicts import Figure, VerdictRow, VerdictTable, matched_cells, verdict_tables
from pgstrata.spec.printable import one_line

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&])")


def escape_markdown(text: str) -> str:
    """Escape text for Markdown; HTML in a name stays text too."""
    return _SPECIAL.sub(lambda m: {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(m[1], f"\\{m[1]}"), one_line(text))


def render_markdown(data: CampaignData, findings: Findings) -> str:
    """Return the whole report."""
    head = report_head(data, findings)
    lines = [f"# {escape_markdown(head.name)}", ""]
    lines += [f"- {title}: {escape_markdown(text)}" for title, text in head.facts.items()]
    lines += [f"- **Note:** {_sentence(n)}" for n in (*head.notices, *head.labels)]
    everywhere = common_sentences(findings) if shows_runs(data) else ()
    lines += [line for words in everywhere for line in ("", _sentence(words))]
    lines += _grid(grid_map(findings) if shows_runs(data) else None)
    for table in verdict_tables(findings) if shows_runs(data) else ():
        lines += ["", f"## {escape_markdown(table.title)}", ""]
        found = cell_answer(data, findings, table.cell)
        said = cell_words(table.cell, f"**Answer:** {found.whole(generic_command)}" if found else "")
        why = [f"**Why:** {found.reason}"] if found and found.reason else []
        lines += [
            line for words in (*said[:1], *why, *said[1:]) if words not in everywhere for line in (_sentence(words), "")
        ]
        lines += _table(table)
        for cell in matched_cells(findings, table.cell):
            lines += ["", *(_sentence(words) for words in cell_words(cell))]
        lines += _why(findings, table)
        lines += _published(findings, table)
        for found_table in further_tables(findings, table.cell):
            lines += ["", f"### {found_table.title}", "", found_table.explained, ""]
            lines += _rows(found_table.columns, found_table.rows)
            lines += [line for words in found_table.words for line in ("", _sentence(words))]
    tested = tested_stacks(findings)
    if tested:
        lines += ["", f"## {crash.title_of(tested)}", ""]
        told = crash_lines(tested, stories(data, tested, crash.ANYWHERE))
        lines += [f"- {escape_markdown(line.strip().removeprefix('- '))}" for line in told]
    lost = incidents(data, findings)
    if lost:
        rows = (
            [i.what, i.stack, "" if i.block is None else str(i.block), i.reason + (f" (hint: {i.hint})" * bool(i.hint))]
            for i in lost
        )
        lines += ["", "## Failed, excluded, unsupported", "", *_rows(["what", "stack", "block", "reason"], rows)]
    return "\n".join(lines) + "\n"


def _grid(found: GridMap | None) -> list[str]:
    """Return the table of all cells together, if there are several."""
    if found is None:
        return []
    titles = ["cell", "best", "verdict", *found.stacks]
    lines = ["", f"## {grid.TITLE}", "", escape_markdown(grid.LEDE.format(words=found.words)), ""]
    rows = ([r.title, r.winner or NOT_KNOWN, r.verdict, *(field.text for field in r.fields)] for r in found.rows)
    return [*lines, *_rows(titles, rows)]


def _why(findings: Findings, table: VerdictTable) -> list[str]:
    """Return the session time of every stack, and the additional time of slower ones."""
    view = time_view(findings, table.cell)
    if view is None:
        return []
    lines = ["", "### Where the time goes", "", *(line for words in view.sentences for line in (_sentence(words), ""))]
    for found in view.tables[:1]:
        lines += _rows(["stack", *found.titles], ([r.name, r.whole, *map(_figure, r.cells)] for r in found.rows))
    return lines


def _sentence(sentence: str) -> str:
    return "".join(_span(s) for s in parse_markup(sentence))


def _span(span: Span) -> str:
    match span.kind:
        case "name":
            return f"`{one_line(span.text)}`"
        case "strong":
            return f"**{escape_markdown(span.text)}**"
    return escape_markdown(span.text)


def _table(table: VerdictTable) -> list[str]:
    against = ["against best"] if table.best else []
    titles = ["#", "stack", table.primary.title, *against, "verdict", *(c.full for c in table.columns)]
    titles += ["runs", "durability"]
    return _rows(titles, (_row(row, table) for row in table.rows))


def _rows(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    return [_line(titles), _line(["---"] * len(titles)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escape_markdown(c) for c in cells) + " |"


def _row(row: VerdictRow, table: VerdictTable) -> list[str]:
    verdict = "; ".join(text for text in (row.verdict, row.verdict_detail, *row.labels) if text)
    runs = f"{row.runs}" + (f", {row.excluded} excluded" if row.excluded else "")
    against = [_figure(row.against_best)] if table.best else []
    return [str(row.rank or ""), row.name, _figure(row.primary), *against, verdict,
            *(getattr(row, c.field) for c in table.columns), runs, row.durability]  # fmt: skip


def _figure(figure: Figure) -> str:
    return f"{figure.value} ({figure.interval})" if figure.interval else figure.value


def _published(findings: Findings, table: VerdictTable) -> list[str]:
    rows = [row for row in findings.published if row.cell == table.cell.id]
    if not rows:
        return []
    lines = ["", f"Published by {escape_markdown(findings.published_source)}. Only ratios can be compared.", ""]
    return [
        *lines,
        *_rows(
            ["stack", "published", "to", "published ratio", "measured ratio", "outcome", "reason"], map(_compared, rows)
        ),
    ]


def _compared(row: PublishedFinding) -> list[str]:
    value = render_metric(row.value, metric_of(row.metric))
    return [
        row.stack,
        value,
        row.baseline,
        render_factor(row.ratio),
        render_measured(row),
        row.outcome or "",
        row.reason,
    ]
