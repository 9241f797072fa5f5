"""Activity of scripts, modelled disks and nodes of a stack: sums over its runs, for the report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from pgstrata.analyze.campaign.statements import LateDisks
from pgstrata.analyze.findings import DiskFinding, NodeFinding, ScriptFinding
from pgstrata.record.schema import CellResult, DiskUse, NodeUse, ScriptRun

LATE_MEDIAN_PERCENT = 5
LATE_P99_PERCENT = 20
"""Lateness that strata-disk must keep on an idle machine (docs/media.md): later answers are due to the host, not the
model."""


def disk_findings(results: Sequence[CellResult]) -> tuple[DiskFinding, ...]:
    """Return one finding for each disk, in the order of the stack. Pure."""
    names = dict.fromkeys(use.disk for result in results for use in result.disks)
    return tuple(_disk(name, results) for name in names)


def _disk(name: str, results: Sequence[CellResult]) -> DiskFinding:
    runs = [(result.transactions, use) for result in results for use in result.disks if use.disk == name]
    uses, transactions = [use for _, use in runs], sum(count for count, _ in runs)

    def total(key: str) -> float:
        return float(sum(getattr(use, key) for use in uses))

    elapsed_s = total("elapsed_s")
    return DiskFinding(
        disk=name,
        model=uses[0].model,
        stretch=uses[0].stretch,
        runs=len(uses),
        reads_per_s=total("reads") / elapsed_s,
        writes_per_s=total("writes") / elapsed_s,
        flushes_per_s=total("flushes") / elapsed_s,
        flushes_per_transaction=total("flushes") / transactions if transactions else None,
        seeks_per_transaction=total("seeks") / transactions if transactions else None,
        queue=total("queued_s") / elapsed_s,
        busy_share=min(1.0, total("busy_s") / elapsed_s),
        seek_share=min(1.0, total("seek_s") / elapsed_s),
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


# ---------------------------------------------------------------- scripts


def script_findings(results: Sequence[CellResult]) -> tuple[ScriptFinding, ...]:
    """Return the figures of each script of a mix, in the order of the campaign; none for a cell with one script."""
    names = dict.fromkeys(run.name for result in results for run in result.scripts)
    transactions = sum(run.transactions for result in results for run in result.scripts)
    return tuple(_script(name, results, transactions) for name in names)


def _script(name: str, results: Sequence[CellResult], transactions: int) -> ScriptFinding:
    runs = [run for result in results for run in result.scripts if run.name == name]
    own = sum(run.transactions for run in runs)
    measured_s = sum(run.transactions / run.tps for run in runs if run.tps)
    tried = own + sum(run.failed + run.skipped for run in runs)
    mean_ms, stddev_ms = _latency_ms(runs)
    return ScriptFinding(
        script=name,
        weight=runs[0].weight,
        runs=len(runs),
        transactions=own,
        share=own / transactions if transactions else None,
        tps=own / measured_s if measured_s else None,
        latency_avg_ms=mean_ms,
        latency_stddev_ms=stddev_ms,
        latency_p99_ms=_mean_p99_ms([run for run in runs if run.transactions]),
        failed_share=(tried - own) / tried if tried else None,
    )


def _latency_ms(runs: Sequence[ScriptRun]) -> tuple[float | None, float | None]:
    """Return mean and standard deviation of all transactions together; None if a run lacks them."""
    timed = [run for run in runs if run.transactions]
    count = sum(run.transactions for run in timed)
    means = [run.latency_avg_ms for run in timed if run.latency_avg_ms is not None]
    if not timed or len(means) < len(timed):
        return None, None
    mean_ms = sum(m * run.transactions for m, run in zip(means, timed, strict=True)) / count
    stddevs = [run.latency_stddev_ms for run in timed if run.latency_stddev_ms is not None]
    if len(stddevs) < len(timed):
        return mean_ms, None
    squares = (run.transactions * (m**2 + s**2) for m, s, run in zip(means, stddevs, timed, strict=True))
    return mean_ms, math.sqrt(max(0.0, sum(squares) / count - mean_ms**2))


def _mean_p99_ms(runs: Sequence[ScriptRun]) -> float | None:
    found = [run.percentiles_ms["p99"] for run in runs if "p99" in run.percentiles_ms]
    return sum(found) / len(found) if runs and len(found) == len(runs) else None


# ---------------------------------------------------------------- nodes


def node_findings(results: Sequence[CellResult]) -> tuple[NodeFinding, ...]:
    """Return one finding for each node, the primary first; none for a single server. Pure."""
    everything = [use for result in results for use in result.nodes]
    names = dict.fromkeys(use.node for use in everything)
    return tuple(_node(name, everything) for name in names)


def _share(name: str, everything: Sequence[NodeUse], key: str) -> float | None:
    """Return the share of a node in a count over all nodes and runs."""
    known = [(use.node, getattr(use, key)) for use in everything if getattr(use, key) is not None]
    own, total = [count for node, count in known if node == name], sum(count for _, count in known)
    return sum(own) / total if own and total else None


def _node(name: str, everything: Sequence[NodeUse]) -> NodeFinding:
    uses = [use for use in everything if use.node == name]

    def rate(key: str) -> float | None:
        """Return the rate over the runs that have it."""
        known = [(getattr(use, key), use.elapsed_s) for use in uses if getattr(use, key) is not None]
        return sum(value for value, _ in known) / sum(elapsed_s for _, elapsed_s in known) if known else None

    def all_of(key: str) -> list[float]:
        return [getattr(use, key) for use in uses if getattr(use, key) is not None]

    def middle(key: str) -> float | None:
        return median(all_of(key)) if all_of(key) else None

    def total(key: str) -> int | None:
        return int(sum(all_of(key))) if all_of(key) else None

    return NodeFinding(
        node=name,
        host=uses[0].host,
        runs=len(uses),
        processors=rate("cpu_s"),
        received_bytes_per_s=rate("received_bytes"),
        sent_bytes_per_s=rate("sent_bytes"),
        disk_read_bytes_per_s=rate("disk_read_bytes"),
        disk_written_bytes_per_s=rate("disk_written_bytes"),
        write_lag_ms=middle("write_lag_ms"),
        flush_lag_ms=middle("flush_lag_ms"),
        replay_lag_ms=middle("replay_lag_ms"),
        replay_lag_max_ms=max(all_of("replay_lag_max_ms"), default=None),
        behind_max_bytes=max((use.behind_max_bytes for use in uses if use.behind_max_bytes is not None), default=None),
        reads_share=_share(name, everything, "reads"),
        writes_share=_share(name, everything, "writes"),
        checked_reads=total("checked_reads"),
        stale_reads=total("stale_reads"),
        stale_median_ms=middle("stale_median_ms"),
        stale_max_ms=max(all_of("stale_max_ms"), default=None),
        watched_commits=total("watched_commits"),
        released_commits=total("released_commits"),
        release_median_ms=middle("release_median_ms"),
        release_p99_ms=max(all_of("release_p99_ms"), default=None),
    )
