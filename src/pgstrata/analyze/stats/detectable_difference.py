"""Detectable difference of a design before any measurement: the expected width of its intervals.

No formula is used: synthetic runs of equal stacks, in complete blocks, go through `conclude` like real ones, so that
the same code judges both.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import median
from typing import Literal

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.fit import fit_blocks
from pgstrata.analyze.stats.forecast import ASSUMED_SIGMA_RUN, ASSUMED_TAU_S, ASSUMED_WITHIN, smallest_difference
from pgstrata.analyze.stats.screen import MIN_BLOCKS
from pgstrata.record.decision import Observation, Stage
from pgstrata.spec.campaign import Goal, Slices

ASSUMED_LENGTH_S = 300.0
"""Length of the runs whose scatter is ASSUMED_SIGMA_RUN."""
SLICES_BETWEEN, SLICES_WITHIN = 0.03, 0.09
"""Scatter of a pair of stacks from build to build, and from slice to slice: fitted to slices of 2 s of three
filesystems side by side (docs/statistics.md, "Slices")."""
GoalKind = Literal["best", "all-pairs", "against", "equivalent"]
MOST = 60
"""Maximum number of blocks; an adaptive campaign without a budget has no more."""
_SMALL = 1e-3
"""Scatter of the synthetic runs; its value does not matter, because widths are in standard errors."""
_CELL = "made up"


def expected_sigma(duration_s: float) -> float:
    """Return the run-to-run CV of an ordinary quiet server at that length of a run: the scatter of seconds averages out
    in it."""
    seconds = ASSUMED_WITHIN**2 * ASSUMED_TAU_S
    between = ASSUMED_SIGMA_RUN**2 - seconds / ASSUMED_LENGTH_S
    return math.sqrt(between + seconds / duration_s)


def slices_sigma(slices: Slices) -> float:
    """Return the expected scatter of a stack in a block of such slices."""
    return math.sqrt((SLICES_BETWEEN**2 + SLICES_WITHIN**2 / slices.count) / 2)


def smallest_shown(
    stacks: int, blocks: int, duration_s: float, *, fixed: bool = False, slices: Slices | None = None
) -> float:
    """Return the smallest difference (a logarithm) that the interval of two of the stacks excludes after `blocks`
    complete blocks of runs of that length or of such slices, in search of the best; infinite while there are no bounds.
    `fixed` means that exactly that number of blocks was declared."""
    sigma = expected_sigma(duration_s) if slices is None else slices_sigma(slices)
    return sigma * width_in_sigmas("best", stacks, blocks, fixed=fixed)


def width_in_sigmas(kind: GoalKind, stacks: int, blocks: int, *, fixed: bool = False, cells: int = 1) -> float:
    """Return the half width of that interval for any goal, in standard deviations of a run, in each of `cells` cells,
    which share the error rate; blocks beyond MOST count as MOST."""
    if kind == "equivalent":  # each declared pair separately
        kind, stacks = "best", 2
    return _width(kind, stacks, min(blocks, MOST), fixed, cells) if stacks > 1 and blocks > 0 else math.inf


def least_blocks(kind: GoalKind, stacks: int, *, fixed: bool = False, cells: int = 1) -> int:
    """Return the first number of blocks with bounds; MOST if even MOST has none."""
    widths = ((n, width_in_sigmas(kind, stacks, n, fixed=fixed, cells=cells)) for n in range(1, MOST + 1))
    return next((n for n, width in widths if math.isfinite(width)), MOST)


def pair_width_in_sigmas(stacks: int, pairs: int, *, cells: int = 1) -> float:
    """Return the half width of the interval of the pair that screening finds, in standard deviations of a run, with
    `pairs` fresh pairs and the scatter of a screening that ended as early as it drops stacks; infinite while there are
    no bounds."""
    runs = np.random.default_rng((stacks, MIN_BLOCKS)).standard_normal((stacks, MIN_BLOCKS))
    alpha = _design("best", stacks, MIN_BLOCKS, cells=cells).error_rates(1).alpha
    return smallest_difference(math.sqrt(2), pairs, alpha, freedom=fit_blocks(runs).estimate(0, 1).nu)


def _design(kind: GoalKind, stacks: int, blocks: int, *, fixed: bool = False, cells: int = 1) -> Design:
    """Return a design of so many stacks and cells; its first cell is the one examined."""
    names = tuple(f"s{k:03d}" for k in range(stacks))
    goal = Goal(kind=kind, against=names[0] if kind == "against" else None)
    others = tuple(f"other {k}" for k in range(1, cells))
    return Design(names, (_CELL, *others), goal, max_blocks=blocks, fixed=fixed, as_declared=fixed)


def _unlike_neighbours(rng: np.random.Generator, blocks: int, stacks: int) -> npt.NDArray[np.float64]:
    """Return normal values, a column per stack, low and high ones alternating: neighbouring blocks then never have
    similar differences by chance, which would widen the interval."""
    ordered = np.sort(rng.standard_normal((blocks, stacks)), axis=0)
    turns = [k // 2 if k % 2 == 0 else blocks - 1 - k // 2 for k in range(blocks)]
    alternating = ordered[turns]
    alternating[:, 1::2] = ordered[::-1][turns][:, 1::2]
    return alternating


@lru_cache(maxsize=1024)
def _width(kind: GoalKind, stacks: int, blocks: int, fixed: bool, cells: int) -> float:
    """Return the interval's multiple of the standard error at that number of blocks. It never grows with more
    blocks."""
    design = _design(kind, stacks, blocks, fixed=fixed, cells=cells)
    names = design.stacks
    stage: Stage = "screen" if design.screens or fixed else "confirm"
    values = np.exp(_SMALL * _unlike_neighbours(np.random.default_rng((stacks, blocks)), blocks, stacks))
    runs = [
        Observation(name, block, _CELL, float(values[block, k]), stage)
        for block in range(blocks)
        for k, name in enumerate(names)
    ]
    found = conclude(design, runs, _CELL)
    verdicts = [pair.verdict for pair in found.confirmed or found.screened]
    multiples = [(v.interval.high - v.interval.low) / (2 * v.estimate.se) for v in verdicts if v.estimate.se > 0]
    before = _width(kind, stacks, blocks - 1, fixed, cells) if blocks > 1 else math.inf
    return min(before, median(multiples or [math.inf]) * math.sqrt(2 / blocks))
