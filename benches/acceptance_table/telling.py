"""Rows 22 and 23: what is told beside verdicts, of runs that have nothing of the kind."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import scipy

from acceptance_table.checks import Check
from acceptance_table.outcome import mean
from pgstrata.analyze.stats.ageing import ageing
from pgstrata.analyze.stats.bad_mode import bad_modes
from pgstrata.analyze.stats.comparison import Table

ROUNDED = ((2, 24, 0.04), (4, 9, 0.05), (4, 60, 0.03), (12, 12, 0.04), (12, 36, 0.03))
"""Equal stacks of 20 TPS, their runs, and the scatter of these, recorded as whole numbers."""


def telling_checks(count: int) -> Iterator[Check]:
    yield from _bad_mode_checks(count)
    yield from _growing_checks(count)


def _bad_mode_checks(count: int) -> Iterator[Check]:
    """Row 22: a bad mode of throughput that was rounded."""
    for number, (stacks, runs, scatter) in enumerate(ROUNDED):
        rng, names, blocks = np.random.default_rng((22, number)), tuple(map(str, range(stacks))), tuple(range(runs))
        tables = (np.log(np.round(20 * np.exp(rng.normal(0, scatter, (stacks, runs))))) for _ in range(count))
        told = [bool(bad_modes(names, Table(y, blocks))) for y in tables]
        subject = f"{stacks} stacks, {runs} runs of 20 TPS that scatter {scatter:.0%}, rounded"
        yield Check("22", subject, "bad mode told", mean(told), True, 0.02, count)


def _growing_checks(count: int) -> Iterator[Check]:
    """Row 23: differences of blocks that stay, and such as grow by five of their standard deviations."""
    for number, pairs in enumerate((8, 12, 24, 60)):
        for memory, bound in ((0.0, 0.03), (0.5, 0.06)):
            rng = np.random.default_rng((23, number, round(10 * memory)))
            told = [ageing(_difference(rng, pairs, memory), 1) is not None for _ in range(count)]
            subject = f"differences of {pairs} blocks" + (f", one stack AR(1) of {memory:g}" if memory else "")
            yield Check("23", subject, "told to grow or shrink", mean(told), True, bound, count)
        if pairs >= 12:
            rng = np.random.default_rng((24, number))
            told = [
                ageing(_difference(rng, pairs, 0.0) + np.linspace(0, 7, pairs), 1) is not None for _ in range(count)
            ]
            subject = f"differences of {pairs} blocks that grow by five standard deviations"
            yield Check("23", subject, "told", mean(told), False, 0.85, count)


def _difference(rng: np.random.Generator, pairs: int, memory: float) -> np.ndarray:
    """Of two stacks with standard deviations of 1; what the first one keeps of its last run."""
    shocks = rng.normal(size=pairs)
    kept = scipy.signal.lfilter([math.sqrt(1 - memory**2)], [1, -memory], shocks[1:], zi=[memory * shocks[0]])[0]
    return np.append(shocks[0], kept) - rng.normal(size=pairs)
