"""Bytes written and time that a campaign will take, told before it begins, by rough figures that are stated."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.spec.campaign import Campaign, Stage, Trial
from pgstrata.spec.expand import block_trials, has_whole_run
from pgstrata.spec.quick import overhead_s
from pgstrata.spec.workload import Cell
from pgstrata.trial.steps.acknowledgements import LONGER_S, stale_s, watched_s

INITDB_BYTES = 60_000_000
"""An empty cluster with its first WAL segments."""

LOAD_AMPLIFICATION = 2.0
"""Loading writes rows and indexes once, and about as much again as WAL."""

ASSUMED_TPS = 1000.0
ASSUMED_BYTES_PER_TRANSACTION = 16_384
"""A page image in WAL and the page itself, for a script that writes; stated beside the figure, not relied on."""

ASSUMED_TRANSACTIONS_S = 60.0
"""For runs bounded by transactions, whose length nobody knows beforehand."""

JOINING_S = 3.0
"""To start, stop and catch up with a standby, besides the copying."""
BACKUP_BYTES_PER_S = 100e6
"""Speed of pg_basebackup onto a medium that is no hindrance."""


SLICE_OVERHEAD_S = 0.25
"""To start the client and to synchronise, for each turn."""
CAPACITY_STEPS = 12
"""Halving and bisecting to 2.5 %, with the runs that confirm."""


@dataclass(frozen=True)
class Expected:
    """Expected bytes and time of one trial or of many."""

    written_bytes: int
    duration_s: float

    def __add__(self, other: Expected) -> Expected:
        return Expected(self.written_bytes + other.written_bytes, self.duration_s + other.duration_s)


NOTHING = Expected(0, 0.0)


def estimate_trial(campaign: Campaign, trial: Trial) -> Expected:
    """Load (or copy), base backups, warm-up and every cell of one trial; each standby writes what the primary does."""
    data_bytes = campaign.workload.driver.bytes_per_scale * trial.scale
    loads = trial.load == "fresh" or (trial.load == "keep" and trial.block == 0)
    written = 0.0
    if loads:
        written = INITDB_BYTES + LOAD_AMPLIFICATION * data_bytes
    elif trial.load == "copy":
        written = INITDB_BYTES + data_bytes
    stack = campaign.stack(trial.stack)
    standbys = len(stack.nodes) - 1
    written += standbys * (INITDB_BYTES + data_bytes)
    duration_s = overhead_s(trial.scale, fresh=loads) + standbys * (JOINING_S + data_bytes / BACKUP_BYTES_PER_S)
    after_s = sum(seconds + LONGER_S for seconds in (stale_s(stack), watched_s(stack)) if seconds)
    for cell in trial.cells:
        measured_s = trial.duration_s or campaign.workload.cell_duration_s(cell) or ASSUMED_TRANSACTIONS_S
        if trial.slices is not None:
            measured_s = measured_s if has_whole_run(trial) else 0.0
            measured_s += trial.slices.measured_s + SLICE_OVERHEAD_S * trial.slices.count
        run_s = campaign.workload.warmup + measured_s + after_s
        duration_s += run_s
        if cell.script != "select-only":
            written += (1 + standbys) * run_s * ASSUMED_TPS * ASSUMED_BYTES_PER_TRANSACTION
    return Expected(round(written), duration_s)


@dataclass(frozen=True)
class ExpectedStage:
    """A stage that follows the comparison; `trials` is the most there can be, with every stack in it."""

    stage: Stage
    trials: int
    estimate: Expected


def estimate_stages(campaign: Campaign) -> tuple[ExpectedStage, ...]:
    """Return the stages after the comparison, in their order; empty if there are none."""
    stacks, latency, soak, cells = len(campaign.stacks), campaign.latency, campaign.soak, campaign.workload.cells
    found = []
    if latency is not None:
        found.append(_stage(campaign, "latency", stacks * latency.blocks, len(latency.rates) * cells))
        if latency.objective_ms is not None:
            found.append(_stage(campaign, "capacity", stacks * CAPACITY_STEPS, cells))
    if soak is not None:
        soaked = len(soak.stacks) or stacks
        found.append(_stage(campaign, "soak", soaked * soak.runs, campaign.workload.soaked_cells, soak.duration))
    return tuple(found)


def _stage(
    campaign: Campaign, stage: Stage, trials: int, cells: tuple[Cell, ...], duration_s: float | None = None
) -> ExpectedStage:
    """`trials` at every scale of these cells, each with all of that scale."""
    whole = NOTHING
    block, first = campaign.runs.blocks or campaign.runs.max_blocks, campaign.stacks[0].name
    each_scale = block_trials(campaign, block, (first,), cells={first: cells}, duration_s=duration_s)
    for trial in each_scale:
        one = estimate_trial(campaign, trial)
        whole += Expected(trials * one.written_bytes, trials * one.duration_s)
    return ExpectedStage(stage, len(each_scale) * trials, whole)
