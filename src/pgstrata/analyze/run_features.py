"""The shape of throughput within the runs of a stack: checkpoints, periods, changes of level.

Looked for in the last three runs of at least five minutes; a feature counts when most of them show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.changepoint import changepoints_s
from pgstrata.analyze.checkpoint_cycle import CheckpointCycle, checkpoint_cycle
from pgstrata.analyze.metrics import seconds_of
from pgstrata.analyze.periodogram import Line, strongest_period
from pgstrata.record.reader import CellData

Floats = npt.NDArray[np.float64]

RUN_S = 300.0
LEVELS_RUN_S = 900.0
RUNS = 3
CYCLE_ALPHA = 0.01
NOTABLE_DEPTH = 0.05
"""Checkpoints that cost less are not reported."""


@dataclass(frozen=True)
class RunFeatures:
    """What most of the runs show; None where they do not."""

    runs: int
    checkpoint_depth: float | None
    """Throughput of the fastest minus the slowest fifth of the checkpoint cycle, as a share of the mean."""
    checkpoint_slowest: int | None
    """Which fifth of the cycle is slowest, from 0."""
    period_s: float | None
    changes_s: tuple[float, ...]
    """Of the last run, where most runs change their level."""


def features_of(cells: Sequence[CellData]) -> RunFeatures | None:
    """Features of a stack's runs; None without a run that is long enough."""
    runs = list(_long_runs(cells))
    if not runs:
        return None
    cycles = [c for seconds, starts in runs if (c := checkpoint_cycle(seconds, starts)) is not None]
    deep = [c for c in cycles if c.p < CYCLE_ALPHA and c.depth >= NOTABLE_DEPTH]
    lines = [line for seconds, _ in runs if (line := strongest_period(seconds)) is not None and line.found]
    return RunFeatures(
        runs=len(runs),
        checkpoint_depth=_of_most(deep, runs, lambda c: c.depth),
        checkpoint_slowest=_slowest(deep) if len(deep) * 2 > len(runs) else None,
        period_s=_period(lines, len(runs)),
        changes_s=_changes([seconds for seconds, _ in runs]),
    )


def _long_runs(cells: Sequence[CellData]) -> Iterator[tuple[Floats, Floats]]:
    for cell in [c for c in cells if c.result.duration_s >= RUN_S][-RUNS:]:
        seconds = seconds_of(cell)
        if seconds.size >= RUN_S and float(seconds.mean()) > 0:
            starts = cell.table("checkpoints", ["start_t_s"]).column("start_t_s").drop_null().to_numpy()
            yield seconds, starts - cell.result.settled_samples[0]


def _of_most(
    found: Sequence[CheckpointCycle], runs: Sequence[object], value: Callable[[CheckpointCycle], float]
) -> float | None:
    return float(np.median([value(c) for c in found])) if len(found) * 2 > len(runs) else None


def _slowest(cycles: Sequence[CheckpointCycle]) -> int:
    return int(np.argmin(np.mean([c.phases for c in cycles], axis=0)))


def _period(lines: Sequence[Line], runs: int) -> float | None:
    """A period that most runs agree on, to a tenth."""
    if len(lines) * 2 <= runs:
        return None
    middle = float(np.median([line.period_s for line in lines]))
    agreeing = sum(abs(line.period_s - middle) <= 0.1 * middle for line in lines)
    return middle if agreeing * 2 > runs else None


def _changes(runs: Sequence[Floats]) -> tuple[float, ...]:
    found = [changepoints_s(seconds) for seconds in runs if seconds.size >= LEVELS_RUN_S]
    changed = [f for f in found if f]
    return changed[-1] if found and len(changed) * 2 > len(found) else ()
