"""The verdict table for a terminal; plain text if the output is no terminal, or NO_COLOR is set."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.sentences.answer import cell_answer
from pgstrata.report.sentences.crash import crash_lines, shows_runs, stories, tested_stacks, title_of
from pgstrata.report.sentences.figures import NOT_KNOWN, render_count, render_factor
from pgstrata.report.sentences.header import Incident, incidents, report_head
from pgstrata.report.sentences.markup import parse_markup
from pgstrata.report.sentences.summary import cell_words, common_sentences
from pgstrata.report.sentences.why import terminal_words
from pgstrata.report.tables import grid
from pgstrata.report.tables.agreement import render_measured
from pgstrata.report.tables.further import FurtherTable, further_tables
from pgstrata.report.tables.grid import GridMap, grid_map
from pgstrata.report.tables.verdicts import (
    MEASURED,
    Figure,
    Tone,
    VerdictRow,
    VerdictTable,
    matched_cells,
    verdict_tables,
)
from pgstrata.spec.printable import printable

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
PLAIN_WIDTH = 180
"""Width of text that does not go to a terminal."""

WIDE = ("", "stack", "throughput", "interval", "against best", "verdict", "jitter", "stall", "load", "space",
        "failures", "runs", "durability")  # fmt: skip
WIDE_FROM = 150
"""Minimum width of a terminal for one table with all columns; below, two tables follow each other."""
NARROW = (
    ("", "stack", "throughput, interval", "against best, interval", "verdict"),
    ("stack", "jitter", "stall", "load", "space", "failures", "runs", "durability"),
)
LONGEST_GRID_NAME = 16
"""Maximum number of characters of a stack's name in the table of all cells."""
GRID_GAP = 3
_LEFT = ("stack", "verdict", "durability")


def print_terminal(data: CampaignData, findings: Findings, file: IO[str], width: int | None = None) -> None:
    """Write the report; colour and box characters only to a terminal that supports them."""
    tty = file.isatty()
    plain = not tty or bool(os.environ.get("NO_COLOR"))
    columns = width or (None if tty else PLAIN_WIDTH)
    console = Console(file=file, no_color=plain, highlight=False, markup=False, emoji=False, width=columns)
    _print_head(console, data, findings)
    everywhere = common_sentences(findings) if shows_runs(data) else ()
    for words in everywhere:
        console.print(_sentence(words))
    _print_grid(console, grid_map(findings) if shows_runs(data) else None, plain)
    for table in verdict_tables(findings) if shows_runs(data) else ():
        found = cell_answer(data, findings, table.cell)
        said = cell_words(table.cell, found.words if found else "")
        _print_cell(console, table, plain, [words for words in said if words not in everywhere])
        for words in terminal_words(findings, table.cell):
            console.print(_sentence(words))
        for cell in matched_cells(findings, table.cell):
            for words in cell_words(cell):
                console.print(_sentence(words))
        _print_published(console, findings, table, plain)
        for further in further_tables(findings, table.cell):
            _print_further(console, further, plain)
    _print_power_cuts(console, data, findings)
    lost = incidents(data, findings)
    if lost:
        console.print(Text("\nFailed, excluded, unsupported", style="bold"))
        for incident in lost:
            console.print(_incident(incident))


def render_terminal(data: CampaignData, findings: Findings, width: int = PLAIN_WIDTH) -> str:
    """Return the same as plain text."""
    out = io.StringIO()
    print_terminal(data, findings, out, width)
    return out.getvalue()


def _print_head(console: Console, data: CampaignData, findings: Findings) -> None:
    head = report_head(data, findings)
    console.print(Text(printable(head.name), style="bold"))
    width = max(map(len, head.facts))
    for title, text in head.facts.items():
        console.print(Text.assemble((f"{title:<{width}}  ", "dim"), printable(text)))
    for notice in (*head.notices, *(f"label: {label}" for label in head.labels)):
        console.print(Text.assemble(("! ", "bold yellow"), _sentence(notice)))


def _sentence(sentence: str) -> Text:
    return Text.assemble(*((printable(s.text), _SPANS[s.kind]) for s in parse_markup(sentence)))


def _print_cell(console: Console, table: VerdictTable, plain: bool, said: Sequence[str]) -> None:
    console.print(Text(f"\n{printable(table.title)}", style="bold"))
    for words in said:
        console.print(_sentence(words))
    for titles in (WIDE,) if console.width >= WIDE_FROM else NARROW:
        console.print()
        console.print(_grid(table, titles, plain))


def _print_grid(console: Console, found: GridMap | None, plain: bool) -> None:
    """Print all cells together, with the best stacks, as many as fit."""
    if found is None:
        return
    console.print(Text(f"\n{grid.TITLE}", style="bold"))
    console.print(Text(printable(grid.LEDE.format(words=found.words))))
    shown = _fitting(found, console.width)
    table = _empty_grid(plain)
    for title in ("cell", "best", "verdict"):
        table.add_column(title)
    for name in found.stacks[:shown]:
        table.add_column(printable(name), justify="right", max_width=LONGEST_GRID_NAME, overflow="fold")
    for row in found.rows:
        fields = (Text(field.text, style=_STYLES[field.tone]) for field in row.fields[:shown])
        best = Text(printable(row.winner or NOT_KNOWN), style="bold")
        table.add_row(Text(printable(row.title)), best, Text(row.verdict), *fields)
    console.print()
    console.print(table)
    if shown < len(found.stacks):
        console.print(f"No room here for {render_count(len(found.stacks) - shown, 'stack')}, whose figures are below.")


def _fitting(found: GridMap, width: int) -> int:
    """Return the number of stacks that fit next to the names of cells and of the best."""
    rows = found.rows
    texts = ([r.title for r in rows], [r.winner or NOT_KNOWN for r in rows], [r.verdict for r in rows])
    left = width - sum(max(map(len, column)) + GRID_GAP for column in texts)
    for shown, name in enumerate(found.stacks):
        widest = max(len(row.fields[shown].text) for row in rows)
        left -= max(widest, min(len(name), LONGEST_GRID_NAME)) + GRID_GAP
        if left < 0:
            return shown
    return len(found.stacks)


def _print_published(console: Console, findings: Findings, table: VerdictTable, plain: bool) -> None:
    rows = [row for row in findings.published if row.cell == table.cell.id]
    if not rows:
        return
    source = printable(findings.published_source)
    console.print(Text(f"\nPublished ({source}); only ratios can be compared", style="bold"))
    grid = _empty_grid(plain)
    for title in ("stack", "to", "published ratio", "measured ratio", "outcome", "reason"):
        grid.add_column(title, justify="right" if "ratio" in title else "left")
    for row in rows:
        names = (Text(printable(name)) for name in (row.stack, row.baseline))
        told = (Text(printable(text)) for text in (row.outcome or "", row.reason))
        grid.add_row(*names, render_factor(row.ratio), render_measured(row), *told)
    console.print(grid)


def _print_further(console: Console, further: FurtherTable, plain: bool) -> None:
    """Print a table below its title and explanation; names of stacks keep their letters."""
    console.print(Text(f"\n{further.title}", style="bold"))
    console.print(Text(further.explained, style="dim"))
    grid = _empty_grid(plain)
    for number, column in enumerate(further.columns):
        shown = column.lower() if further.of_stacks and not column.isupper() else column
        grid.add_column(printable(shown), justify="right" if number >= further.texts else "left")
    for row in further.rows:
        grid.add_row(*(Text(printable(text)) for text in row))
    console.print(grid)
    for words in further.words:
        console.print(_sentence(words))


def _print_power_cuts(console: Console, data: CampaignData, findings: Findings) -> None:
    tested = tested_stacks(findings)
    if tested:
        console.print(Text(f"\n{title_of(tested)}", style="bold"))
        for line in crash_lines(tested, stories(data, tested, data.source.text)):
            console.print(Text(printable(line)))


def _empty_grid(plain: bool) -> Table:
    return Table(box=box.ASCII2 if plain else box.SIMPLE_HEAD, pad_edge=False, show_edge=False)


def _grid(table: VerdictTable, titles: tuple[str, ...], plain: bool) -> Table:
    grid = _empty_grid(plain)
    missing = {c.field for c in MEASURED} - {c.field for c in table.columns}
    missing |= set() if table.best else {"against best", "against best, interval"}
    titles = tuple(title for title in titles if title not in missing)
    for title in titles:
        shown = title.replace("throughput", table.primary.title.lower()).replace(", interval", "\n(interval)")
        folded = title in ("stack", "verdict", "durability")
        grid.add_column(printable(shown), justify="left" if title in _LEFT else "right", no_wrap=not folded)
    for row in table.rows:
        texts = _texts(row, table.common_labels)
        grid.add_row(*(texts[title] for title in titles))
    return grid


def _texts(row: VerdictRow, common: frozenset[str]) -> dict[str, Text]:
    """Return the cells of a row by the title of their column."""
    against = row.against_best.value + (f" ({row.against_best.interval})" if row.against_best.interval else "")
    detail = f" ({row.verdict_detail})" if row.verdict_detail else ""
    own = [label for label in row.labels if label not in common]
    labels = f" [{', '.join(own)}]" if own else ""
    return {
        "": Text(str(row.rank or "")),
        "stack": Text(printable(row.name), style="bold" if row.rank == 1 else "", overflow="fold"),
        "throughput": Text(row.primary.value),
        "interval": Text(row.primary.interval, style="dim"),
        "throughput, interval": _stacked(row.primary),
        "against best": Text(against),
        "against best, interval": _stacked(row.against_best),
        "verdict": Text(printable(row.verdict + detail + labels), style=_STYLES[row.tone]),
        "jitter": Text(row.jitter),
        "stall": Text(row.stall),
        "load": Text(row.load),
        "space": Text(row.space),
        "failures": Text(row.failures),
        "runs": Text(f"{row.runs}" + (f" (-{row.excluded})" if row.excluded else "")),
        "durability": Text(printable(row.durability), style="" if row.durable else "yellow"),
    }


def _stacked(figure: Figure) -> Text:
    return Text.assemble(figure.value, (f"\n{figure.interval}", "dim")) if figure.interval else Text(figure.value)


def _incident(incident: Incident) -> Text:
    where = f" block {incident.block}" if incident.block is not None else ""
    hint = f"\n    HINT: {incident.hint}" if incident.hint else ""
    text = f"{where}: {incident.reason or 'no reason recorded'}{hint}"
    return Text.assemble(f"  {incident.what:<11} ", (printable(incident.stack), "cyan"), printable(text))
