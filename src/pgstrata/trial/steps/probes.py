"""The probes of a run: started before the client, stopped after it, their files made into series and node activity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from pgstrata.postgres.pooler import Sent
from pgstrata.probe.acknowledged import Acknowledgements, Stale
from pgstrata.probe.parse import (
    SECTOR_BYTES,
    Row,
    checkpoint_rows,
    device_rows,
    parse_lines,
    postgres_rows,
    system_rows,
    wait_rows,
)
from pgstrata.probe.start import DEVICES_AT, POSTGRES, SAMPLES, plan_host_probe, plan_postgres_probe, start_probes
from pgstrata.record.schema import NodeUse
from pgstrata.spec.stack import PRIMARY, Stack
from pgstrata.spec.workload import Cell
from pgstrata.stack.step import PlannedCommand, Ref, with_ref
from pgstrata.trial.context import CellRun, TrialContext, TrialSetup
from pgstrata.trial.survey.host_survey import DATABASE

NOBODY = "nobody"
"""The OS user with the least rights, and not the server's: that one is the hostile script's, too."""
DEVICES = "numbers of the devices"


def plan_probes(setup: TrialSetup) -> tuple[PlannedCommand, ...]:
    """Plan the probes of the host, of the server, and of each other host of its nodes. The numbers of the devices are
    known once they are there (`DEVICES`)."""
    server, site, marker = setup.server, setup.site, setup.plan.context.marker
    watcher = NOBODY if site.as_root else None
    host_probe = plan_host_probe(
        "",
        data_directory=server.layout.data_directory,
        sockets=setup.driven.server,
        nodes=_nodes_on(setup, "") if setup.stack.topology else {},
        watcher=watcher,
        marker=marker,
    )
    postgres_probe = plan_postgres_probe(
        server.psql(DATABASE),
        server.installation.major,
        standbys=bool(setup.standbys),
        user=site.user,
        marker=marker,
    )
    return (
        with_ref(host_probe, DEVICES_AT, Ref(DEVICES)),
        PlannedCommand.of(postgres_probe),
        *(_plan_far_probe(setup, host) for host in setup.stack.far_hosts),
    )


def _plan_far_probe(setup: TrialSetup, host: str) -> PlannedCommand:
    probe = plan_host_probe("", nodes=_nodes_on(setup, host), watcher=NOBODY, marker=setup.plan.context.at(host).marker)
    return replace(with_ref(probe, DEVICES_AT, Ref(_devices_on(host))), host=host)


def _nodes_on(setup: TrialSetup, host: str) -> dict[str, str]:
    """Their data directories."""
    return {name: one.layout.data_directory for name, one in setup.servers.items() if one.at == host}


def _devices_on(host: str) -> str:
    return f"{DEVICES} on {host}" if host else DEVICES


@contextmanager
def probing(context: TrialContext, cell: Cell) -> Iterator[None]:
    """Samples hosts and server while the block runs; what they write lies in the folder of the cell on each host."""
    setup = context.setup
    for host in setup.plan.hosts:
        numbers = (f"{major}:{minor}" for _, (major, minor) in _devices(context, host))
        context.bindings[_devices_on(host)] = ",".join(numbers)
    host_probe, postgres_probe, *of_others = (planned.resolve(context.bindings) for planned in plan_probes(setup))
    probes = [start_probes(context.host, setup.cell_folder(cell), host_probe, postgres_probe)]
    for host, probe in zip(setup.stack.far_hosts, of_others, strict=True):
        probes.append(start_probes(context.executor.host_of(host), setup.cell_folder_on(host, cell), probe))
    # Not in a `finally`: after an error of the run, which is the one that counts, undo ends the probes.
    yield
    for one in probes:
        one.stop()


def samples_of(setup: TrialSetup, host: str) -> str:
    """Return the name of a host's samples on record, without the ending: after the first of its nodes if it is not the
    trial's own."""
    name = SAMPLES.removesuffix(".jsonl")
    return f"{name}-{next(iter(_nodes_on(setup, host)))}" if host else name


def _devices(context: TrialContext, host: str = "") -> Iterator[tuple[str, tuple[int, int]]]:
    """Role and numbers of every block device of the stack on a host, from the medium up."""
    roles = {volume.role for volume in context.plan.volumes if volume.host == host}
    for role, nodes in context.plan.devices(context.bindings).items():
        for node in nodes if role in roles else ():
            status = context.executor.host_of(host).status(node)
            if status is not None and status.kind == "block":
                yield role, status.device


def write_probe_series(context: TrialContext, cell_id: str, raw: Path, began_epoch_s: float, duration_s: float) -> int:
    """Makes series of what the probes wrote; returns the number of checkpoints that began during the run."""
    samples = parse_lines((raw / SAMPLES).read_text(encoding="utf-8"))
    server = parse_lines((raw / POSTGRES).read_text(encoding="utf-8"))
    roles = {f"{major}:{minor}": role for role, (major, minor) in _devices(context)}
    checkpoints = _during(checkpoint_rows(context.server.read_log(), began_epoch_s), duration_s)
    series: dict[str, list[Row]] = {
        "devices": device_rows(samples, roles, began_epoch_s),
        "system": system_rows(samples, began_epoch_s),
        "postgres": postgres_rows(server, began_epoch_s),
        "waits": wait_rows(server, began_epoch_s),
        "checkpoints": checkpoints,
    }
    for name, rows in series.items():
        context.recorder.series(cell_id, name, rows)
    return sum(row["start_t_s"] >= 0 for row in checkpoints)


def _during(rows: list[Row], duration_s: float) -> list[Row]:
    """Checkpoints that overlap the run; one that did not end was still going on."""
    return [r for r in rows if r["start_t_s"] <= duration_s and (r["end_t_s"] is None or r["end_t_s"] > 0)]


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
