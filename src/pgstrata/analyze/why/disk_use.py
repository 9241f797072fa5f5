"""Activity of modelled disks over the runs of a stack: sums of all runs, by transaction or by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgstrata.analyze.campaign.statements import LateDisks
from pgstrata.analyze.findings import DiskFinding
from pgstrata.record.schema import CellResult, DiskUse

LATE_MEDIAN_PERCENT = 5
LATE_P99_PERCENT = 20
"""Lateness that strata-disk must keep on an idle machine (docs/media.md): later answers are due to the host, not the
model."""


def disk_findings(results: Sequence[CellResult]) -> tuple[DiskFinding, ...]:
    """Return one finding for each disk, in the order of the stack. Pure."""
    names = dict.fromkeys(use.disk for result in results for use in result.disks)
    return tuple(_finding(name, results) for name in names)


def _finding(name: str, results: Sequence[CellResult]) -> DiskFinding:
    runs = [(result.transactions, use) for result in results for use in result.disks if use.disk == name]
    uses = [use for _, use in runs]
    transactions, elapsed_s = sum(count for count, _ in runs), sum(use.elapsed_s for use in uses)
    flushes, seeks = sum(use.flushes for use in uses), sum(use.seeks for use in uses)
    return DiskFinding(
        disk=name,
        model=uses[0].model,
        stretch=uses[0].stretch,
        runs=len(uses),
        reads_per_s=sum(use.reads for use in uses) / elapsed_s,
        writes_per_s=sum(use.writes for use in uses) / elapsed_s,
        flushes_per_s=flushes / elapsed_s,
        flushes_per_transaction=flushes / transactions if transactions else None,
        seeks_per_transaction=seeks / transactions if transactions else None,
        queue=sum(use.queued_s for use in uses) / elapsed_s,
        busy_share=min(1.0, sum(use.busy_s for use in uses) / elapsed_s),
        seek_share=min(1.0, sum(use.seek_s for use in uses) / elapsed_s),
        errors=sum(use.errors for use in uses),
        late_median_percent=late_percent(uses, 0.5),
        late_p99_percent=late_percent(uses, 0.99),
    )


def late_disks(name: str, disks: Sequence[DiskFinding]) -> Iterator[LateDisks]:
    """Yield a statement for a stack with a disk later than a model may be. Pure."""
    late = [disk for disk in disks if _is_late(disk)]
    if late:
        yield LateDisks(
            subject=name,
            models=tuple(dict.fromkeys(disk.model for disk in late)),
            median_percent=max(disk.late_median_percent or 0 for disk in late),
            p99_percent=max(disk.late_p99_percent or 0 for disk in late),
        )


def _is_late(disk: DiskFinding) -> bool:
    return (disk.late_median_percent or 0) > LATE_MEDIAN_PERCENT or (disk.late_p99_percent or 0) > LATE_P99_PERCENT


def late_percent(uses: Sequence[DiskUse], share: float) -> int | None:
    """Return the lateness, in percent of the modelled time, that this share of the answers did not exceed; None without
    answers."""
    longest = max((len(use.late_percent_counts) for use in uses), default=0)
    counts = [
        sum(use.late_percent_counts[i] for use in uses if i < len(use.late_percent_counts)) for i in range(longest)
    ]
    wanted, seen = share * sum(counts), 0
    for percent, count in enumerate(counts):
        seen += count
        if seen and seen >= wanted:
            return percent
    return None
