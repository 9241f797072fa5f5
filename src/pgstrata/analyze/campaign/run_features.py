"""The shape of throughput within the runs of a stack: checkpoints, periods, changes of level.

Only the last three runs of at least five minutes that report every second are searched; a feature counts if most of
them show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.campaign.evidence import Evidence, Run, gather
from pgstrata.analyze.campaign.metrics import interval_of, seconds_of
from pgstrata.analyze.campaign.statements import CheckpointCost, LevelChanges, Period, Stalls, Statement
from pgstrata.analyze.stats.changepoint import changepoints_s
from pgstrata.analyze.stats.checkpoint_cycle import CheckpointCycle, checkpoint_cycle
from pgstrata.analyze.stats.periodogram import Line, strongest_period
from pgstrata.analyze.stats.run_length import RunLength, suggest
from pgstrata.record.reader import CampaignData, CellData

Floats = npt.NDArray[np.float64]

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
class RunFeatures:
    """Features that most of the runs show; None for those they do not."""

    runs: int
    checkpoint_depth: float | None
    """Throughput of the fastest minus the slowest fifth of the checkpoint cycle, as a share of the mean."""
    checkpoint_slowest: int | None
    """Slowest fifth of the cycle, from 0."""
    period_s: float | None
    swing: float | None
    """Crest to trough of that period, as a share of the mean."""
    changes_s: tuple[float, ...]
    """Times of the last run's level changes, from its start, if most runs change their level."""
    step: float | None
    """Largest of these changes, as a share of the mean."""


@dataclass(frozen=True)
class _LongRun:
    """The settled seconds of a run, and the starts of checkpoints in them."""

    seconds: Floats
    starts: Floats
    cut_s: int
    """Seconds of the run before the settled ones."""


@dataclass(frozen=True)
class _Levels:
    """Times at which a run changed its level, from its start, and the largest change."""

    changes_s: tuple[float, ...]
    step: float


def features_of(cells: Sequence[CellData]) -> RunFeatures | None:
    """Return the features of a stack's runs; None without a run that is long enough."""
    runs = list(_long_runs(cells))
    if not runs:
        return None
    cycles = [c for run in runs if (c := checkpoint_cycle(run.seconds, run.starts)) is not None]
    deep = [c for c in cycles if c.p < CYCLE_ALPHA and c.depth >= NOTABLE_DEPTH]
    lines = [line for run in runs if (line := strongest_period(run.seconds)) is not None and line.found]
    wide = [line for line in lines if line.swing >= NOTABLE_SWING]
    if any(run.cut_s for run in runs):
        wide = [line for line in wide if is_beyond_sampling(line)]
    levels = _changes(runs)
    return RunFeatures(
        runs=len(runs),
        checkpoint_depth=_of_most(deep, runs, lambda c: c.depth),
        checkpoint_slowest=_slowest(deep) if len(deep) * 2 > len(runs) else None,
        period_s=_period(wide, len(runs)),
        swing=float(np.median([line.swing for line in wide])) if wide else None,
        changes_s=levels.changes_s if levels else (),
        step=levels.step if levels else None,
    )


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


def _of_most(
    found: Sequence[CheckpointCycle], runs: Sequence[object], value: Callable[[CheckpointCycle], float]
) -> float | None:
    return float(np.median([value(c) for c in found])) if len(found) * 2 > len(runs) else None


def _slowest(cycles: Sequence[CheckpointCycle]) -> int:
    return int(np.argmin(np.mean([c.phases for c in cycles], axis=0)))


def _period(lines: Sequence[Line], runs: int) -> float | None:
    """Return a period that most runs agree on, within a tenth."""
    if len(lines) * 2 <= runs:
        return None
    middle = float(np.median([line.period_s for line in lines]))
    agreeing = sum(abs(line.period_s - middle) <= 0.1 * middle for line in lines)
    return middle if agreeing * 2 > runs else None


def _changes(runs: Sequence[_LongRun]) -> _Levels | None:
    """Return the levels of the last run with a notable change of level, if most runs have one."""
    found = [_levels(run) for run in runs if run.seconds.size >= LEVELS_RUN_S]
    changed = [levels for levels in found if levels is not None and levels.step >= NOTABLE_SWING]
    return changed[-1] if found and len(changed) * 2 > len(found) else None


def _levels(run: _LongRun) -> _Levels | None:
    at_s = changepoints_s(run.seconds)
    if not at_s:
        return None
    means = [float(part.mean()) for part in np.split(run.seconds, [round(t) for t in at_s])]
    step = float(np.abs(np.diff(means)).max()) / float(run.seconds.mean())
    return _Levels(tuple(t + run.cut_s for t in at_s), step)


# ---------------------------------------------------------------- statements

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


def feature_statements(name: str, features: RunFeatures) -> Iterator[Statement]:
    """Yield statements on checkpoints, periods and changes of level within the runs of a stack."""
    if features.checkpoint_depth is not None and features.checkpoint_slowest is not None:
        yield CheckpointCost(subject=name, slowest_fifth=features.checkpoint_slowest, depth=features.checkpoint_depth)
    if features.period_s is not None:
        yield Period(subject=name, period_s=features.period_s, swing=features.swing)
    if features.changes_s:
        yield LevelChanges(subject=name, at_s=features.changes_s, step=features.step)


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
