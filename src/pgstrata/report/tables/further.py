"""Tables below the verdicts of a cell: scripts of a mix, modelled disks, nodes of clusters, hosts, checks of slices.

Terminal, page and Markdown show the same texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pgstrata.analyze.campaign.scale import Metric, metric_of
from pgstrata.analyze.campaign.statements import Capacity
from pgstrata.analyze.finding import FactorFinding
from pgstrata.analyze.findings import (
    CellFinding,
    CostFinding,
    DiskFinding,
    Findings,
    HostFinding,
    HostsFinding,
    ScriptFinding,
    SliceEffect,
    SlicesFinding,
    StackFinding,
)
from pgstrata.report.sentences.figures import (
    NOT_KNOWN,
    UNBOUNDED,
    render_count,
    render_metric,
    render_number,
    render_percent,
)
from pgstrata.report.sentences.markup import quoted
from pgstrata.report.sentences.statements import signed_change
from pgstrata.report.sentences.tuning import interaction_words
from pgstrata.report.tables import cluster


@dataclass(frozen=True)
class FurtherTable:
    """A table with its explanation, and sentences below it."""

    name: str
    """Its class on the page."""
    title: str
    explained: str
    columns: tuple[str, ...]
    texts: int
    """Number of leading columns with words; the others have figures."""
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()

    @property
    def of_stacks(self) -> bool:
        """True if a row is of a stack; otherwise columns may be."""
        return self.columns[0] == "Stack"


def further_tables(findings: Findings, cell: CellFinding) -> tuple[FurtherTable, ...]:
    """Return the tables of a cell that have rows."""
    stacks = [stack for stack in findings.stacks if stack.cell == cell.id]
    tables = (
        _cost_table(findings, cell, stacks),
        effect_table(findings, cell),
        _script_table(stacks),
        _disk_table(stacks),
        _node_table(stacks),
        _hosts_table(findings, cell),
    )
    return tuple(table for table in tables if table is not None and table.rows)


# ---------------------------------------------------------------- costs


def _cost_table(findings: Findings, cell: CellFinding, stacks: Sequence[StackFinding]) -> FurtherTable:
    """A row for each stack with a price, the cheapest transactions first."""
    priced = sorted(((s.name, s.cost) for s in stacks if s.cost is not None), key=lambda one: one[1].million)
    rows = tuple(
        (
            name,
            _money(cost.per_hour, cost),
            _money(cost.million, cost),
            UNBOUNDED
            if cost.low is None or cost.high is None
            else f"{render_number(cost.low)} … {_money(cost.high, cost)}",
        )
        for name, cost in priced
    )
    return FurtherTable(
        "costs",
        "Cost of a million transactions",
        "By the prices of the campaign, at the throughput in the verdicts and its interval; for the whole of host and "
        "devices, busy all the time.",
        ("Stack", "Price of an hour", "A million transactions", "Interval"),
        1,
        rows,
        tuple(_cheapest(findings, cell, dict(priced))),
    )


def _money(value: float, cost: CostFinding) -> str:
    return f"{render_number(value)} {cost.currency}"


def _cheapest(findings: Findings, cell: CellFinding, priced: Mapping[str, CostFinding]) -> Iterator[str]:
    """Yield the cheapest stack that sustained the wanted rate, by the runs of the capacity stage."""
    wanted = findings.campaign.wanted_tps
    for found in cell.statements if wanted is not None and priced else ():
        if isinstance(found, Capacity):
            able = [b.name for b in found.brackets if b.name in priced and (b.low_tps or 0.0) >= (wanted or 0.0)]
            goal = f"{found.percentile} within {found.objective_ms:g} ms at {render_number(wanted)}/s"
            if able:
                best = min(able, key=lambda name: priced[name].per_hour)
                price = _money(priced[best].per_hour, priced[best])
                yield f"The cheapest stack that keeps {goal}: {quoted(best)}, for {price} an hour."
            else:
                yield f"No stack with a price was shown to keep {goal}."


# ---------------------------------------------------------------- factors


def effect_table(findings: Findings, cell: CellFinding) -> FurtherTable | None:
    """A row for each factor of a screening, the largest effect first; None for any other campaign."""
    found = findings.tuning
    if found is None or found.cell != cell.id:
        return None
    words = [interaction_words(one) for one in found.interactions]
    words += [f"Could not be measured: {one}." for one in found.lost]
    return FurtherTable(
        "effects",
        "What each factor does",
        "The change against the start, averaged over the levels of all other factors. Intervals hold for all factors "
        "together, whenever one looks.",
        ("Factor", "Start", "Change", "Verdict", "Chosen", "May cost", "Source", "Effect", "Low", "High"),
        7,
        tuple(_effect_row(f) for f in sorted(found.factors, key=lambda f: -abs(f.effect or 0.0))),
        tuple(words),
    )


def _effect_row(f: FactorFinding) -> tuple[str, ...]:
    figures = (NOT_KNOWN if v is None else render_percent(v, sign=True) for v in (f.effect, f.low, f.high))
    chosen = "yes" if f.chosen else ""
    return (f.name, f.start, f.change, f.verdict, chosen, f.class_ or f.cost, f.source, *figures)


# ---------------------------------------------------------------- scripts


def _script_table(stacks: Sequence[StackFinding]) -> FurtherTable:
    """A row for each script of each stack, or statement of a load; none if the workload is one script."""
    return FurtherTable(
        "scripts",
        "Scripts of the mix, statements of the load",
        "Over all runs of a stack. Share: of all transactions or statements in this table. Latencies are those of the "
        "script or statement; p99: mean over the runs, where all are logged. Verdicts are on the whole. Of a load, the "
        "statements that took the most time are shown.",
        (
            "Stack",
            "Script or statement",
            "Weight",
            "Share",
            "TPS",
            "Latency",
            "Standard deviation",
            "p99",
            "Failed or skipped",
        ),
        2,
        tuple((stack.name, *_script_row(script)) for stack in stacks for script in stack.scripts),
    )


def _script_row(script: ScriptFinding) -> Iterator[str]:
    yield script.script
    yield render_number(script.weight)
    yield render_percent(script.share)
    yield render_number(script.tps)
    for name in ("latency_avg_ms", "latency_stddev_ms", "latency_p99_ms"):
        yield render_metric(getattr(script, name), metric_of(name))
    yield render_percent(script.failed_share)


# ---------------------------------------------------------------- disks


JOINED = 4
"""Number of disks of a volume from which on they share one row, with their smallest and largest figures."""
_DISK_NUMBERS = ("reads_per_s", "writes_per_s", "flushes_per_s", "flushes_per_transaction", "seeks_per_transaction",
                 "queue")  # fmt: skip


def _disk_table(stacks: Sequence[StackFinding]) -> FurtherTable:
    """Rows for the modelled disks of each stack; none if no disk is modelled."""
    return FurtherTable(
        "disks",
        "What the modelled disks did",
        "By the disks' own account, summed over the runs. Busy and seeking are shares of the time, of a network volume "
        "the share of its rates that is used; answers came later than the model has them by that share of their time "
        "(median, p99).",
        ("Stack", "Disk", "Model", "Reads/s", "Writes/s", "Flushes/s", "Flushes per transaction",
         "Seeks per transaction", "Mean queue", "Busy", "Seeking", "Late"),
        3,
        tuple(
            (stack.name, _disk_name(disks), _disk_model(disks[0]), *_disk_figures(disks))
            for stack in stacks
            for disks in _alike(stack.disks)
        ),
    )  # fmt: skip


def _alike(disks: Sequence[DiskFinding]) -> Iterator[tuple[DiskFinding, ...]]:
    """Group disks of the same volume and model if there are many."""
    for _, group in groupby(disks, lambda disk: (disk.disk.rpartition(".")[0], _disk_model(disk))):
        together = tuple(group)
        yield from [together] if len(together) >= JOINED else [(disk,) for disk in together]


def _disk_name(disks: Sequence[DiskFinding]) -> str:
    return disks[0].disk if len(disks) == 1 else f"{disks[0].disk} … {disks[-1].disk} ({len(disks)})"


def _disk_model(disk: DiskFinding) -> str:
    stretched = f", stretched {disk.stretch:g}-fold" if disk.stretch != 1 else ""
    failed = f", {disk.errors:,} requests failed" if disk.errors else ""
    return f"{disk.model}{stretched}{failed}"


def _disk_figures(disks: Sequence[DiskFinding]) -> Iterator[str]:
    for name in _DISK_NUMBERS:
        yield _span((getattr(disk, name) for disk in disks), render_number)
    yield _span((disk.busy_share for disk in disks), render_percent)
    yield _span((disk.seek_share for disk in disks), render_percent)
    median = _span((disk.late_median_percent for disk in disks), _percent)
    p99 = _span((disk.late_p99_percent for disk in disks), _percent)
    yield NOT_KNOWN if median == NOT_KNOWN else f"{median}, {p99}"


def _span(values: Iterable[float | None], render: Callable[[float], str]) -> str:
    """Return smallest and largest value, as one if they read alike."""
    known = [value for value in values if value is not None]
    if not known:
        return NOT_KNOWN
    least, most = render(min(known)), render(max(known))
    return least if least == most else f"{least.removesuffix(' %')} … {most}"


def _percent(whole: float) -> str:
    return "≥ 100 %" if whole >= 100 else f"{whole:.0f} %"


# ---------------------------------------------------------------- nodes


def _node_table(stacks: Sequence[StackFinding]) -> FurtherTable:
    """A row for each node of each cluster; none if no stack is a cluster."""
    rows = tuple((stack.name, *cluster.node_row(node)) for stack in stacks for node in stack.nodes)
    return FurtherTable("nodes", cluster.TITLE, cluster.EXPLAINED, cluster.COLUMNS, 2, rows)


# ---------------------------------------------------------------- hosts


def hosts_of_cell(findings: Findings, cell: CellFinding) -> HostsFinding | None:
    """Return the findings by host; None for a campaign on one host."""
    return next((found for found in findings.hosts if found.cell == cell.id), None)


def _hosts_table(findings: Findings, cell: CellFinding) -> FurtherTable | None:
    """A row for each host with a column for each stack; None for a campaign on one host."""
    found = hosts_of_cell(findings, cell)
    if found is None:
        return None
    by_host: dict[str, list[str]] = {}
    for row in found.rows:
        by_host.setdefault(row.host, []).append(_on_host(metric_of(found.metric), row))
    return FurtherTable(
        "hosts",
        "Each host by itself",
        "What each stack does on each host by the host's own blocks, and how far it is there from the first of the "
        "ranking. In parentheses: not beyond doubt on this host alone. An exclamation mark: this host differs from the "
        "others by more than its runs scatter.",
        ("Host", *dict.fromkeys(row.stack for row in found.rows)),
        1,
        tuple((host, *texts) for host, texts in by_host.items()),
        tuple(_disagreements(found)),
    )


def _disagreements(found: HostsFinding) -> Iterator[str]:
    """Yield a sentence for each host that disagrees with the others on a stack."""
    metric = metric_of(found.metric)
    for row in found.rows:
        if row.disagrees and row.ratio is not None:
            yield (
                f"{quoted(row.host)} differs from the other hosts: {quoted(row.stack)} is there at "
                f"{signed_change(metric, row.ratio)} against {quoted(found.against)}."
            )


def _on_host(metric: Metric, row: HostFinding) -> str:
    level = render_metric(row.level, metric)
    if row.ratio is None:
        return level
    change = signed_change(metric, row.ratio)
    shown = change if row.verdict != "undecided" else f"({change})"
    return f"{level} {shown}{' !' if row.disagrees else ''}"


# ---------------------------------------------------------------- slices

_CHECKS = {
    "age": "From one slice to the next, against the others",
    "place": "First slice of a round against the last",
    "predecessor": "Slices right after the stack against those after others",
    "memory": "Correlation with the block before",
}


def slice_table(findings: Findings, cell: CellFinding) -> FurtherTable | None:
    """Return the checks of the slices; None if the cell was not measured in slices."""
    rows = tuple(row for found in findings.slices if found.cell == cell.id for row in _checks(found))
    if not rows:
        return None
    return FurtherTable(
        "slices",
        "Checks of the slices",
        "Whether turns depend on the age of a build, on their place in a round, on the stack whose turn came before or "
        "on the block before, tested when a campaign has 6, 12 and 24 blocks at levels that were set beforehand. They "
        "are no part of the verdicts: the order of the turns is balanced, and each stack and block counts once. Small "
        "effects stay unseen in few blocks.",
        ("Check", "Stack", "Size", "p", "Level", "Result"),
        2,
        rows,
    )


def _checks(found: SlicesFinding) -> Iterator[tuple[str, ...]]:
    for effect in found.effects:
        size = render_number(effect.amount) if effect.what == "memory" else _change(effect.amount)
        p = NOT_KNOWN if effect.p is None else f"{effect.p:.3f}"
        yield _CHECKS[effect.what], effect.stack or "all", size, p, f"{effect.level:g}", _result(found, effect)
    between = render_percent(found.between)
    if found.between_low is not None and found.between_high is not None:
        between += f" ({render_percent(found.between_low)} … {render_percent(found.between_high)})"
    builds = "more than meant for" if found.unlike_builds else ""
    yield "Scatter of two stacks from build to build (90 %)", "all", between, "", "", builds
    yield "Scatter of two stacks from slice to slice", "all", render_percent(found.within), "", "", ""


def _change(ratio: float | None) -> str:
    return NOT_KNOWN if ratio is None else render_percent(ratio - 1, sign=True)


def _result(found: SlicesFinding, effect: SliceEffect) -> str:
    if effect.told:
        return "shown"
    if effect.amount is None:
        return "not visible in this order"
    if effect.p is None and found.next_reading is not None:
        return f"tested after {render_count(found.next_reading, 'block')}"
    return "not shown"
