"""Activity of modelled disks, as a table: the same text for terminal, page and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from pgstrata.analyze.findings import CellFinding, DiskFinding, Findings
from pgstrata.report.sentences.figures import NOT_KNOWN, render_number, render_percent

TITLE = "What the modelled disks did"
EXPLAINED = (
    "By the disks' own account, summed over the runs. Busy and seeking are shares of the time, of a network volume the "
    "share of its rates that is used; answers came later than the model has them by that share of their time (median, "
    "p99)."
)
COLUMNS = (
    "Stack", "Disk", "Model", "Reads/s", "Writes/s", "Flushes/s", "Flushes per transaction", "Seeks per transaction",
    "Mean queue", "Busy", "Seeking", "Late",
)  # fmt: skip
TEXTS = 3
"""Number of leading columns with words; the others have figures."""


JOINED = 4
"""Number of disks of a volume from which on they share one row, with their smallest and largest figures."""


NUMBERS: tuple[Callable[[DiskFinding], float | None], ...] = (
    lambda disk: disk.reads_per_s,
    lambda disk: disk.writes_per_s,
    lambda disk: disk.flushes_per_s,
    lambda disk: disk.flushes_per_transaction,
    lambda disk: disk.seeks_per_transaction,
    lambda disk: disk.queue,
)


def disk_rows(findings: Findings, cell: CellFinding) -> tuple[tuple[str, ...], ...]:
    """Return rows of `COLUMNS` for the disks of each stack, in the order of the stacks; none if no disk is modelled."""
    return tuple(_rows(findings, cell))


def _rows(findings: Findings, cell: CellFinding) -> Iterator[tuple[str, ...]]:
    for stack in findings.stacks:
        if stack.cell == cell.id:
            yield from ((stack.name, _name(disks), _model(disks[0]), *_figures(disks)) for disks in _alike(stack.disks))


def _alike(disks: Sequence[DiskFinding]) -> Iterator[tuple[DiskFinding, ...]]:
    """Group disks of the same volume and model if there are many."""
    for _, group in groupby(disks, lambda disk: (disk.disk.rpartition(".")[0], _model(disk))):
        together = tuple(group)
        yield from [together] if len(together) >= JOINED else [(disk,) for disk in together]


def _name(disks: Sequence[DiskFinding]) -> str:
    return disks[0].disk if len(disks) == 1 else f"{disks[0].disk} … {disks[-1].disk} ({len(disks)})"


def _model(disk: DiskFinding) -> str:
    stretched = f", stretched {disk.stretch:g}-fold" if disk.stretch != 1 else ""
    failed = f", {disk.errors:,} requests failed" if disk.errors else ""
    return f"{disk.model}{stretched}{failed}"


def _figures(disks: Sequence[DiskFinding]) -> Iterator[str]:
    for figure in NUMBERS:
        yield _span((figure(disk) for disk in disks), render_number)
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
