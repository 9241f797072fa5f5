"""Whole runs against slices of the same builds: what checkpoints, stalls and more caches change shows there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pgstrata.analyze.campaign.evidence import Run
from pgstrata.analyze.stats.detectable_difference import expected_sigma, slices_sigma
from pgstrata.spec.campaign import Slices

FAR_SIGMAS = 3.0
"""Expected standard deviations of the difference from which on whole runs contradict slices: one in 370 pairs without
cause."""


@dataclass(frozen=True)
class Apart:
    """Ratios of two stacks, a over b, by their whole runs and by their slices in the same blocks."""

    whole: float
    slices: float
    blocks: int


def whole_against_slices(a: Sequence[Run], b: Sequence[Run]) -> Apart | None:
    """Return the ratios of two stacks that contradict each other; None if they agree, or no block has whole runs of
    both."""
    of_a, of_b = _by_block(a), _by_block(b)
    blocks = sorted(of_a.keys() & of_b.keys())
    if not blocks:
        return None
    whole = fmean(of_a[block].whole - of_b[block].whole for block in blocks)
    slices = fmean(of_a[block].slices - of_b[block].slices for block in blocks)
    one = of_a[blocks[0]]
    sigma = math.hypot(expected_sigma(one.whole_s), slices_sigma(Slices(count=one.turns))) * math.sqrt(2 / len(blocks))
    if abs(whole - slices) <= FAR_SIGMAS * sigma:
        return None
    return Apart(math.exp(whole), math.exp(slices), len(blocks))


@dataclass(frozen=True)
class _Levels:
    """Logarithms of the throughput of one build."""

    whole: float
    slices: float
    whole_s: float
    turns: int


def _by_block(runs: Sequence[Run]) -> dict[int, _Levels]:
    found = {}
    for run in runs:
        result, whole = run.data.result, run.data.result.whole
        if whole is not None and whole.tps and result.tps:
            turns = max(2, len(result.slices) // 2 * 2)
            levels = _Levels(math.log(whole.tps), math.log(result.tps), max(1.0, whole.duration_s), turns)
            found[run.data.block] = levels
    return found
