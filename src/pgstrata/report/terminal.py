"""The verdict table for a terminal; plain text where it is none, or NO_COLOR is set."""

from __future__ import annotations

import io
import os
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.head import Incident, incidents, report_head
from pgstrata.report.markup import parse_markup, printable
from pgstrata.report.table import Tone, VerdictRow, VerdictTable, matched_cells, verdict_tables

_STYLES: dict[Tone, str] = {
    "best": "bold green",
    "better": "green",
    "better-proven": "bold green",
    "equal": "green",
    "worse": "yellow",
    "worse-proven": "red",
    "undecided": "cyan",
    "none": "dim",
}
_SPANS = {"plain": "", "name": "cyan", "strong": "bold"}
PLAIN_WIDTH = 160


def print_terminal(data: CampaignData, findings: Findings, file: IO[str], width: int | None = None) -> None:
    """Writes the report; colour and box characters only to a terminal that takes them."""
    tty = file.isatty()
    plain = not tty or bool(os.environ.get("NO_COLOR"))
    columns = width or (None if tty else PLAIN_WIDTH)
    console = Console(file=file, no_color=plain, highlight=False, markup=False, emoji=False, width=columns)
    _print_head(console, data, findings)
    for table in verdict_tables(findings):
        _print_cell(console, table, plain)
        for cell in matched_cells(findings, table.cell):
            for words in cell.words:
                console.print(_sentence(words))
    found = incidents(data, findings)
    if found:
        console.print(Text("\nFailed, excluded, unsupported", style="bold"))
        for incident in found:
            console.print(_incident(incident))


def render_terminal(data: CampaignData, findings: Findings, width: int = PLAIN_WIDTH) -> str:
    """The same as plain text."""
    out = io.StringIO()
    print_terminal(data, findings, out, width)
    return out.getvalue()


def _print_head(console: Console, data: CampaignData, findings: Findings) -> None:
    head = report_head(data, findings)
    console.print(Text(printable(head.name), style="bold"))
    width = max(len(title) for title, _ in head.facts)
    for title, text in head.facts:
        console.print(Text.assemble((f"{title:<{width}}  ", "dim"), printable(text)))
    for notice in (*head.notices, *(f"label: {label}" for label in head.labels)):
        console.print(Text.assemble(("! ", "bold yellow"), _sentence(notice)))


def _sentence(sentence: str) -> Text:
    return Text.assemble(*((printable(s.text), _SPANS[s.kind]) for s in parse_markup(sentence)))


def _print_cell(console: Console, table: VerdictTable, plain: bool) -> None:
    console.print(Text(f"\n{printable(table.title)}", style="bold"))
    for words in table.cell.words:
        console.print(_sentence(words))
    grid = Table(box=box.ASCII2 if plain else box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    grid.add_column("", justify="right")
    grid.add_column("stack", overflow="fold")
    grid.add_column(printable(table.primary.title.lower()), justify="right")
    grid.add_column("interval", justify="center")
    grid.add_column("against best", justify="right", no_wrap=True)
    grid.add_column("verdict")
    for title in ("jitter", "stall", "load", "space", "runs"):
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column("durability")
    for row in table.rows:
        grid.add_row(*_texts(row, table.common_labels))
    console.print(grid)


def _texts(row: VerdictRow, common: frozenset[str]) -> list[Text]:
    against = row.against_best.value + (f" ({row.against_best.interval})" if row.against_best.interval else "")
    detail = f" ({row.verdict_detail})" if row.verdict_detail else ""
    own = [label for label in row.labels if label not in common]
    labels = f" [{', '.join(own)}]" if own else ""
    return [
        Text(str(row.rank or "")),
        Text(printable(row.name), style="bold" if row.rank == 1 else ""),
        Text(row.primary.value),
        Text(row.primary.interval, style="dim"),
        Text(against),
        Text(printable(row.verdict + detail + labels), style=_STYLES[row.tone]),
        Text(row.jitter),
        Text(row.stall),
        Text(row.load),
        Text(row.space),
        Text(f"{row.runs}" + (f" (-{row.excluded})" if row.excluded else "")),
        Text(printable(row.durability), style="" if row.durable else "yellow"),
    ]


def _incident(incident: Incident) -> Text:
    where = f" block {incident.block}" if incident.block is not None else ""
    hint = f"\n    HINT: {incident.hint}" if incident.hint else ""
    text = f"{where}: {incident.reason or 'no reason recorded'}{hint}"
    return Text.assemble(f"  {incident.what:<11} ", (printable(incident.stack), "cyan"), printable(text))
