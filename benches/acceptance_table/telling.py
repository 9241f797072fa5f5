"""Rows 20, 22 and 23: what is told beside verdicts, of runs that have nothing of the kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import scipy

from acceptance_table.checks import Check
from acceptance_table.outcome import mean
from pgstrata.analyze.campaign import run_features
from pgstrata.analyze.stats.ageing import ageing
from pgstrata.analyze.stats.bad_mode import bad_modes
from pgstrata.analyze.stats.comparison import Table
from pgstrata.analyze.stats.periodogram import strongest_period

ROUNDED = ((2, 24, 0.04), (4, 9, 0.05), (4, 60, 0.03), (12, 12, 0.04), (12, 36, 0.03))
"""Equal stacks of 20 TPS, their runs, and the scatter of these, recorded as whole numbers."""


SAMPLED_S = 600


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


def _swing_checks(count: int) -> Iterator[Check]:
    """Row 20: seconds read from a counter that is flushed every 1.02 to 1.3 s, of a load that does not swing, and of
    one that swings by 30 % to either side once a minute."""
    for number, (swing, at_most, bound) in enumerate(((0.0, True, 0.02), (0.3, False, 0.95))):
        rng = np.random.default_rng((20, number))
        told = [_tells_a_swing(rng, swing) for _ in range(count)]
        subject = f"a counter that is flushed every 1.02 to 1.3 s, {swing:.0%} swing"
        yield Check("20", subject, "a swing is told", mean(told), at_most, bound, count)


def _tells_a_swing(rng: np.random.Generator, swing: float) -> bool:
    flushed = np.cumsum(rng.normal(rng.uniform(1.02, 1.3), 0.01, SAMPLED_S))
    done = 1000 * (flushed + swing * 60 / (2 * math.pi) * (1 - np.cos(2 * math.pi * flushed / 60)))
    read = np.append(0.0, done)[np.searchsorted(flushed, np.arange(SAMPLED_S + 1), side="right")]
    line = strongest_period(np.diff(read))
    return line is not None and line.found and run_features.is_beyond_sampling(line)


TELLING: dict[str, Callable[[int], Iterator[Check]]] = {
    "rounded": _bad_mode_checks,
    "growing": _growing_checks,
    "swings": _swing_checks,
}


def telling_checks(count: int) -> Iterator[Check]:
    for checks in TELLING.values():
        yield from checks(count)
