"""The answer and the verdict table as Markdown (GitHub's tables)."""

from __future__ import annotations

import re

from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.sentences import crash
from pgstrata.report.sentences.answer import cell_answer, generic_command
from pgstrata.report.sentences.crash import crash_lines, shows_runs, stories, tested_stacks
from pgstrata.report.sentences.figures import NOT_KNOWN, render_factor, render_metric, render_number
from pgstrata.report.sentences.header import incidents, report_head
from pgstrata.report.sentences.markup import Span, parse_markup
from pgstrata.report.sentences.summary import cell_words, common_sentences
from pgstrata.report.tables import cluster, grid, hosts
from pgstrata.report.tables.cluster import node_rows
from pgstrata.report.tables.disk_use import COLUMNS, EXPLAINED, TITLE, disk_rows
from pgstrata.report.tables.grid import GridMap, grid_map
from pgstrata.report.tables.hosts import hosts_of_cell, hosts_rows, hosts_titles, hosts_words
from pgstrata.report.tables.verdicts import Figure, Measured, VerdictRow, VerdictTable, matched_cells, verdict_tables
from pgstrata.report.tables.why import time_view
from pgstrata.spec.printable import one_line

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&])")


def escape_markdown(text: str) -> str:
    """Escape text for Markdown; HTML in a name stays text too."""
    return _SPECIAL.sub(lambda m: {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(m[1], f"\\{m[1]}"), one_line(text))


def render_markdown(data: CampaignData, findings: Findings) -> str:
    """Return the whole report."""
    head = report_head(data, findings)
    lines = [f"# {escape_markdown(head.name)}", ""]
    lines += [f"- {title}: {escape_markdown(text)}" for title, text in head.facts]
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
        lines += _disks(findings, table)
        lines += _nodes(findings, table)
        lines += _hosts(findings, table)
    tested = tested_stacks(findings)
    if tested:
        lines += ["", f"## {crash.title_of(tested)}", ""]
        told = crash_lines(tested, stories(data, tested, crash.ANYWHERE))
        lines += [f"- {escape_markdown(line.strip().removeprefix('- '))}" for line in told]
    lost = incidents(data, findings)
    if lost:
        lines += [
            "",
            "## Failed, excluded, unsupported",
            "",
            "| what | stack | block | reason |",
            "| --- | --- | --- | --- |",
        ]
        for i in lost:
            block = "" if i.block is None else str(i.block)
            lines.append(_line([i.what, i.stack, block, i.reason + (f" (hint: {i.hint})" if i.hint else "")]))
    return "\n".join(lines) + "\n"


def _grid(found: GridMap | None) -> list[str]:
    """Return the table of all cells together, if there are several."""
    if found is None:
        return []
    titles = ["cell", "best", "verdict", *found.stacks]
    lines = ["", f"## {grid.TITLE}", "", escape_markdown(grid.LEDE.format(words=found.words)), ""]
    lines += [_line(titles), _line(["---"] * len(titles))]
    for row in found.rows:
        lines.append(_line([row.title, row.winner or NOT_KNOWN, row.verdict, *(field.text for field in row.fields)]))
    return lines


def _why(findings: Findings, table: VerdictTable) -> list[str]:
    """Return the session time of every stack, and the additional time of slower ones."""
    view = time_view(findings, table.cell)
    if view is None:
        return []
    lines = ["", "### Where the time goes", "", *(line for words in view.sentences for line in (_sentence(words), ""))]
    for found in view.tables[:1]:
        lines += [_line(["stack", *found.titles]), _line(["---"] * (1 + len(found.titles)))]
        lines += [_line([row.name, row.whole, *map(_figure, row.cells)]) for row in found.rows]
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
    titles = ["#", "stack", table.primary.title, "against best", "verdict", *(c.full for c in table.columns)]
    titles += ["runs", "durability"]
    rows = (_row(row, table.columns) for row in table.rows)
    return [_line(titles), "| " + " | ".join(["---"] * len(titles)) + " |", *map(_line, rows)]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(escape_markdown(c) for c in cells) + " |"


def _row(row: VerdictRow, columns: tuple[Measured, ...]) -> list[str]:
    verdict = "; ".join(text for text in (row.verdict, row.verdict_detail, *row.labels) if text)
    runs = f"{row.runs}" + (f", {row.excluded} excluded" if row.excluded else "")
    return [str(row.rank or ""), row.name, _figure(row.primary), _figure(row.against_best), verdict,
            *(getattr(row, c.field) for c in columns), runs, row.durability]  # fmt: skip


def _figure(figure: Figure) -> str:
    return f"{figure.value} ({figure.interval})" if figure.interval else figure.value


def _published(findings: Findings, table: VerdictTable) -> list[str]:
    rows = [row for row in findings.published if row.cell == table.cell.id]
    if not rows:
        return []
    lines = ["", f"Published by {escape_markdown(findings.published_source)}. Only ratios can be compared.", ""]
    lines += ["| stack | published | to | published ratio | measured ratio |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        interval = ""
        if row.measured_low is not None:
            interval = f" ({render_number(row.measured_low)} … {render_number(row.measured_high)})"
        here = render_factor(row.measured_ratio) + interval
        value = render_metric(row.value, metric_of(row.metric))
        lines.append(_line([row.stack, value, row.baseline, render_factor(row.ratio), here]))
    return lines


def _disks(findings: Findings, table: VerdictTable) -> list[str]:
    rows = disk_rows(findings, table.cell)
    if not rows:
        return []
    head = ["", f"### {TITLE}", "", EXPLAINED, "", _line(list(COLUMNS)), _line(["---"] * len(COLUMNS))]
    return [*head, *(_line(list(row)) for row in rows)]


def _nodes(findings: Findings, table: VerdictTable) -> list[str]:
    rows = node_rows(findings, table.cell)
    if not rows:
        return []
    titles = cluster.COLUMNS
    head = ["", f"### {cluster.TITLE}", "", cluster.EXPLAINED, "", _line(list(titles)), _line(["---"] * len(titles))]
    return [*head, *(_line(list(row)) for row in rows)]


def _hosts(findings: Findings, table: VerdictTable) -> list[str]:
    found = hosts_of_cell(findings, table.cell)
    if found is None:
        return []
    titles = hosts_titles(found)
    head = ["", f"### {hosts.TITLE}", "", hosts.EXPLAINED, "", _line(list(titles)), _line(["---"] * len(titles))]
    sentences = [line for words in hosts_words(found) for line in ("", _sentence(words))]
    return [*head, *(_line(list(row)) for row in hosts_rows(found)), *sentences]
