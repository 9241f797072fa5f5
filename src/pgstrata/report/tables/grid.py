"""The whole grid at a glance: a row per cell, a column per stack, with the distance of each from the best of its
cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

from pgstrata.analyze.campaign.scale import Metric, metric_of
from pgstrata.analyze.findings import CellFinding, Findings
from pgstrata.report.sentences.figures import NOT_KNOWN, render_count, render_ratio
from pgstrata.report.tables.pairs import Index
from pgstrata.report.tables.verdicts import Tone, VerdictRow, VerdictTable, short_titles, verdict_tables

TITLE = "The grid"
LEDE = "Best of its durability class: {words}. Of every other stack, how far it is from the best of its row."
STEPS = (0.02, 0.1, 0.25, 0.5, 1.0)
"""Distances from the best, as logarithms of the ratio, at which a field gets a darker shade."""


@dataclass(frozen=True)
class GridField:
    """One stack in one cell."""

    stack: str
    text: str
    shade: int | None
    """0 at the best and near it, up to the number of `STEPS`. None without a ratio, or if the stack is ahead of the
    best, which is then of another durability class."""
    tone: Tone
    tip: str


@dataclass(frozen=True)
class GridRow:
    """One cell of the grid."""

    title: str
    index: int
    """Index of the cell among all drawn cells."""
    winner: str | None
    verdict: str
    fields: tuple[GridField, ...]


@dataclass(frozen=True)
class GridMap:
    """Stacks ordered by their results over all cells."""

    stacks: tuple[str, ...]
    rows: tuple[GridRow, ...]
    words: str
    """Number of cells in which each stack has the best estimate, in words."""


def grid_map(findings: Findings) -> GridMap | None:
    """Return the grid; None unless there are several cells."""
    tables = verdict_tables(findings)
    if len(tables) < 2:
        return None
    index = Index(findings)
    titles = short_titles(findings)
    shown = {s.name: None for s in findings.stacks if s.n}
    places = {name: _mean_place(name, tables) for name in shown}
    stacks = tuple(sorted(shown, key=lambda name: places[name]))
    rows = tuple(_row(index, table, titles[table.cell.id], stacks) for table in tables)
    failing = sum(any(column.field == "failures" for column in table.columns) for table in tables)
    return GridMap(stacks, rows, _words(rows) + (f"; failures in {failing} of them" if failing else ""))


def _mean_place(name: str, tables: tuple[VerdictTable, ...]) -> float:
    places = [t.cell.ranking.index(name) for t in tables if name in t.cell.ranking]
    return sum(places) / len(places) if places else float(len(tables) + 1)


def _row(index: Index, table: VerdictTable, title: str, stacks: tuple[str, ...]) -> GridRow:
    rows = {row.name: row for row in table.rows}
    best = rows.get(table.best or "")
    fields = tuple(_field(index, table.cell, name, rows.get(name), table.best) for name in stacks)
    return GridRow(
        title=title,
        index=index.findings.cells.index(table.cell),
        winner=best.name if best else None,
        verdict=best.verdict if best else "no valid run",
        fields=fields,
    )


def _field(index: Index, cell: CellFinding, name: str, row: VerdictRow | None, best: str | None) -> GridField:
    if row is None or row.runs == 0:
        return GridField(name, NOT_KNOWN, None, "none", f"{name}; no valid run")
    ratio = index.quotient(cell.id, name, best or "")
    detail = (row.primary.value, row.primary.interval, row.verdict, row.verdict_detail)
    tip = "; ".join((name, *(text for text in detail if text), render_count(row.runs, "run")))
    text = row.primary.value if ratio is None or name == best else render_ratio(ratio)
    return GridField(name, text, _shade(ratio, metric_of(index.findings.campaign.primary)), row.tone, tip)


def _shade(ratio: float | None, metric: Metric) -> int | None:
    behind = None if ratio is None else -metric.sign * log(ratio)
    if behind is None or behind < -STEPS[0]:  # ahead of the best of another durability class
        return None
    return sum(1 for step in STEPS if behind >= step)


def _words(rows: tuple[GridRow, ...]) -> str:
    return ", ".join(_counted(rows)) + f" of {render_count(len(rows), 'cell')}"


def _counted(rows: tuple[GridRow, ...]) -> Iterator[str]:
    """Yield `xfs in 3 (1 of them chosen)`, the most frequent first."""
    winners = [row.winner for row in rows if row.winner is not None]
    for name in sorted(dict.fromkeys(winners), key=lambda n: -winners.count(n)):
        chosen = sum(1 for row in rows if row.winner == name and row.verdict == "chosen")
        yield f"{name} in {winners.count(name)}" + (f" ({chosen} chosen)" if chosen else "")
    without = len(rows) - len(winners)
    if without:
        yield f"none in {without}"
