"""Activity of the nodes of a cluster over the runs of a stack: rates by time; the lags are medians of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pgstrata.analyze.findings import NodeFinding
from pgstrata.record.schema import CellResult, NodeUse


def node_findings(results: Sequence[CellResult]) -> tuple[NodeFinding, ...]:
    """Return one finding for each node, the primary first; none for a single server. Pure."""
    everything = [use for result in results for use in result.nodes]
    names = dict.fromkeys(use.node for use in everything)
    return tuple(_finding(name, everything) for name in names)


def _share(name: str, everything: Sequence[NodeUse], key: str) -> float | None:
    """Return the share of a node in a count over all nodes and runs."""
    known = [(use.node, getattr(use, key)) for use in everything if getattr(use, key) is not None]
    own, total = [count for node, count in known if node == name], sum(count for _, count in known)
    return sum(own) / total if own and total else None


def _finding(name: str, everything: Sequence[NodeUse]) -> NodeFinding:
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
