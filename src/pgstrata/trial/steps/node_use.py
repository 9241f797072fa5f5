"""Activity of each node of a cluster in a measured run, from the first to the last sample of the probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pgstrata.postgres.pooler import Sent
from pgstrata.probe.acknowledged import Acknowledgements
from pgstrata.probe.parse import SECTOR_BYTES, parse_lines
from pgstrata.probe.stale import Stale
from pgstrata.probe.start import POSTGRES
from pgstrata.record.schema import NodeUse
from pgstrata.spec.stack import PRIMARY, Stack
from pgstrata.trial.context import CellRun, TrialContext
from pgstrata.trial.steps.probes import samples_of

ARCHIVE = "archive"
"""The role of a volume that the primary writes to."""
READ_SECTORS, WRITTEN_SECTORS = 2, 6
"""Fields of /sys/block/*/stat."""
LAGS = ("write_lag_ms", "flush_lag_ms", "replay_lag_ms")

Sample = Mapping[str, Any]


def read_node_use(context: TrialContext, raw: Path, run: CellRun) -> tuple[NodeUse, ...]:
    """Activity in the run whose output lies in `raw`; empty for a single server."""
    if context.plan.stack.topology is None:
        return ()
    stack, server = context.plan.stack, _lines(raw, POSTGRES)
    disks = node_disks(stack, {role: tuple(_numbers(context, role)) for role in stack.volumes})
    found = []
    for host in context.plan.hosts:
        samples = _lines(raw, f"{samples_of(context.setup, host)}.jsonl")
        own = {node.name: disks[node.name] for node in stack.nodes if node.host == host}
        uses = node_use(samples, server, own, run.sent, run.stale, run.let_go)
        found += [use.model_copy(update={"host": host}) for use in uses]
    order = [node.name for node in stack.nodes]
    return tuple(sorted(found, key=lambda use: order.index(use.node)))


def _lines(raw: Path, name: str) -> list[dict[str, Any]]:
    return parse_lines((raw / name).read_text(encoding="utf-8"))


def _numbers(context: TrialContext, role: str) -> Iterator[str]:
    """Numbers of the devices at the bottom of a volume."""
    volume = next(volume for volume in context.plan.volumes if volume.role == role)
    for node in volume.media:
        status = context.executor.host_of(volume.host).status(
            node if isinstance(node, str) else node.resolve(context.bindings)
        )
        if status is not None and status.kind == "block":
            yield "{}:{}".format(*status.device)


def node_disks(stack: Stack, media: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The devices that each node writes to, from those of each volume; the archive counts to the primary. Pure."""
    roles = {node.name: tuple(node.roles.values()) for node in stack.nodes}
    roles[PRIMARY] += (ARCHIVE,) if ARCHIVE in media else ()
    return {name: tuple(dict.fromkeys(d for role in own for d in media[role])) for name, own in roles.items()}


def node_use(
    samples: Sequence[Sample],
    server: Sequence[Sample],
    disks: Mapping[str, Sequence[str]],
    sent: Mapping[str, Sent] | None = None,
    stale: Mapping[str, Stale] | None = None,
    let_go: Mapping[str, Acknowledgements] | None = None,
) -> tuple[NodeUse, ...]:
    """One for each node of `disks`; nothing without two samples. Pure."""
    if len(samples) < 2:
        return ()
    sent_to, read_on, released_by = sent or {}, stale or {}, let_go or {}
    return tuple(
        _use(name, samples[0], samples[-1], server, devices).model_copy(
            update=_sent(sent_to.get(name)) | _stale(read_on.get(name)) | _released(released_by.get(name))
        )
        for name, devices in disks.items()
    )


def _sent(sent: Sent | None) -> dict[str, int]:
    return {} if sent is None else {"reads": sent.reads, "writes": sent.writes}


def _stale(stale: Stale | None) -> dict[str, float | None]:
    if stale is None:
        return {}
    return {
        "checked_reads": stale.checked,
        "stale_reads": stale.stale,
        "stale_median_ms": stale.median_ms,
        "stale_max_ms": stale.max_ms,
    }


def _released(let_go: Acknowledgements | None) -> dict[str, float | None]:
    if let_go is None:
        return {}
    return {
        "watched_commits": let_go.watched,
        "released_commits": let_go.released,
        "release_median_ms": let_go.median_ms,
        "release_p99_ms": let_go.p99_ms,
    }


def _use(name: str, first: Sample, last: Sample, server: Sequence[Sample], devices: Sequence[str]) -> NodeUse:
    before, after = first.get("nodes", {}).get(name, {}), last.get("nodes", {}).get(name, {})

    def grown(key: str) -> Any:
        return max(0, after[key] - before[key]) if key in before and key in after else None

    told = [row for sample in server for row in sample.get("standbys", ()) if row["name"] == name]
    lags = {key: [float(row[key]) for row in told if row[key] is not None] for key in LAGS}
    behind = [int(row["behind_bytes"]) for row in told if row["behind_bytes"] is not None]
    return NodeUse(
        node=name,
        elapsed_s=last["mono"] - first["mono"],
        cpu_s=grown("cpu_s"),
        received_bytes=grown("received_bytes"),
        sent_bytes=grown("sent_bytes"),
        disk_read_bytes=_disk_bytes(first, last, devices, READ_SECTORS),
        disk_written_bytes=_disk_bytes(first, last, devices, WRITTEN_SECTORS),
        lag_samples=len(lags["replay_lag_ms"]),
        replay_lag_max_ms=max(lags["replay_lag_ms"], default=None),
        behind_max_bytes=max(behind, default=None),
        **{key: median(values) if values else None for key, values in lags.items()},
    )


def _disk_bytes(first: Sample, last: Sample, devices: Sequence[str], field: int) -> int | None:
    """None where a node has no devices of its own, as in memory, or one of them was not sampled."""
    if not devices or not all(d in sample["disk"] for d in devices for sample in (first, last)):
        return None
    sectors = sum(max(0, int(last["disk"][d][field]) - int(first["disk"][d][field])) for d in devices)
    return sectors * SECTOR_BYTES
