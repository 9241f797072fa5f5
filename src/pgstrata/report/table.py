"""The verdict table in words and figures: one text for terminal, page and Markdown alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pgstrata.analyze.findings import CellFinding, Comparison, Findings, StackFinding
from pgstrata.analyze.scale import Metric, metric_of
from pgstrata.analyze.statements import Choice
from pgstrata.report.crash import durability_words
from pgstrata.report.figures import (
    NOT_KNOWN,
    is_bounded,
    render_count,
    render_factor,
    render_interval,
    render_metric,
    render_percent,
    render_ratio,
    render_ratio_interval,
    render_spread,
)
from pgstrata.report.pairs import Index
from pgstrata.report.words import MOST_ACCEPTABLE, MOST_HOSTS
from pgstrata.spec.promise import SURVIVES

Tone = Literal["best", "equal", "worse", "worse-proven", "better", "better-proven", "undecided", "none"]


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
    verdict_detail: str
    """What a verdict rests on, or what would settle it; may be empty."""
    tone: Tone
    jitter: str
    stall: str
    load: str
    space: str
    promise: str
    """The durability that the configuration promises."""
    durability: str
    """The same, with what power cuts showed."""
    durable: bool
    runs: int
    excluded: int
    labels: tuple[str, ...]
    unsupported: str | None

    @property
    def durability_tone(self) -> Literal["", "unsure", "lossy"]:
        """How what the stack promises is shown; not knowing is no loss."""
        return "" if self.durable else "unsure" if self.durability.startswith("unknown") else "lossy"


@dataclass(frozen=True)
class Measured:
    """A column of the table: the field of a row, its title there, and the full one."""

    field: str
    title: str
    full: str


MEASURED = (
    Measured("jitter", "Jitter", "Jitter (CV of 1 s)"),
    Measured("stall", "Stall", "Longest stall"),
    Measured("load", "Load", "Load"),
    Measured("space", "Space", "Space on the medium"),
)


@dataclass(frozen=True)
class VerdictTable:
    """One cell of the grid."""

    cell: CellFinding
    title: str
    primary: Metric
    best: str | None
    rows: tuple[VerdictRow, ...]
    unsupported: tuple[VerdictRow, ...]

    @property
    def mixed_durability(self) -> bool:
        """Whether stacks that promise different things stand in one table."""
        return len({row.promise for row in self.rows}) > 1

    @property
    def columns(self) -> tuple[Measured, ...]:
        """What was measured besides the primary metric: columns of nothing but `n/a` are none."""
        return tuple(c for c in MEASURED if any(getattr(row, c.field) != NOT_KNOWN for row in self.rows))

    @property
    def common_labels(self) -> frozenset[str]:
        """Labels of every row: said once above the table, not in each row."""
        return frozenset.intersection(*(frozenset(row.labels) for row in self.rows)) if self.rows else frozenset()


def cell_title(cell: CellFinding) -> str:
    """`tpcb-like, scale 50, 8 clients`, with the rate of an open loop."""
    return ", ".join(_parts(cell).values())


def _parts(cell: CellFinding) -> dict[str, str]:
    """What a cell is, by factor; imports may not know scale and clients, and not every database has a scale."""
    parts = {"script": cell.script}
    if cell.scale and cell.scaled:
        parts["scale"] = f"scale {cell.scale:,}"
    if cell.clients:
        parts["clients"] = render_count(cell.clients, "client")
    if cell.rate_tps is not None:
        parts["rate"] = f"open loop at {cell.rate_tps:,.0f} TPS"
    return parts


def short_titles(findings: Findings) -> dict[str, str]:
    """Titles of the cells by id, without the factors that are the same in all of them."""
    parts = {cell.id: _parts(cell) for cell in main_cells(findings)}
    seen: dict[str, set[str]] = {}
    for one in parts.values():
        for factor, text in one.items():
            seen.setdefault(factor, set()).add(text)
    return {
        id_: ", ".join(text for factor, text in one.items() if len(seen[factor]) > 1) or ", ".join(one.values())
        for id_, one in parts.items()
    }


def main_cells(findings: Findings) -> tuple[CellFinding, ...]:
    """Cells that were declared; those of the latency stage belong to one of them."""
    closed = tuple(c for c in findings.cells if c.rate_tps is None)
    return closed or findings.cells


def matched_cells(findings: Findings, cell: CellFinding) -> tuple[CellFinding, ...]:
    """The open-loop cells at matched load that belong to a cell, by rate."""
    same = (cell.script, cell.scale, cell.clients)
    found = [c for c in findings.cells if c.rate_tps is not None and (c.script, c.scale, c.clients) == same]
    return tuple(sorted(found, key=lambda c: c.rate_tps or 0.0)) if cell.rate_tps is None else ()


def verdict_tables(findings: Findings) -> tuple[VerdictTable, ...]:
    """A table for each cell, rows best first; stacks that could not be built apart."""
    index = Index(findings)
    return tuple(_verdict_table(index, cell) for cell in main_cells(findings))


def _verdict_table(index: Index, cell: CellFinding) -> VerdictTable:
    best = cell.ranking[0] if cell.ranking else None
    rows = [_row(index, cell, stack, best) for stack in index.stacks_of(cell)]
    return VerdictTable(
        cell=cell,
        title=cell_title(cell),
        primary=metric_of(index.findings.campaign.primary),
        best=best,
        rows=tuple(r for r in rows if r.unsupported is None),
        unsupported=tuple(r for r in rows if r.unsupported is not None),
    )


def _row(index: Index, cell: CellFinding, stack: StackFinding, best: str | None) -> VerdictRow:
    primary = index.findings.campaign.primary
    against = index.pair(cell.id, stack.name, best) if best and stack.name != best else None
    left_behind = cell.chosen is not None and stack.name in cell.chosen.left_behind
    verdict, tone = _LEFT_BEHIND if left_behind else _verdict(index.findings, stack, against, stack.name == best)
    detail = verdict_detail(against) if against and stack.n and not left_behind else ""
    return VerdictRow(
        rank=cell.ranking.index(stack.name) + 1 if stack.name in cell.ranking else None,
        name=stack.name,
        spec=stack.spec,
        primary=figure(stack, primary),
        against_best=_against(against, stack.name == best),
        verdict=verdict,
        verdict_detail=detail,
        tone=tone,
        jitter=value(stack, "cv_1s"),
        stall=value(stack, "longest_stall_s"),
        load=value(stack, "load_s"),
        space=value(stack, "space_physical_bytes"),
        promise=stack.durability.class_,
        durability=durability_words(stack.durability),
        durable=stack.durability.class_ == SURVIVES and stack.durability.verdict not in ("lost", "corrupt"),
        runs=stack.n,
        excluded=len(stack.excluded),
        labels=stack.labels,
        unsupported=stack.unsupported,
    )


_LEFT_BEHIND: tuple[str, Tone] = ("left behind by screening", "worse")


def value(stack: StackFinding, name: str) -> str:
    """A metric's estimate with its unit, `n/a` when it was not measured."""
    found = stack.metrics.get(name)
    return render_metric(found.estimate if found else None, metric_of(name))


def figure(stack: StackFinding, name: str) -> Figure:
    """A metric's estimate and interval."""
    found = stack.metrics.get(name)
    if found is None or found.estimate is None:
        return Figure(NOT_KNOWN, "")
    metric = metric_of(name)
    if not is_bounded(found.low, found.high, metric):
        known = [v for v in found.runs if v is not None]
        return Figure(render_metric(found.estimate, metric), render_spread(known, metric))
    return Figure(render_metric(found.estimate, metric), render_interval(found.low, found.high, metric))


def _against(comparison: Comparison | None, is_best: bool) -> Figure:
    if is_best:
        return Figure("best", "")
    if comparison is None:
        return Figure(NOT_KNOWN, "")
    return comparison_figure(comparison)


def comparison_figure(comparison: Comparison) -> Figure:
    """Ratio or difference of a to b, with its interval."""
    if comparison.scale == "ratio":
        interval = render_ratio_interval(comparison.low, comparison.high)
        # An estimate is told as its interval is: as factors, where one bound is a factor of two.
        value = render_factor(comparison.ratio) if interval.endswith("×") else render_ratio(comparison.ratio)
        return Figure(value, interval)
    what = metric_of(comparison.metric)
    return Figure(render_metric(comparison.ratio, what), render_interval(comparison.low, comparison.high, what))


def _verdict(findings: Findings, stack: StackFinding, against: Comparison | None, is_best: bool) -> tuple[str, Tone]:
    if stack.unsupported is not None:
        return "unsupported here", "none"
    if stack.n == 0:
        return "no valid run", "none"
    if is_best:
        return _best_words(findings, stack)
    if against is None:
        return "not compared", "none"
    return verdict_words(against)


def _best_words(findings: Findings, stack: StackFinding) -> tuple[str, Tone]:
    cell = next((c for c in findings.cells if c.id == stack.cell), None)
    if cell is None or not any(isinstance(s, Choice) for s in cell.statements):
        return "best estimate", "none"
    return ("chosen", "best") if cell.chosen is not None else ("leads, not settled", "undecided")


def verdict_words(comparison: Comparison) -> tuple[str, Tone]:
    """The verdict of a against b in words, and the tone it is shown in."""
    if comparison.verdict == "equal":
        return "practically equal", "equal"
    if comparison.verdict == "undecided":
        return "undecided", "undecided"
    word = _direction(comparison)
    if comparison.proven:
        return f"{word}, proven", "worse-proven" if comparison.verdict == "worse" else "better-proven"
    return f"{word}, not confirmed", "worse" if comparison.verdict == "worse" else "better"


def verdict_detail(comparison: Comparison) -> str:
    """`within 2 %`; `about 34 more pairs; equal within 3 % now`: what would settle the margin, what holds already."""
    if comparison.verdict == "equal":
        return _within_words(comparison)
    if comparison.verdict != "undecided":
        return ""
    parts = []
    needed, hosts = comparison.needed_pairs, comparison.source == "hosts"
    if needed and comparison.source != "import" and not (hosts and needed > MOST_HOSTS):
        parts.append(f"about {render_count(needed, 'more host' if hosts else 'more pair')}")
    acceptable = comparison.acceptable_margin
    if acceptable is not None and acceptable <= MOST_ACCEPTABLE and comparison.scale == "ratio":
        parts.append(f"equal within {render_percent(acceptable)} now")
    return "; ".join(parts)


def _within_words(comparison: Comparison) -> str:
    if comparison.margin is None:
        return ""
    metric = metric_of(comparison.metric)
    return f"within {metric.margin_of(metric.bound(comparison.margin))}"


def _direction(comparison: Comparison) -> str:
    if metric_of(comparison.metric).unit == "TPS":
        return "slower" if comparison.verdict == "worse" else "faster"
    return comparison.verdict
