"""The probes of a run: started before the client, stopped after it, their files made into series."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pgstrata.probe.parse import Row, checkpoint_rows, device_rows, parse_lines, postgres_rows, system_rows, wait_rows
from pgstrata.probe.start import DEVICES_AT, POSTGRES, SAMPLES, plan_host_probe, plan_postgres_probe, start_probes
from pgstrata.spec.workload import Cell
from pgstrata.stack.step import PlannedCommand, Ref, with_ref
from pgstrata.trial.context import TrialContext, TrialSetup
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
