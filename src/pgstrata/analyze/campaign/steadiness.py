"""Statements about the seconds within the runs of a stack: stalls, checkpoints, periods and changes of level."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.campaign.evidence import Run
from pgstrata.analyze.campaign.run_features import RunFeatures
from pgstrata.analyze.campaign.statements import CheckpointCost, LevelChanges, Period, Stalls, Statement

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
