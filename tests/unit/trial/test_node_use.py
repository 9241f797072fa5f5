"""What the nodes of a cluster did, from the samples of the probes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pgstrata.analyze.why.use import node_findings
from pgstrata.postgres.pooler import Sent
from pgstrata.probe.acknowledged import Acknowledgements, parse_reads
from pgstrata.record.schema import CellResult, NodeUse
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.workload import Cell
from pgstrata.trial.steps.pooler import sent_between
from pgstrata.trial.steps.probes import node_disks, node_use


def sample(mono: float, cpu_s: float, sent: int, sectors: int) -> dict[str, Any]:
    node = {"cpu_s": cpu_s, "wait_s": 0.0, "tasks": 3, "received_bytes": 10 * sent, "sent_bytes": sent}
    stat = [0, 0, sectors // 2, 0, 0, 0, sectors, 0, 0, 0, 0]
    return {"mono": mono, "nodes": {"primary": node, "standby1": node}, "disk": {"7:1": stat}}


def lag(name: str, lag_ms: float | None, behind: int) -> dict[str, Any]:
    return {
        "name": name,
        "write_lag_ms": lag_ms,
        "flush_lag_ms": lag_ms,
        "replay_lag_ms": lag_ms,
        "behind_bytes": behind,
    }


SAMPLES = [sample(10.0, 1.0, 100, 1000), sample(11.0, 1.2, 150, 1100), sample(20.0, 6.0, 600, 3000)]
SERVER = [
    {"standbys": [lag("standby1", 2.0, 5)]},
    {"standbys": [lag("standby1", None, 900)]},
    {"standbys": [lag("standby1", 8.0, 0), lag("standby2", 99.0, 99)]},
]


def test_counters_grow_from_the_first_sample_to_the_last() -> None:
    primary, standby = node_use(SAMPLES, SERVER, {"primary": (), "standby1": ("7:1",)})
    assert primary == NodeUse(
        node="primary", elapsed_s=10.0, cpu_s=5.0, received_bytes=5000, sent_bytes=500,
    )  # fmt: skip
    assert (standby.disk_read_bytes, standby.disk_written_bytes) == (1000 * 512, 2000 * 512)


def test_what_a_pooler_sent_counts_to_the_node() -> None:
    before, after = {"primary": Sent(5, 2), "standby1": Sent(1, 0)}, {"primary": Sent(9, 8), "standby1": Sent(13, 0)}
    sent = sent_between(before, after)
    primary, first, second = node_use(SAMPLES, SERVER, {"primary": (), "standby1": (), "standby2": ()}, sent)
    assert (primary.reads, primary.writes) == (4, 6)
    assert (first.reads, first.writes) == (12, 0)
    assert (second.reads, second.writes) == (None, None)


def test_reads_after_commits_count_to_the_standby() -> None:
    told = [("standby1", True, 4.0), ("standby2", False, 0.0), ("standby1", False, 0.0), ("standby1", True, 2.0)]
    text = "".join(json.dumps({"standby": name, "stale": stale, "ms": ms}) + "\n" for name, stale, ms in told)
    nodes = {"primary": (), "standby1": (), "standby2": ()}
    primary, first, second = node_use(SAMPLES, SERVER, nodes, stale=parse_reads(text))
    assert (first.checked_reads, first.stale_reads, first.stale_median_ms, first.stale_max_ms) == (3, 2, 3.0, 4.0)
    assert (second.checked_reads, second.stale_reads, second.stale_max_ms) == (1, 0, None)
    assert primary.checked_reads is None
    (found,) = node_findings([result(first), result(first.model_copy(update={"stale_max_ms": 9.0}))])
    assert (found.checked_reads, found.stale_reads, found.stale_median_ms, found.stale_max_ms) == (6, 4, 3.0, 9.0)


def test_commits_count_to_the_standby_that_let_them_go() -> None:
    released = {"standby1": Acknowledgements(9, 6, 1.5, 7.0), "standby2": Acknowledgements(9, 0, None, None)}
    nodes = {"primary": (), "standby1": (), "standby2": (), "standby3": ()}
    primary, first, second, third = node_use(SAMPLES, SERVER, nodes, let_go=released)
    assert (first.watched_commits, first.released_commits, first.release_median_ms, first.release_p99_ms) == (
        9, 6, 1.5, 7.0,
    )  # fmt: skip
    assert (second.released_commits, second.release_median_ms) == (0, None)
    assert {primary.watched_commits, third.watched_commits} == {None}
    slower = first.model_copy(update={"release_median_ms": 2.5, "release_p99_ms": 9.0})
    (found,) = node_findings([result(first), result(slower)])
    assert (found.watched_commits, found.released_commits, found.release_median_ms, found.release_p99_ms) == (
        18, 12, 2.0, 9.0,
    )  # fmt: skip


def test_lags_are_medians_of_what_the_primary_knew() -> None:
    (found,) = node_use(SAMPLES, SERVER, {"standby1": ()})
    assert (found.lag_samples, found.write_lag_ms, found.replay_lag_max_ms, found.behind_max_bytes) == (
        2,
        5.0,
        8.0,
        900,
    )


def test_what_was_not_counted_is_not_nought() -> None:
    (found,) = node_use(SAMPLES, [], {"standby2": ("7:9",)})
    assert found == NodeUse(node="standby2", elapsed_s=10.0)
    assert node_use(SAMPLES[:1], SERVER, {"primary": ()}) == ()


def test_devices_belong_to_nodes_and_the_archive_to_the_primary() -> None:
    stack = parse_stack("cluster(2)/ext4@wal=xfs@standby1=tmpfs@archive=ext4")
    media = {"data": ("7:0",), "wal": ("7:1",), "standby1.data": (), "archive": ("7:2", "7:1")}
    assert node_disks(stack, media) == {"primary": ("7:0", "7:1", "7:2"), "standby1": ()}


def result(*nodes: NodeUse) -> CellResult:
    cell = Cell(script="tpcb-like", scale=1, clients=1)
    return CellResult(cell=cell, started="", duration_s=10, transactions=1, tps=1, nodes=nodes)


def test_rates_are_over_the_runs_that_have_them() -> None:
    first = NodeUse(node="standby1", elapsed_s=10, cpu_s=5, sent_bytes=100, replay_lag_ms=1, replay_lag_max_ms=9)
    second = NodeUse(node="standby1", elapsed_s=30, cpu_s=5, replay_lag_ms=3, replay_lag_max_ms=4, behind_max_bytes=7)
    (found,) = node_findings([result(first), result(second)])
    assert found.runs == 2
    assert found.processors == pytest.approx(0.25)
    assert found.sent_bytes_per_s == pytest.approx(10)
    assert (found.replay_lag_ms, found.replay_lag_max_ms, found.behind_max_bytes) == (2, 9, 7)
    assert found.disk_written_bytes_per_s is None
    assert node_findings([result()]) == ()
