"""The verdict table in words and figures: one text for terminal, page and Markdown alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pgstrata.analyze.findings import CellFinding, Comparison, Findings, StackFinding
from pgstrata.report.figures import (
    NOT_KNOWN,
    render_interval,
    render_metric,
    render_percent,
    render_ratio,
    render_ratio_interval,
)
from pgstrata.report.metrics import Metric, metric
from pgstrata.report.pairs import Index

Tone = Literal["best", "equal", "worse", "worse-proven", "better", "better-proven", "undecided", "none"]

_DURABLE_WORDS = {"survives power loss"}


@dataclass(frozen=True)
class Figure:
    """An estimate and its interval, as text."""

    value: str
    interval: str


@dataclass(frozen=True)
class VerdictRow:
    """One stack in one cell."""

    rank: int | None
    name: str
    spec: str
    primary: Figure
    against_best: Figure
    verdict: str
    tone: Tone
    sentence: str
    jitter: str
    stall: str
    load: str
    space: str
    durability: str
    durable: bool
    runs: int
    excluded: int
    labels: tuple[str, ...]
    unsupported: str | None


@dataclass(frozen=True)
class VerdictTable:
    """One cell of the grid."""

    cell: CellFinding
    title: str
    primary: Metric
    best: str | None
    rows: tuple[VerdictRow, ...]
    unsupported: tuple[VerdictRow, ...]


def cell_title(cell: CellFinding) -> str:
    """`tpcb-like, scale 50, 8 clients`."""
    clients = "client" if cell.clients == 1 else "clients"
    return f"{cell.script}, scale {cell.scale:,}, {cell.clients:,} {clients}"


def verdict_tables(findings: Findings) -> tuple[VerdictTable, ...]:
    """A table for each cell, rows best first; stacks that could not be built apart."""
    index = Index(findings)
    return tuple(_verdict_table(index, cell) for cell in findings.cells)


def _verdict_table(index: Index, cell: CellFinding) -> VerdictTable:
    best = cell.ranking[0] if cell.ranking else None
    rows = [_row(index, cell, stack, best) for stack in index.stacks_of(cell)]
    return VerdictTable(
        cell=cell,
        title=cell_title(cell),
        primary=metric(index.findings.campaign.primary),
        best=best,
        rows=tuple(r for r in rows if r.unsupported is None),
        unsupported=tuple(r for r in rows if r.unsupported is not None),
    )


def _row(index: Index, cell: CellFinding, stack: StackFinding, best: str | None) -> VerdictRow:
    primary = index.findings.campaign.primary
    against = index.pair(cell.id, stack.name, best) if best and stack.name != best else None
    verdict, tone = _verdict(index.findings, stack, against, stack.name == best)
    return VerdictRow(
        rank=cell.ranking.index(stack.name) + 1 if stack.name in cell.ranking else None,
        name=stack.name,
        spec=stack.spec,
        primary=figure(stack, primary),
        against_best=_against(against, stack.name == best),
        verdict=verdict,
        tone=tone,
        sentence=against.sentence if against else "",
        jitter=value(stack, "cv_1s"),
        stall=value(stack, "longest_stall_s"),
        load=value(stack, "load_s"),
        space=value(stack, "space_physical_bytes"),
        durability=durability_words(stack),
        durable=stack.durability.class_.replace("_", " ") in _DURABLE_WORDS,
        runs=stack.n,
        excluded=len(stack.excluded),
        labels=stack.labels,
        unsupported=stack.unsupported,
    )


def value(stack: StackFinding, name: str) -> str:
    """A metric's estimate with its unit, `n/a` when it was not measured."""
    found = stack.metrics.get(name)
    return render_metric(found.estimate if found else None, metric(name))


def figure(stack: StackFinding, name: str) -> Figure:
    """A metric's estimate and interval."""
    found = stack.metrics.get(name)
    if found is None or found.estimate is None:
        return Figure(NOT_KNOWN, "")
    return Figure(render_metric(found.estimate, metric(name)), render_interval(found.low, found.high, metric(name)))


def durability_words(stack: StackFinding) -> str:
    """Class from the configuration and, where power was cut, what came of it."""
    durability = stack.durability
    words = durability.class_.replace("_", " ")
    if durability.verdict == "not_tested":
        return words
    states = f"{durability.states:,} states"
    return f"{words}; power cuts: {durability.verdict} ({states})"


def _against(comparison: Comparison | None, is_best: bool) -> Figure:
    if is_best:
        return Figure("best", "")
    if comparison is None:
        return Figure(NOT_KNOWN, "")
    return comparison_figure(comparison)


def comparison_figure(comparison: Comparison) -> Figure:
    """Ratio or difference of a to b, with its interval."""
    if comparison.scale == "ratio":
        return Figure(render_ratio(comparison.ratio), render_ratio_interval(comparison.low, comparison.high))
    what = metric(comparison.metric)
    return Figure(render_metric(comparison.ratio, what), render_interval(comparison.low, comparison.high, what))


def _verdict(findings: Findings, stack: StackFinding, against: Comparison | None, is_best: bool) -> tuple[str, Tone]:
    if stack.unsupported is not None:
        return "unsupported here", "none"
    if stack.n == 0:
        return "no valid run", "none"
    if is_best:
        return ("chosen" if _is_chosen(findings, stack) else "best estimate"), "best"
    if against is None:
        return "not compared", "none"
    return verdict_words(against, findings.campaign.margin)


def _is_chosen(findings: Findings, stack: StackFinding) -> bool:
    cell = next((c for c in findings.cells if c.id == stack.cell), None)
    return cell is not None and cell.chosen is not None and cell.chosen.name == stack.name


def verdict_words(comparison: Comparison, margin: float) -> tuple[str, Tone]:
    """The verdict of a against b in words, and the tone it is shown in."""
    if comparison.verdict == "equal":
        return f"practically equal (within {render_percent(margin)})", "equal"
    if comparison.verdict == "undecided":
        more = comparison.needed_pairs
        return "undecided" + (f"; about {more:,} more pairs would settle it" if more else ""), "undecided"
    word = _direction(comparison)
    if comparison.proven:
        return f"{word}, proven", "worse-proven" if comparison.verdict == "worse" else "better-proven"
    return f"{word}, not confirmed", "worse" if comparison.verdict == "worse" else "better"


def _direction(comparison: Comparison) -> str:
    if metric(comparison.metric).unit == "TPS":
        return "slower" if comparison.verdict == "worse" else "faster"
    return comparison.verdict
