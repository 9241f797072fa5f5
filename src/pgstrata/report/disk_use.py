"""What modelled disks did, as a table: one text for terminal, page and Markdown alike."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.analyze.findings import CellFinding, DiskFinding, Findings
from pgstrata.report.figures import NOT_KNOWN, render_number, render_percent

TITLE = "What the modelled disks did"
EXPLAINED = (
    "By the disks' own account, summed over the runs. Busy and seeking are shares of the time; answers came later than "
    "the model has them by that share of their time (median, p99)."
)
COLUMNS = (
    "Stack", "Disk", "Model", "Reads/s", "Writes/s", "Flushes/s", "Flushes per transaction", "Seeks per transaction",
    "Mean queue", "Busy", "Seeking", "Late",
)  # fmt: skip
TEXTS = 3
"""So many columns hold words, the others figures."""


def disk_rows(findings: Findings, cell: CellFinding) -> tuple[tuple[str, ...], ...]:
    """A row of `COLUMNS` for each disk of each stack, in the order of the stacks; none where no disk is modelled."""
    return tuple(_rows(findings, cell))


def _rows(findings: Findings, cell: CellFinding) -> Iterator[tuple[str, ...]]:
    for stack in findings.stacks:
        if stack.cell == cell.id:
            yield from ((stack.name, disk.disk, _model(disk), *_figures(disk)) for disk in stack.disks)


def _model(disk: DiskFinding) -> str:
    stretched = f", stretched {disk.stretch:g}-fold" if disk.stretch != 1 else ""
    failed = f", {disk.errors:,} requests failed" if disk.errors else ""
    return f"{disk.model}{stretched}{failed}"


def _figures(disk: DiskFinding) -> Iterator[str]:
    rates = (disk.reads_per_s, disk.writes_per_s, disk.flushes_per_s)
    yield from (
        render_number(value) for value in (*rates, disk.flushes_per_transaction, disk.seeks_per_transaction, disk.queue)
    )
    yield from (render_percent(share) for share in (disk.busy_share, disk.seek_share))
    yield _late(disk)


def _late(disk: DiskFinding) -> str:
    if disk.late_median_percent is None or disk.late_p99_percent is None:
        return NOT_KNOWN
    return f"{_percent(disk.late_median_percent)}, {_percent(disk.late_p99_percent)}"


def _percent(whole: int) -> str:
    return "100 % or more" if whole >= 100 else f"{whole} %"
