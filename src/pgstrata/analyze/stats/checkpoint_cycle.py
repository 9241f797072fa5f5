"""Cost of a checkpoint: throughput by phase of the logged checkpoint cycle, with an F test blocked by cycle.

Every whole cycle between two checkpoint starts is cut into 5 phase bins; the means of cycle x bin make a two-way
table without replication (Montgomery, Design and Analysis of Experiments, chapter 4): F = MS(phase) / MS(rest). Bins of
one cycle are correlated, so both degrees of freedom are multiplied by the Greenhouse-Geisser epsilon (Psychometrika
24, 1959).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pgstrata.analyze.stats.distributions import f_above
from pgstrata.analyze.stats.interval import Floats

BINS = 5
_MIN_CYCLES = 3
_MIN_BIN_S = 2


@dataclass(frozen=True)
class CheckpointCycle:
    """Throughput by phase of the checkpoint cycle, relative to the mean of all; `p` of no effect of the phase."""

    phases: tuple[float, ...]
    cycles: int
    p: float

    @property
    def depth(self) -> float:
        """Distance of the slowest phase below the fastest, as a share of the mean."""
        return max(self.phases) - min(self.phases)


def checkpoint_cycle(tps: Floats, checkpoint_starts_s: Floats) -> CheckpointCycle | None:
    """Test one run; None without three whole cycles, or if they are too short for 5 bins."""
    table = _cycles(tps, np.sort(checkpoint_starts_s))
    if table is None:
        return None
    mean = float(table.mean())
    if not mean > 0:
        return None
    centred = table - table.mean(axis=1, keepdims=True)
    phase = centred.mean(axis=0)
    return CheckpointCycle(tuple(((phase + mean) / mean).tolist()), table.shape[0], _p(centred, phase))


def _cycles(tps: Floats, starts_s: Floats) -> Floats | None:
    rows = []
    for begin, end in pairwise(starts_s.tolist()):
        if begin < 0 or end > tps.size or end - begin < BINS * _MIN_BIN_S:
            continue
        edges = np.rint(np.linspace(begin, end, BINS + 1)).astype(int)
        rows.append([tps[a:b].mean() for a, b in pairwise(edges.tolist())])
    return np.array(rows) if len(rows) >= _MIN_CYCLES else None


def _p(centred: Floats, phase: Floats) -> float:
    cycles, bins = centred.shape
    rest = float(((centred - phase) ** 2).sum()) / ((cycles - 1) * (bins - 1))
    effect = cycles * float((phase**2).sum()) / (bins - 1)
    if rest <= 0:
        return 1.0 if effect <= 0 else 0.0
    epsilon = _greenhouse_geisser(centred)
    return float(f_above(epsilon * (bins - 1), epsilon * (bins - 1) * (cycles - 1), effect / rest))


def _greenhouse_geisser(centred: Floats) -> float:
    """Return tr(S)^2 / ((bins - 1) tr(S S)) of the doubly centred covariance of the bins; between 1 / (bins - 1) and
    1."""
    bins = centred.shape[1]
    s = np.cov(centred, rowvar=False)
    square = float(np.square(s).sum())
    if square <= 0:
        return 1.0
    epsilon = float(np.trace(s)) ** 2 / ((bins - 1) * square)
    return float(min(1.0, max(1 / (bins - 1), epsilon)))
