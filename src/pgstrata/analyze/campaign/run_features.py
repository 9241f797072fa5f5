"""The shape of throughput within the runs of a stack: checkpoints, periods, changes of level.

Only the last three runs of at least five minutes that report every second are searched; a feature counts if most of
them show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.campaign.evidence import Evidence, Run, gather
from pgstrata.analyze.campaign.metrics import interval_of, seconds_of
from pgstrata.analyze.campaign.statements import CheckpointCost, LevelChanges, Period, Stalls, Statement
from pgstrata.analyze.stats.changepoint import changepoints_s
from pgstrata.analyze.stats.checkpoint_cycle import checkpoint_cycle
from pgstrata.analyze.stats.interval import Floats
from pgstrata.analyze.stats.periodogram import Line, strongest_period
from pgstrata.analyze.stats.run_length import RunLength, suggest
from pgstrata.record.reader import CampaignData, CellData

RUN_S = 300.0
LEVELS_RUN_S = 900.0
RUNS = 3
CYCLE_ALPHA = 0.01
NOTABLE_DEPTH = 0.05
"""Cheaper checkpoints are not reported."""
NOTABLE_SWING = 0.1
SAMPLING_S = 1.0
"""Periods that move throughput less from crest to trough, as a share of its mean, are not reported, nor such steps."""


@dataclass(frozen=True)
class _LongRun:
    """The settled seconds of a run, and the starts of checkpoints in them."""

    seconds: Floats
    starts: Floats
    cut_s: int
    """Seconds of the run before the settled ones."""


def feature_statements(name: str, cells: Sequence[CellData], *, soak: bool = False) -> Iterator[Statement]:
    """Yield statements on checkpoints, periods and changes of level within the runs of a stack; on changes of level
    alone for soak runs."""
    runs = list(_long_runs(cells))
    if not soak:
        yield from _checkpoints(name, runs)
        yield from _swings(name, runs)
    yield from _changes(name, runs, soak)


def is_beyond_sampling(line: Line) -> bool:
    """Return True if a swing of a series from counters exceeds the swing that sampling produces.

    A counter that is flushed once a second is read up to a second late. A swing of amplitude A and period P then shifts
    it by at most A P / (2 pi) seconds of throughput; the swing must be larger.
    """
    return line.swing / 2 * line.period_s / (2 * math.pi) > SAMPLING_S


def _long_runs(cells: Sequence[CellData]) -> Iterator[_LongRun]:
    long = [c for c in cells if c.result.duration_s >= RUN_S and interval_of(c) == 1]
    for cell in long[-RUNS:]:
        seconds = seconds_of(cell)
        if seconds.size >= RUN_S and float(seconds.mean()) > 0:
            starts = cell.table("checkpoints", ["start_t_s"])["start_t_s"]
            cut_s = cell.result.settled_samples[0]
            yield _LongRun(seconds, starts[~np.isnan(starts)] - cut_s, cut_s)


def _checkpoints(name: str, runs: Sequence[_LongRun]) -> Iterator[Statement]:
    cycles = [c for run in runs if (c := checkpoint_cycle(run.seconds, run.starts)) is not None]
    deep = [c for c in cycles if c.p < CYCLE_ALPHA and c.depth >= NOTABLE_DEPTH]
    if len(deep) * 2 > len(runs):
        slowest = int(np.argmin(np.mean([c.phases for c in deep], axis=0)))
        yield CheckpointCost(subject=name, slowest_fifth=slowest, depth=float(np.median([c.depth for c in deep])))


def _swings(name: str, runs: Sequence[_LongRun]) -> Iterator[Statement]:
    """Yield a period that most runs agree on, within a tenth."""
    lines = [line for run in runs if (line := strongest_period(run.seconds)) is not None and line.found]
    wide = [line for line in lines if line.swing >= NOTABLE_SWING]
    if any(run.cut_s for run in runs):
        wide = [line for line in wide if is_beyond_sampling(line)]
    if len(wide) * 2 <= len(runs):
        return
    period_s = float(np.median([line.period_s for line in wide]))
    agreeing = sum(abs(line.period_s - period_s) <= 0.1 * period_s for line in wide)
    if agreeing * 2 > len(runs):
        yield Period(subject=name, period_s=period_s, swing=float(np.median([line.swing for line in wide])))


def _changes(name: str, runs: Sequence[_LongRun], soak: bool) -> Iterator[Statement]:
    """Yield the changes of the last run with a notable one, if most runs have one: times from its start, and the
    largest as a share of the mean."""
    long = [run for run in runs if run.seconds.size >= LEVELS_RUN_S]
    changed = [(run, at_s, step) for run in long for at_s, step in _levels(run) if step >= NOTABLE_SWING]
    if len(changed) * 2 > len(long):
        run, at_s, step = changed[-1]
        yield LevelChanges(subject=name, at_s=tuple(t + run.cut_s for t in at_s), step=step, soak=soak)


def _levels(run: _LongRun) -> Iterator[tuple[tuple[float, ...], float]]:
    """Yield the times of changes in the settled seconds, and the largest step; nothing for a run without any."""
    at_s = changepoints_s(run.seconds)
    if at_s:
        means = [float(part.mean()) for part in np.split(run.seconds, [round(t) for t in at_s])]
        yield at_s, float(np.abs(np.diff(means)).max()) / float(run.seconds.mean())


# ---------------------------------------------------------------- stalls

NOTABLE_HALF, NOTABLE_STALL, NOTABLE_STALL_S = 0.25, 0.01, 3.0
"""Share of seconds below half and below a tenth of the median, and longest stall, from which on a sentence is made."""


def known(runs: tuple[Run, ...], metric: str) -> npt.NDArray[np.float64]:
    """Return the values of a metric in the runs that have it."""
    return np.array([v for r in runs if (v := r.metrics.get(metric)) is not None], dtype=np.float64)


def stalls(name: str, runs: tuple[Run, ...], *, soak: bool = False) -> Iterator[Statement]:
    """Yield a statement if throughput stalls in the runs of a stack, by their median."""
    steadiness = [known(runs, m) for m in ("half_fraction", "stall_fraction", "longest_stall_s")]
    if not all(values.size for values in steadiness):
        return
    half, stalled, longest_s = (float(np.median(values)) for values in steadiness)
    if half >= NOTABLE_HALF or stalled >= NOTABLE_STALL or longest_s >= NOTABLE_STALL_S:
        yield Stalls(subject=name, half_fraction=half, stall_fraction=stalled, longest_stall_s=longest_s, soak=soak)


# ---------------------------------------------------------------- scatter between runs

RUNS_READ = 5


def measured_sigma(data: CampaignData) -> float | None:
    """Run-to-run standard deviation of the primary metric (relative, drift removed); None before two blocks."""
    evidence = gather(data)
    design = evidence.design()
    for cell in evidence.cells:
        found = conclude(design, evidence.observations(evidence.goal.primary), cell.id, paired=data.record.paired)
        if math.isfinite(found.fit.sigma):
            return found.fit.sigma
    return None


def suggested_length(evidence: Evidence, stack: str, cell: str, sigma_run: float) -> tuple[RunLength, float] | None:
    """Return the best length of a run, from the runs of one stack, and their present length in seconds."""
    runs = evidence.of(stack, cell)[-RUNS_READ:]
    if evidence.imported or not runs or any(r.data.result.slices for r in runs):
        return None
    # Cost of a run beyond its measured seconds; shared by the cells that were measured after one load.
    overheads = [
        (r.trial.verdict.duration_s - sum(c.result.duration_s for c in r.trial.cells)) / len(r.trial.cells)
        for r in runs
    ]
    found = suggest([seconds_of(r.data) for r in runs], max(0.0, median(overheads)), sigma_run)
    return None if found is None else (found, median(r.data.result.duration_s for r in runs))
