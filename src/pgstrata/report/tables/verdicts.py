"""The verdict table in words and figures: the same text for terminal, page and Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pgstrata.analyze.campaign.caveats import notable
from pgstrata.analyze.campaign.scale import Metric, metric_of
from pgstrata.analyze.campaign.statements import Choice
from pgstrata.analyze.finding import Uncounted
from pgstrata.analyze.findings import CellFinding, Comparison, Findings, StackFinding
from pgstrata.record.crash import FAILED
from pgstrata.report.sentences.crash import durability_words
from pgstrata.report.sentences.figures import (
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
from pgstrata.report.sentences.statements import MOST_ACCEPTABLE, MOST_HOSTS, shares_words, warning_words
from pgstrata.report.tables.pairs import Index
from pgstrata.spec.durability_class import SURVIVES

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
    """Basis of a verdict, or the cost to settle it; may be empty."""
    tone: Tone
    jitter: str
    stall: str
    load: str
    space: str
    failures: str
    """Shares of the transactions that figures do not count, or that were retried."""
    promise: str
    """The durability that the configuration promises."""
    durability: str
    """The same, with the results of power cuts."""
    durable: bool
    runs: int
    excluded: int
    labels: tuple[str, ...]
    unsupported: str | None

    @property
    def durability_tone(self) -> Literal["", "unsure", "lossy"]:
        """Tone of the durability; unknown is not shown as loss."""
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
    Measured("failures", "Failures", "Transactions failed, skipped, late, retried"),
)


@dataclass(frozen=True)
class VerdictTable:
    """Table of one cell of the grid."""

    cell: CellFinding
    title: str
    primary: Metric
    best: str | None
    rows: tuple[VerdictRow, ...]
    unsupported: tuple[VerdictRow, ...]

    @property
    def mixed_durability(self) -> bool:
        """True if stacks in the table promise different durability."""
        return len({row.promise for row in self.rows}) > 1

    @property
    def columns(self) -> tuple[Measured, ...]:
        """Measured metrics besides the primary one; columns with nothing but `n/a` are left out."""
        return tuple(c for c in MEASURED if any(getattr(row, c.field) != NOT_KNOWN for row in self.rows))

    @property
    def common_labels(self) -> frozenset[str]:
        """Labels common to all rows: shown once above the table, not in each row."""
        return frozenset.intersection(*(frozenset(row.labels) for row in self.rows)) if self.rows else frozenset()


def cell_title(cell: CellFinding) -> str:
    """Return `tpcb-like, scale 50, 8 clients`, with the rate of an open loop."""
    return ", ".join(_parts(cell).values())


def _parts(cell: CellFinding) -> dict[str, str]:
    """Return the factors of a cell by name; imports may not know scale and clients, and some databases have no
    scale."""
    parts = {"script": cell.script}
    if cell.scale and cell.scaled:
        parts["scale"] = f"scale {cell.scale:,}"
    if cell.clients:
        parts["clients"] = render_count(cell.clients, "client")
    if cell.rate_tps is not None:
        parts["rate"] = f"open loop at {cell.rate_tps:,.0f} TPS"
    return parts


def short_titles(findings: Findings) -> dict[str, str]:
    """Return titles of the cells by id, without the factors that are the same in all of them."""
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
    """Return the declared cells; each cell of the latency stage belongs to one of them."""
    closed = tuple(c for c in findings.cells if c.rate_tps is None)
    return closed or findings.cells


def matched_cells(findings: Findings, cell: CellFinding) -> tuple[CellFinding, ...]:
    """Return the open-loop cells at matched load that belong to a cell, by rate."""
    same = (cell.script, cell.scale, cell.clients)
    found = [c for c in findings.cells if c.rate_tps is not None and (c.script, c.scale, c.clients) == same]
    return tuple(sorted(found, key=lambda c: c.rate_tps or 0.0)) if cell.rate_tps is None else ()


def verdict_tables(findings: Findings) -> tuple[VerdictTable, ...]:
    """Return a table for each cell, rows best first; stacks that could not be built are separate."""
    index = Index(findings)
    return tuple(_verdict_table(index, cell) for cell in main_cells(findings))


def _verdict_table(index: Index, cell: CellFinding) -> VerdictTable:
    best = cell.ranking[0] if cell.ranking else None
    stacks = index.stacks_of(cell)
    failures = notable({stack.name: stack.transactions for stack in stacks})
    rows = [_row(index, cell, stack, best, failures) for stack in stacks]
    return VerdictTable(
        cell=cell,
        title=cell_title(cell),
        primary=metric_of(index.findings.campaign.primary),
        best=best,
        rows=tuple(r for r in rows if r.unsupported is None),
        unsupported=tuple(r for r in rows if r.unsupported is not None),
    )


def _row(index: Index, cell: CellFinding, stack: StackFinding, best: str | None, failures: Uncounted) -> VerdictRow:
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
        failures=_failures(stack, failures),
        promise=stack.durability.class_,
        durability=durability_words(stack.durability),
        durable=stack.durability.class_ == SURVIVES and stack.durability.verdict not in FAILED,
        runs=stack.n,
        excluded=len(stack.excluded),
        labels=stack.labels,
        unsupported=stack.unsupported,
    )


_LEFT_BEHIND: tuple[str, Tone] = ("left behind by screening", "worse")


def _failures(stack: StackFinding, told: Uncounted) -> str:
    """Return `12 % failed and 3 % were retried`; unknown if no stack of the cell has notable shares."""
    if not told or stack.transactions is None:
        return NOT_KNOWN
    return shares_words(told[stack.name]) if stack.name in told else "none"


def value(stack: StackFinding, name: str) -> str:
    """Return a metric's estimate with its unit, `n/a` if it was not measured."""
    found = stack.metrics.get(name)
    return render_metric(found.estimate if found else None, metric_of(name))


def figure(stack: StackFinding, name: str) -> Figure:
    """Return a metric's estimate and interval."""
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
    """Return the ratio or difference of a to b, with its interval."""
    if comparison.scale == "ratio":
        interval = render_ratio_interval(comparison.low, comparison.high)
        # An estimate is shown like its interval: as factors if one bound is a factor of two.
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
        return "row of the design" if findings.tuning is not None else "not compared", "none"
    return verdict_words(against)


def _best_words(findings: Findings, stack: StackFinding) -> tuple[str, Tone]:
    cell = next((c for c in findings.cells if c.id == stack.cell), None)
    if cell is None or not any(isinstance(s, Choice) for s in cell.statements):
        return "best estimate", "none"
    return ("chosen", "best") if cell.chosen is not None else ("leads, not settled", "undecided")


def verdict_words(comparison: Comparison) -> tuple[str, Tone]:
    """Return the verdict of a against b in words, and its tone."""
    if comparison.verdict == "equal":
        return "practically equal", "equal"
    if comparison.verdict == "undecided":
        return "undecided", "undecided"
    word = _direction(comparison)
    if comparison.proven:
        return f"{word}, proven", "worse-proven" if comparison.verdict == "worse" else "better-proven"
    return f"{word}, not confirmed", "worse" if comparison.verdict == "worse" else "better"


def verdict_detail(comparison: Comparison) -> str:
    """Describe the cost to settle the margin and the present result: `within 2 %`; `about 34 more pairs; equal within 3
    % now`."""
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


# ---------------------------------------------------------------- every stack against every other

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
