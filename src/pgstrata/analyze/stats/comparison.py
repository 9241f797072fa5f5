"""The two stages of a campaign as functions of its observations; the policy and the judge share them.

Stage 1 is replayed block by block, so that the stacks dropped and the moment it stopped follow from the data alone.
Stage 2 sees only confirmation's own pairs, unless the pairs were declared before the first run: then there was no
selection, and every run counts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from pgstrata.analyze.campaign.scale import Metric, metric_of
from pgstrata.analyze.stats.equivalence import PairVerdict, judge_pair, mean_of_differences
from pgstrata.analyze.stats.fit import BlockFit, fit_blocks
from pgstrata.analyze.stats.forecast import smallest_difference
from pgstrata.analyze.stats.holm import holm_rejects
from pgstrata.analyze.stats.interval import (
    ALPHA,
    CONFIRM_G,
    DECLARED_G,
    EQUIVALENCE_ALPHA,
    SCREEN_G,
    Floats,
    anytime_p,
    interval,
    t_p,
)
from pgstrata.analyze.stats.screen import EARLY_FREEDOM, MIN_BLOCKS, STOP_PROBABILITY, Screening, rank, screen
from pgstrata.analyze.stats.screened_scatter import Scatter, scatter_in_screening, with_screening
from pgstrata.analyze.stats.serial import inflated
from pgstrata.analyze.stats.shared_scatter import evident_in_pairs, evident_in_table, pair_estimates
from pgstrata.analyze.stats.two_modes import two_modes
from pgstrata.record.decision import Observation, Stage
from pgstrata.spec.campaign import Goal

MAX_BLOCKS = 12
NEAR_BLOCKS = 4
"""Blocks that the proof of a difference may take where time is given. By simulation of 10 minutes on a busy machine all
five large differences of four stacks are then proven in 0.47 instead of 0.35 of 100 campaigns."""
ONE_LOOK_BLOCKS = 4
"""Minimum number of declared blocks for intervals of one look. In three blocks, 8 stacks of which half scatter ten
times as much as the others make false claims in more than 0.05 of simulated campaigns."""
ONE_LOOK_SHARE = 0.5
"""Share of the error rates used by those intervals: by simulation, scatter that differs ten-fold uses the rest in four
blocks (docs/statistics.md)."""


@dataclass(frozen=True)
class Pair:
    """A pair to be confirmed, and the margin on the scale of the model."""

    a: str
    b: str
    bound: float


@dataclass(frozen=True)
class ErrorRates:
    """Error rates of one pair, and of the whole family of pairs."""

    family: float
    alpha: float
    equivalence: float


@dataclass(frozen=True)
class Design:
    """The declarations made before the first run."""

    stacks: tuple[str, ...]
    cells: tuple[str, ...]
    goal: Goal
    max_blocks: int = MAX_BLOCKS
    fixed: bool = False
    """True if exactly `max_blocks` complete blocks are run: screening then drops no stack and does not end early."""
    as_declared: bool = False
    """True if exactly those blocks are present and their number was declared before the first run."""
    candidates: frozenset[str] | None = None
    """Stacks that can be chosen because they have the durability that the goal demands; None means all."""
    proves: bool = False
    """True if time is given: a stack that is clearly behind stays in screening while a few more blocks would prove its
    difference from the leader."""

    @property
    def metric(self) -> Metric:
        return metric_of(self.goal.primary)

    @property
    def bound(self) -> float:
        return self.metric.bound(self.goal.margin)

    @property
    def screens(self) -> bool:
        """True if there is a stage 1: only to find the best of more than two."""
        return self.goal.kind == "best" and len(self.stacks) > 2

    @property
    def one_look(self) -> bool:
        """True if verdicts rest on intervals that hold for this design alone, narrower than those for any look."""
        return self.fixed and self.as_declared and self.max_blocks >= ONE_LOOK_BLOCKS

    def error_rates(self, pairs: int) -> ErrorRates:
        """Return the error rates of one of `pairs` pairs: divided by their number and that of the cells."""
        share = (ONE_LOOK_SHARE if self.one_look else 1.0) / len(self.cells)
        return ErrorRates(ALPHA * share, ALPHA * share / max(pairs, 1), EQUIVALENCE_ALPHA * share / max(pairs, 1))

    def can_choose(self, name: str) -> bool:
        return self.candidates is None or name in self.candidates

    def declared(self) -> tuple[Pair, ...]:
        """Pairs known before the first run; none if screening finds them."""
        goal, bound = self.goal, self.bound
        if goal.kind == "equivalent":
            return tuple(Pair(e.a, e.b, self.metric.bound(e.margin)) for e in goal.equivalent)
        if goal.kind == "against":
            return tuple(Pair(s, str(goal.against), bound) for s in self.stacks if s != goal.against)
        if goal.kind == "all-pairs" or len(self.stacks) == 2:
            return tuple(Pair(a, b, bound) for a, b in combinations(self.stacks, 2))
        return ()


def goal_within(goal: Goal, names: Sequence[str]) -> Goal:
    """Return the goal limited to these stacks: those that can be built, or those that ran."""
    if goal.kind == "against" and goal.against not in names:
        return goal.model_copy(update={"kind": "best", "against": None})
    pairs = tuple(e for e in goal.equivalent if e.a in names and e.b in names)
    if goal.kind == "equivalent" and pairs != goal.equivalent:
        return goal.model_copy(update={"equivalent": pairs, "kind": "equivalent" if pairs else "best"})
    return goal


@dataclass(frozen=True)
class Table:
    """Model values of one cell: stack x block, nan without a valid run."""

    y: Floats
    blocks: tuple[int, ...]

    def of(self, i: int) -> Floats:
        """Return the valid runs of one stack."""
        return np.asarray(self.y[i][np.isfinite(self.y[i])])

    def differences(self, i: int, j: int) -> Floats:
        d: Floats = self.y[i] - self.y[j]
        return np.asarray(d[np.isfinite(d)])


def tabulate(design: Design, observations: Iterable[Observation], cell: str, stages: Sequence[Stage]) -> Table:
    """Return the valid runs of one cell in those stages as a table."""
    row = {name: index for index, name in enumerate(design.stacks)}
    metric = design.metric
    rows, numbers, values = array("i"), array("q"), array("d")
    for o in observations:
        if o.cell == cell and o.stage in stages:
            rows.append(row.get(o.stack, -1))
            numbers.append(o.block)
            values.append(metric.to_model(o.value) if o.stack in row else math.nan)
    blocks, column = np.unique(np.array(numbers, dtype=np.int64), return_inverse=True)
    known = np.array(rows, dtype=np.intp) >= 0
    y = np.full((len(design.stacks), blocks.size), np.nan)
    y[np.array(rows, dtype=np.intp)[known], column[known]] = np.array(values)[known]
    return Table(y, tuple(blocks.tolist()))


@dataclass(frozen=True)
class StageOne:
    """State of the screening of one cell after its last block."""

    fit: BlockFit
    survivors: tuple[int, ...]
    screening: Screening | None
    settled: bool
    """True if the leader is certain enough."""
    y: Floats
    """The runs: stack x block."""

    def scatter(self, i: int, j: int) -> Scatter | None:
        """Return the scatter for the fresh pairs of two stacks; one that evidently scatters more keeps its own degrees
        of freedom."""
        return scatter_in_screening(self._own_scatter, i, j)

    @cached_property
    def _own_scatter(self) -> BlockFit:
        return fit_blocks(self.y, evident=evident_in_table(one_look=True))

    def droppable(self, design: Design) -> tuple[int, ...]:
        """Return the stacks that are clearly worse. One that evidently scatters more stays until the table proves its
        difference from the leader: if it was dropped before, it would never get the runs that its interval needs.
        Where the design `proves`, any other stays as well while the proof is near."""
        if self.screening is None or not self.screening.dropped:
            return ()
        leader, claims = self.screening.leader, fit_blocks(self.y, evident=evident_in_table())
        evident = fit_blocks(self.y, evident=evident_in_pairs()).evident
        count = int((claims.component >= 0).sum())
        alpha = design.error_rates(count * (count - 1) // 2).alpha
        stay = {k for k in self.screening.dropped if evident[k] or (design.proves and self._nearly(leader, k, alpha))}
        return tuple(
            k
            for k in self.screening.dropped
            if k not in stay or interval(claims.estimate(leader, k), alpha, SCREEN_G).excludes_zero()
        )

    def _nearly(self, leader: int, k: int, alpha: float) -> bool:
        """Return True if `NEAR_BLOCKS` more blocks would prove this difference if it stays the same."""
        difference = abs(float(self.fit.pairs.difference[leader, k]))
        sigma = math.sqrt(self.fit.variance[leader] + self.fit.variance[k])
        most = int(min(self.fit.runs[leader], self.fit.runs[k])) + NEAR_BLOCKS
        return smallest_difference(sigma, most, alpha, freedom=self.fit.df) < difference


@dataclass
class Replay:
    """Stage 1 after each block. Blocks unchanged since the last look are not refitted: growth by a block costs one
    fit."""

    design: Design
    _tables: dict[str, Table] = field(default_factory=dict)
    _state: dict[str, StageOne] = field(default_factory=dict)
    """State of each table after its last block."""
    _survivors: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Survivors by number of blocks."""

    def stage_one(self, tables: dict[str, Table]) -> dict[str, StageOne]:
        """Return the state of every cell. A stack continues while any cell needs it."""
        shared = self._shared_blocks(tables)
        if shared is None:
            return self._state
        last = max((t.y.shape[1] for t in tables.values()), default=0)
        # A fixed design drops nothing, so that only the last block matters.
        first = last if self.design.fixed else min(MIN_BLOCKS, last)
        self._survivors = {n: s for n, s in self._survivors.items() if n <= shared}
        known = max((n for n in self._survivors if first <= n < last), default=first - 1)
        survivors = self._survivors.get(known, tuple(range(len(self.design.stacks))))
        for blocks in range(known + 1, last + 1):
            self._state = {c: self._screened(t.y[:, :blocks], survivors) for c, t in tables.items()}
            survivors = tuple(k for k in survivors if any(k in s.survivors for s in self._state.values()))
            self._survivors[blocks] = survivors
        self._tables = tables
        return self._state

    def _shared_blocks(self, tables: dict[str, Table]) -> int | None:
        """Return the first block that differs from the last look; None if none does."""
        if tables.keys() != self._tables.keys():
            return 0
        ends = (_shared_columns(self._tables[cell].y, table.y) for cell, table in tables.items())
        return min((end for end in ends if end is not None), default=None)

    def _screened(self, y: Floats, survivors: tuple[int, ...]) -> StageOne:
        fit = fit_blocks(y)
        cells = len(self.design.cells)
        found = screen(fit, survivors, self.design.stacks, self.design.bound, cells, self.design.candidates)
        compared = int((np.isfinite(y).sum(axis=0) > 1).sum())  # a block with one valid run compares nothing
        full = compared >= MIN_BLOCKS
        if found is None or self.design.fixed or not (full or fit.df >= EARLY_FREEDOM):
            return StageOne(fit, survivors, found, settled=False, y=y)
        settled = found.probability_within_margin >= 1 - STOP_PROBABILITY / cells
        stage = StageOne(fit, survivors, found, settled, y)
        dropped = stage.droppable(self.design) if full else ()
        return replace(stage, survivors=tuple(k for k in survivors if k not in dropped))


def _shared_columns(a: Floats, b: Floats) -> int | None:
    """Return the number of equal leading columns of two tables; None if all are equal."""
    width = min(a.shape[1], b.shape[1])
    left, right = a[:, :width], b[:, :width]
    differing = np.flatnonzero(((left != right) & ~(np.isnan(left) & np.isnan(right))).any(axis=0))
    if differing.size:
        return int(differing[0])
    return None if a.shape == b.shape else width


def leading_pair(design: Design, stage: StageOne) -> Pair | None:
    """Return leader against runner-up among the survivors of a cell that can be chosen."""
    order = [k for k in rank(stage.fit, stage.survivors, design.stacks) if design.can_choose(design.stacks[k])]
    if len(order) < 2:
        return None
    return Pair(design.stacks[order[0]], design.stacks[order[1]], design.bound)


def judge_pairs(
    design: Design, pairs: Sequence[Pair], table: Table, screened: Scatter | None = None
) -> tuple[PairVerdict, ...]:
    """Return the verdicts of stage 2 in one cell: Holm over the pairs, printed intervals at alpha / pairs.

    `screened` is the scatter from screening of the pair that it found.
    """
    rates, one_look = design.error_rates(len(pairs)), design.one_look
    row = {name: index for index, name in enumerate(design.stacks)}
    at = [(row[p.a], row[p.b]) for p in pairs]
    estimates = [with_screening(e, screened) for e in pair_estimates(table.y, at, one_look=one_look)]
    serial = [inflated(e, table.differences(i, j)) for e, (i, j) in zip(estimates, at, strict=True)]
    g = DECLARED_G if len(pairs) > 1 else CONFIRM_G
    p_values = [t_p(e) if one_look else anytime_p(s, g) for e, s in zip(estimates, serial, strict=True)]
    rejected = holm_rejects(p_values, rates.family)
    return tuple(
        judge_pair(
            e,
            p.bound,
            mean_of_differences(table.differences(i, j)),
            alpha=rates.alpha,
            g=g,
            equivalence_alpha=rates.equivalence,
            different=r if len(pairs) > 1 else None,
            serial=s,
            modes=two_modes(table.differences(i, j), e),
            one_look=one_look,
        )
        for e, s, (i, j), p, r in zip(estimates, serial, at, pairs, rejected, strict=True)
    )


def pair_sigma(verdict: PairVerdict) -> float:
    """Return the standard deviation of one paired difference; nan while unknown."""
    e = verdict.estimate
    return e.se * math.sqrt(e.n)


def seconds_by_stack(observations: Iterable[Observation]) -> dict[str, float]:
    """Return the mean machine time that each stack takes in a block, over all its cells."""
    return mean_seconds((o.stack, o.block, o.duration_s) for o in observations)


def mean_seconds(spent: Iterable[tuple[str, int, float]]) -> dict[str, float]:
    """Return the same for any stacks, blocks and seconds; the seconds of a stack and block are summed."""
    total: dict[str, float] = {}
    blocks: dict[str, set[int]] = {}
    for stack, block, seconds in spent:
        total[stack] = total.get(stack, 0.0) + seconds
        blocks.setdefault(stack, set()).add(block)
    return {name: seconds / len(blocks[name]) for name, seconds in total.items()}


def summary(verdict: PairVerdict) -> dict[str, Any]:
    """Return the figures of a pair for the record of decisions."""
    e = verdict.estimate
    return {"verdict": verdict.verdict, "difference": e.value, "se": e.se, "pairs": int(e.n), "p": verdict.p}
