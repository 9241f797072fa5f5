"""Every stack against every other, as a table of verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.analyze.findings import CellFinding
from pgstrata.report.sentences.figures import render_count
from pgstrata.report.sentences.statements import warning_words
from pgstrata.report.tables.pairs import Index
from pgstrata.report.tables.verdicts import Tone, comparison_figure, verdict_detail, verdict_words

_SIGNS: dict[Tone, str] = {
    "better": "▲",
    "better-proven": "▲",
    "worse": "▼",
    "worse-proven": "▼",
    "equal": "=",
    "undecided": "?",
}


@dataclass(frozen=True)
class MatrixCell:
    """The stack of the row against the stack of the column."""

    sign: str
    text: str
    tone: Tone
    tip: str


@dataclass(frozen=True)
class Matrix:
    """Rows and columns in the order of rank; None on the diagonal and for stacks that were not compared."""

    names: tuple[str, ...]
    rows: tuple[tuple[MatrixCell | None, ...], ...]


def verdict_matrix(index: Index, cell: CellFinding) -> Matrix | None:
    """Return the matrix; None without two stacks to compare."""
    names = cell.ranking
    if len(names) < 2:
        return None
    rows = tuple(tuple(_matrix_cell(index, cell, a, b) for b in names) for a in names)
    return Matrix(names, rows)


def _matrix_cell(index: Index, cell: CellFinding, a: str, b: str) -> MatrixCell | None:
    pair = index.pair(cell.id, a, b) if a != b else None
    if pair is None:
        return None
    words, tone = verdict_words(pair)
    detail = verdict_detail(pair)
    figure = comparison_figure(pair)
    interval = f" ({figure.interval})" if figure.interval else ""
    rest = (words, detail, f"{render_count(pair.pairs, 'pair')}, {pair.kind}", warning_words(pair))
    tip = "; ".join([f"{a} against {b}: {figure.value}{interval}", *(text for text in rest if text)])
    return MatrixCell(_SIGNS.get(tone, ""), figure.value, tone, tip)
