"""The probes of a run: started before pgbench, stopped after it, their files made into series."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgstrata.probe.checkpoints import checkpoint_rows
from pgstrata.probe.parse import Row, device_rows, parse_lines, postgres_rows, system_rows, wait_rows
from pgstrata.probe.start import POSTGRES, SAMPLES, start_probes
from pgstrata.trial.bench import Bench
from pgstrata.trial.site import DATABASE

NOBODY = "nobody"
"""The OS user with the least rights, and not the server's: that one is the hostile script's, too."""


@contextmanager
def probing(bench: Bench, folder: str) -> Iterator[None]:
    """Samples host and server while the block runs; what they write lies in `folder`."""
    probes = start_probes(
        bench.host,
        folder,
        tuple(numbers for _, numbers in _devices(bench)),
        psql=bench.cluster.psql(DATABASE),
        major=bench.cluster.installation.major,
        user=bench.site.user,
        watcher=NOBODY if bench.site.as_root else None,
        marker=bench.marker,
    )
    # Not in a `finally`: after an error of the run, which is the one that counts, undo ends the probes.
    yield
    probes.stop()


def _devices(bench: Bench) -> Iterator[tuple[str, tuple[int, int]]]:
    """Role and numbers of every block device of the stack, from the medium up."""
    for role, nodes in bench.plan.devices(bench.built.bindings).items():
        for node in nodes:
            status = bench.host.status(node)
            if status is not None and status.kind == "block":
                yield role, status.device


def write_probe_series(bench: Bench, cell_id: str, raw: Path, began_epoch_s: float, duration_s: float) -> int:
    """Makes series of what the probes wrote; returns the number of checkpoints that began during the run."""
    samples = parse_lines((raw / SAMPLES).read_text(encoding="utf-8"))
    server = parse_lines((raw / POSTGRES).read_text(encoding="utf-8"))
    roles = {f"{major}:{minor}": role for role, (major, minor) in _devices(bench)}
    checkpoints = _during(checkpoint_rows(bench.cluster.read_log(), began_epoch_s), duration_s)
    series: dict[str, list[Row]] = {
        "devices": device_rows(samples, roles, began_epoch_s),
        "system": system_rows(samples, began_epoch_s),
        "postgres": postgres_rows(server, began_epoch_s),
        "waits": wait_rows(server, began_epoch_s),
        "checkpoints": checkpoints,
    }
    for name, rows in series.items():
        bench.recorder.series(cell_id, name, rows)
    return sum(row["start_t_s"] >= 0 for row in checkpoints)


def _during(rows: list[Row], duration_s: float) -> list[Row]:
    """Checkpoints that overlap the run; one that did not end was still going on."""
    return [r for r in rows if r["start_t_s"] <= duration_s and (r["end_t_s"] is None or r["end_t_s"] > 0)]
