"""Effects that bias or blur stacks that take turns: age of a build, place in the round, predecessor, luck of a build.

With y the logarithm of a turn's throughput, S rounds of turns in each of B blocks and K stacks:

    age          the slope of y over the rounds is one value a stack and block; `fit.py` compares a stack with the mean
                 of the others by them
    place        y = stack x block + round x block + place + predecessor, with place +1/2 for the first turn of a
    predecessor  round, -1/2 for the last one; F tests of each beside the other, B (K - 1) (S - 1) - rank degrees
    memory       lag-1 correlation (`serial.py`) of a stack's means over the blocks, after stack and block
    builds       s_b^2 = max(0, v_B - v_w / S) of a stack, v_B of the means of blocks after stack and block, v_w of the
                 turns after stack and round; interval by F, as of a variance component (Searle, Linear Models, 1971,
                 9.10); of a pair it is sqrt(2) times as much

A stack that always stands in the middle, and with two stacks the predecessor, cannot be told from other effects within
a block; the rank says so, and nothing is tested then.

A test is read when a campaign has 6, 12 and 24 blocks, of these blocks alone; each reading has a share of its level, a
quarter, a half and a quarter, so that the level holds whenever somebody looks (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.stats.distributions import f_above, f_quantile
from pgstrata.analyze.stats.fit import BlockFit, Ints, fit_blocks
from pgstrata.analyze.stats.interval import Estimate, Floats, t_p
from pgstrata.analyze.stats.serial import correlation, correlation_p

READINGS = {6: 0.25, 12: 0.5, 24: 0.25}
"""Numbers of blocks at which a test is read, and their shares of its level."""
AGE_LEVEL, OTHER_LEVEL = 0.05, 0.01
"""Levels of the age of builds, and of every other effect, over all stacks and looks."""
MOST_BETWEEN = 0.05
"""Scatter of a pair from build to build for which error rates and times of slices were simulated."""
_RANK = 1e-9


@dataclass(frozen=True)
class Turns:
    """Turns of one block in their order, rounds x places: the index of the stack, and the logarithm of its
    throughput."""

    stack: Ints
    y: Floats

    @property
    def places(self) -> int:
        return int(self.stack.shape[1])

    @property
    def by_stack(self) -> Ints:
        """Places of each round, in the order of the indices of their stacks."""
        return np.argsort(self.stack, axis=1)

    @property
    def own(self) -> Floats:
        """Rounds x stacks, in the order of their indices."""
        return np.take_along_axis(self.y, self.by_stack, axis=1)


@dataclass(frozen=True)
class Effect:
    """An effect (logarithm; nan if it cannot be told), and its p over all looks: None before the first reading."""

    value: float
    p: float | None

    def is_told(self, level: float) -> bool:
        return self.p is not None and self.p < level


def age_effects(blocks: Sequence[Turns], stacks: int) -> tuple[Effect, ...]:
    """Return the change of each stack against the others from one round to the next; p over all stacks."""
    slopes = np.full((stacks, len(blocks)), np.nan)
    for at, block in enumerate(blocks):
        slopes[np.sort(block.stack[0]), at] = _slopes(block)
    tests = stacks if stacks > 2 else 1
    read = {count: _against_others(fit_blocks(slopes[:, :count])) for count in READINGS if count <= len(blocks)}
    return tuple(
        Effect(estimate.value, _at_any_look({count: tests * t_p(one[k]) for count, one in read.items()}))
        for k, estimate in enumerate(_against_others(fit_blocks(slopes)))
    )


def place_effect(blocks: Sequence[Turns], stacks: int) -> Effect:
    """Return the first turn of a round against the last one."""
    place = slice(0, 1)
    return Effect(
        float(_OrderFit(blocks, stacks).effects(place)[0]),
        _any_look(blocks, lambda first: _OrderFit(first, stacks).p(place)),
    )


def predecessor_effects(blocks: Sequence[Turns], stacks: int) -> tuple[Effect, ...]:
    """Return turns right after each stack against those after the others; p is of all stacks together."""
    before = slice(1, stacks)
    p = _any_look(blocks, lambda first: _OrderFit(first, stacks).p(before))
    beyond_last = np.append(_OrderFit(blocks, stacks).effects(before), 0.0)
    own = (beyond_last - beyond_last.mean()) * stacks / (stacks - 1)
    return tuple(Effect(float(one), p) for one in own)


def block_memory(blocks: Sequence[Turns], stacks: int) -> tuple[Effect, ...]:
    """Return how much each stack resembles itself in the block before, against the others; p over all stacks."""
    means = _means(blocks, stacks)
    fit = fit_blocks(means)
    of_block = np.array([fit.block_effect.get(at, math.nan) for at in range(len(blocks))])
    tests, found = stacks if stacks > 2 else 1, []
    for row in means - fit.effect[:, None] - of_block:
        read = {count: tests * correlation_p(row[:count][np.isfinite(row[:count])]) for count in READINGS}
        p = _at_any_look({count: p for count, p in read.items() if count <= len(blocks)})
        found.append(Effect(correlation(row[np.isfinite(row)]), p))
    return tuple(found)


@dataclass(frozen=True)
class Builds:
    """Scatter of a pair of stacks (logarithms) between builds with its 90 % interval, and between turns of a build."""

    between: float
    low: float
    high: float
    within: float
    p: float | None
    """p value, over all looks, that the scatter between builds is at most MOST_BETWEEN."""


def build_scatter(blocks: Sequence[Turns], stacks: int) -> Builds | None:
    """Return the scatter of builds; None with fewer than two blocks."""
    found = _Components.of(blocks, stacks)
    if found is None:
        return None

    def p(first: Sequence[Turns]) -> float:
        own = _Components.of(first, stacks)
        return 1.0 if own is None else own.p(MOST_BETWEEN)

    return Builds(*found.bounds(), math.sqrt(2 * found.within), _any_look(blocks, p))


def _any_look(blocks: Sequence[Turns], p: Callable[[Sequence[Turns]], float]) -> float | None:
    return _at_any_look({count: p(blocks[:count]) for count in READINGS if count <= len(blocks)})


def _at_any_look(read: Mapping[int, float]) -> float | None:
    """Return p over all looks, from those of each reading; None before the first one, or if there is nothing to
    test."""
    shares = [p / READINGS[count] for count, p in read.items() if math.isfinite(p)]
    return min(1.0, *shares) if shares else None


def _means(blocks: Sequence[Turns], stacks: int) -> Floats:
    """Return the mean of each stack in each block; nan where it did not stand."""
    means = np.full((stacks, len(blocks)), np.nan)
    for at, block in enumerate(blocks):
        means[np.sort(block.stack[0]), at] = block.own.mean(axis=0)
    return means


def _slopes(block: Turns) -> Floats:
    """Return the slope of each stack of a block over its rounds, in the order of their indices."""
    rounds = np.arange(len(block.y)) - (len(block.y) - 1) / 2
    found: Floats = rounds @ block.own / (rounds @ rounds)
    return found


def _against_others(fit: BlockFit) -> list[Estimate]:
    """Return each stack against the mean of the others, from the differences of pairs; nan if it is not comparable."""
    variance, found = np.nan_to_num(fit.pairs.se) ** 2, []
    for k in range(fit.effect.size):
        others = np.flatnonzero((fit.component == fit.component[k]) & (np.arange(fit.effect.size) != k))
        if fit.component[k] < 0 or not others.size:
            found.append(Estimate(math.nan, math.nan, math.nan, math.nan))
            continue
        value = float(fit.effect[k] - fit.effect[others].mean())
        squared = variance[k, others].mean() - variance[np.ix_(others, others)].mean() / 2
        found.append(Estimate(value, math.sqrt(max(squared, 0.0)), float(fit.pairs.nu[k, others].mean()), 1))
    return found


class _OrderFit:
    """Least squares of place and predecessors (all but the last stack), after stacks and rounds of each block."""

    def __init__(self, blocks: Sequence[Turns], stacks: int) -> None:
        tables = [_absorbed(block, _order_columns(block, stacks)) for block in blocks]
        self._x = np.concatenate([table[:, :-1] for table in tables])
        self._y = np.concatenate([table[:, -1] for table in tables])
        freedom = sum((len(block.y) - 1) * (block.places - 1) for block in blocks)
        self._effect, self._left, self._rank = _solved(self._x, self._y)
        self._freedom = freedom - self._rank

    def effects(self, columns: slice) -> Floats:
        """Return the effects of the columns; nan if other effects cannot be told from them."""
        without = np.delete(self._x, columns, axis=1)
        own: Floats = self._effect[columns]
        return own if self._rank - _solved(without, self._y)[2] == own.size else np.full(own.size, np.nan)

    def p(self, columns: slice) -> float:
        """Return p of no effect of the columns; nan if they cannot be told."""
        own = self.effects(columns)
        if not np.isfinite(own).all() or self._freedom < 1 or not self._left > 0:
            return math.nan
        _, left, _ = _solved(np.delete(self._x, columns, axis=1), self._y)
        ratio = (left - self._left) / own.size / (self._left / self._freedom)
        return float(f_above(own.size, self._freedom, max(0.0, ratio)))


def _solved(x: Floats, y: Floats) -> tuple[Floats, float, int]:
    """Return the coefficients, the sum of squares that they leave, and the rank."""
    found, _, rank, _ = np.linalg.lstsq(x, y, rcond=_RANK)
    return np.asarray(found, dtype=np.float64), float(((y - x @ found) ** 2).sum()), int(rank)


def _order_columns(block: Turns, stacks: int) -> Floats:
    """Return place, predecessors and y of each turn; the warm-up of the first stack comes before the first turn."""
    order = block.stack.ravel()
    place = np.zeros(block.stack.shape)
    place[:, 0], place[:, -1] = 0.5, -0.5
    before = np.eye(stacks)[np.concatenate([order[:1], order[:-1]])][:, :-1]
    return np.column_stack([place.ravel(), before, block.y.ravel()]).reshape(*block.stack.shape, -1)


def _absorbed(block: Turns, columns: Floats) -> Floats:
    """Return the columns less the means of their stacks and rounds."""
    own = np.take_along_axis(columns, block.by_stack[:, :, None], axis=1)
    left: Floats = own - own.mean(axis=0) - own.mean(axis=1, keepdims=True) + own.mean(axis=(0, 1))
    return left.reshape(-1, columns.shape[2])


@dataclass(frozen=True)
class _Components:
    """Variances of a stack: of its mean over a block, and of a turn."""

    between: float
    between_freedom: int
    within: float
    within_freedom: int
    turns: int

    @classmethod
    def of(cls, blocks: Sequence[Turns], stacks: int) -> _Components | None:
        fit = fit_blocks(_means(blocks, stacks))
        freedom = sum((len(block.y) - 1) * (block.places - 1) for block in blocks)
        squares = sum(float((_absorbed(block, block.y[:, :, None]) ** 2).sum()) for block in blocks)
        if fit.df < 1 or freedom < 1 or not squares > 0:
            return None
        return cls(fit.pooled_variance, fit.df, squares / freedom, freedom, min(len(block.y) for block in blocks))

    def bounds(self) -> tuple[float, float, float]:
        """Return the scatter of a pair between builds, and its 90 % interval."""
        ratio, of_mean = self.between * self.turns / self.within, 2 * self.within / self.turns
        factors = (
            1.0,
            *(1 / float(f_quantile(self.between_freedom, self.within_freedom, q)) for q in (0.95, 0.05)),
        )
        value, low, high = (math.sqrt(of_mean * max(0.0, ratio * factor - 1)) for factor in factors)
        return value, low, high

    def p(self, most: float) -> float:
        """Return p of a scatter of a pair of at most `most` between builds."""
        expected = self.within / self.turns + most**2 / 2
        return float(f_above(self.between_freedom, self.within_freedom, self.between / expected))
