"""What the record of a campaign takes in its directory: an estimate on the large side, checked before anything runs.

Measured with PostgreSQL 15 and one device: 1.8 kB of probes, progress and their Parquet a second, 25 kB of files a run,
and 36 bytes a line of pgbench's per-transaction log, which is by far the largest part where there is one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Host
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.units import render_size
from pgstrata.spec.workload import Cell
from pgstrata.stack.preflight import existing_parent
from pgstrata.trial.survey.estimate import ASSUMED_TPS, ASSUMED_TRANSACTIONS_S, CAPACITY_STEPS

SECOND_BYTES = 4096
RUN_BYTES = 64 * 1024
LOG_LINE_BYTES = 48
MOST_PAIRS = 60
"""Pairs that an adaptive campaign confirms with at most."""


@dataclass(frozen=True)
class _Runs:
    """`count` like runs; `rate_tps` is that of their log, 0 where they have none."""

    count: int
    duration_s: float
    rate_tps: float

    @property
    def measured_s(self) -> float:
        return self.count * self.duration_s

    @property
    def size_bytes(self) -> float:
        return self.count * RUN_BYTES + self.measured_s * (SECOND_BYTES + LOG_LINE_BYTES * self.rate_tps)


def record_bytes(campaign: Campaign) -> int:
    """Everything that all trials leave in the campaign directory, as far as the budget lets them run.

    A closed loop is taken to carry 1000 transactions a second, which matters only where it is logged.
    """
    runs = tuple(_all_runs(campaign))
    whole = sum(r.size_bytes for r in runs)
    measured_s, budget_s = sum(r.measured_s for r in runs), campaign.runs.budget
    return round(whole if budget_s is None or measured_s <= budget_s else whole * budget_s / measured_s)


def _all_runs(campaign: Campaign) -> Iterator[_Runs]:
    """By stage; every stack is counted in every block."""
    stacks, runs, latency, soak = len(campaign.stacks), campaign.runs, campaign.latency, campaign.soak
    pairs = MOST_PAIRS if runs.blocks is None and stacks > 1 else 0
    for cell in campaign.workload.cells:
        yield _runs(campaign, stacks * (runs.blocks or runs.max_blocks) + 2 * pairs, cell)
        for share in latency.rates if latency is not None else ():
            yield _runs(campaign, stacks * (latency.blocks if latency else 0), _at(cell, share))
        if latency is not None and latency.objective_ms is not None:
            yield _runs(campaign, stacks * CAPACITY_STEPS, _at(cell, 1.0))
    if soak is not None:
        for cell in campaign.workload.soaked_cells:
            yield _runs(campaign, stacks * soak.runs, cell, soak.duration)


def _at(cell: Cell, share: float) -> Cell:
    return cell.model_copy(update={"rate_tps": share * ASSUMED_TPS})


def _runs(campaign: Campaign, count: int, cell: Cell, duration_s: float | None = None) -> _Runs:
    workload = campaign.workload
    long_s = duration_s or workload.cell_duration_s(cell) or ASSUMED_TRANSACTIONS_S
    tps = cell.rate_tps or ASSUMED_TPS
    if workload.transactions is not None and duration_s is None:
        tps = workload.transactions * cell.clients / long_s
    held = workload.sampling_rate if workload.log == "sampled" else 1.0
    return _Runs(count, long_s, tps * held if workload.logs(cell) else 0.0)


def check_record_space(host: Host, campaign: Campaign, out: Path, scratch: str, scratch_bytes: int) -> None:
    """PreflightError when the record, and the scratch files where they lie on the same filesystem, would not fit.

    What finished trials of a resumed campaign hold is not needed a second time.
    """
    recorded = sum(path.stat().st_size for path in (out / "trials").rglob("*") if path.is_file())
    needed = max(0, record_bytes(campaign) - recorded)
    shared = host.name == "local" and Path(existing_parent(host, scratch)).stat().st_dev == out.stat().st_dev
    beside = scratch_bytes if shared else 0
    free = shutil.disk_usage(out).free
    if needed + beside > free:
        also = f", and {render_size(beside)} for loop files and golden copies on the same filesystem" if beside else ""
        raise PreflightError(
            f"too little space for the record in {out}: up to about {render_size(needed)} are needed{also}; "
            f"{render_size(free)} are free",
            hint="name another folder with --out DIR, log less (workload.log), or set runs.budget",
        )
