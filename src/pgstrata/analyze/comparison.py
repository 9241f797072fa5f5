"""The two stages of a campaign as functions of its observations; the policy and the judge share them.

Stage 1 is replayed block by block, so that the stacks dropped and the moment it stopped follow from the data alone.
Stage 2 sees only confirmation's own pairs, except where the pairs were declared before the first run: then there was
no selection, and every run counts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.equivalence import PairVerdict, judge_pair, mean_of_differences
from pgstrata.analyze.fit import BlockFit, fit_blocks
from pgstrata.analyze.holm import holm_rejects
from pgstrata.analyze.interval import ALPHA, CONFIRM_G, DECLARED_G, EQUIVALENCE_ALPHA, anytime_p, t_p
from pgstrata.analyze.scale import Metric, metric_of
from pgstrata.analyze.screen import EARLY_FREEDOM, MIN_BLOCKS, STOP_PROBABILITY, Screening, rank, screen
from pgstrata.analyze.screened_scatter import Scatter, scatter_in_screening, with_screening
from pgstrata.analyze.shared_scatter import evident_in_table, pair_estimates
from pgstrata.record.decision import Observation, Stage
from pgstrata.spec.campaign import Goal

Floats = npt.NDArray[np.float64]
MAX_BLOCKS = 12
ONE_LOOK_BLOCKS = 4
"""Of a declared number, for intervals of one look. In three blocks, 8 stacks of which half scatter ten times as much as
the others make false claims in more than 0.05 of simulated campaigns."""
ONE_LOOK_SHARE = 0.5
"""Of the error rates, in those intervals: by simulation the rest is what scatter that differs ten-fold adds in four
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
    """What was declared before the first run."""

    stacks: tuple[str, ...]
    cells: tuple[str, ...]
    goal: Goal
    max_blocks: int = MAX_BLOCKS
    fixed: bool = False
    """Whether exactly `max_blocks` complete blocks are run: screening then drops no stack and does not end early."""
    as_declared: bool = False
    """Whether those blocks, no fewer and no more, are there, and their number was declared before the first run."""
    candidates: frozenset[str] | None = None
    """Stacks that can be chosen, because they have the durability that the goal demands; None means all."""

    @property
    def metric(self) -> Metric:
        return metric_of(self.goal.primary)

    @property
    def bound(self) -> float:
        return self.metric.bound(self.goal.margin)

    @property
    def screens(self) -> bool:
        """Whether there is a stage 1: only to find the best of more than two."""
        return self.goal.kind == "best" and len(self.stacks) > 2

    @property
    def one_look(self) -> bool:
        """Whether verdicts rest on intervals that hold for this design alone, narrower than those for any look."""
        return self.fixed and self.as_declared and self.max_blocks >= ONE_LOOK_BLOCKS

    def error_rates(self, pairs: int) -> ErrorRates:
        """Of one of so many pairs: divided by their number and that of the cells."""
        share = (ONE_LOOK_SHARE if self.one_look else 1.0) / len(self.cells)
        return ErrorRates(ALPHA * share, ALPHA * share / max(pairs, 1), EQUIVALENCE_ALPHA * share / max(pairs, 1))

    def can_choose(self, name: str) -> bool:
        return self.candidates is None or name in self.candidates

    def declared(self) -> tuple[Pair, ...]:
        """Pairs known before the first run; none where screening finds them."""
        goal, bound = self.goal, self.bound
        if goal.kind == "equivalent":
            return tuple(Pair(e.a, e.b, self.metric.bound(e.margin)) for e in goal.equivalent)
        if goal.kind == "against":
            return tuple(Pair(s, str(goal.against), bound) for s in self.stacks if s != goal.against)
        if goal.kind == "all-pairs" or len(self.stacks) == 2:
            return tuple(Pair(a, b, bound) for a, b in combinations(self.stacks, 2))
        return ()


def goal_within(goal: Goal, names: Sequence[str]) -> Goal:
    """The goal limited to these stacks: those that can be built, or those that ran."""
    if goal.kind == "against" and goal.against not in names:
        return goal.model_copy(update={"kind": "best", "against": None})
    pairs = tuple(e for e in goal.equivalent if e.a in names and e.b in names)
    if goal.kind == "equivalent" and pairs != goal.equivalent:
        return goal.model_copy(update={"equivalent": pairs, "kind": "equivalent" if pairs else "best"})
    return goal


@dataclass(frozen=True)
class Table:
    """Model values of one cell: stack x block, nan where there is no valid run."""

    y: Floats
    blocks: tuple[int, ...]

    def of(self, i: int) -> Floats:
        """The valid runs of one stack."""
        return np.asarray(self.y[i][np.isfinite(self.y[i])])

    def differences(self, i: int, j: int) -> Floats:
        d: Floats = self.y[i] - self.y[j]
        return np.asarray(d[np.isfinite(d)])


def tabulate(design: Design, observations: Iterable[Observation], cell: str, stages: Sequence[Stage]) -> Table:
    """The valid runs of one cell in those stages."""
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
    """Where screening of one cell stands after its last block."""

    fit: BlockFit
    survivors: tuple[int, ...]
    screening: Screening | None
    settled: bool
    """Whether the leader is certain enough."""
    y: Floats
    """The runs: stack x block."""

    def scatter(self, i: int, j: int) -> Scatter | None:
        """Of the fresh pairs of two stacks, from the fit of what is claimed."""
        return scatter_in_screening(self._claims, i, j)

    @cached_property
    def _claims(self) -> BlockFit:
        return fit_blocks(self.y, evident=evident_in_table)


@dataclass
class Replay:
    """Stage 1 after each block. Blocks that have not changed since the last look are not fitted again: a campaign that
    grows by a block costs one fit."""

    design: Design
    _tables: dict[str, Table] = field(default_factory=dict)
    _state: dict[str, StageOne] = field(default_factory=dict)
    """Of the tables, after their last block."""
    _survivors: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By number of blocks."""

    def stage_one(self, tables: dict[str, Table]) -> dict[str, StageOne]:
        """The state of every cell. A stack goes on while any cell wants it."""
        shared = self._shared_blocks(tables)
        if shared is None:
            return self._state
        last = max((t.y.shape[1] for t in tables.values()), default=0)
        # A fixed design drops nothing, so that no block before the last matters.
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
        """The first block that differs from the last look; None where none does."""
        if tables.keys() != self._tables.keys():
            return 0
        ends = (_shared_columns(self._tables[cell].y, table.y) for cell, table in tables.items())
        return min((end for end in ends if end is not None), default=None)

    def _screened(self, y: Floats, survivors: tuple[int, ...]) -> StageOne:
        fit = fit_blocks(y)
        cells = len(self.design.cells)
        found = screen(fit, survivors, self.design.stacks, self.design.bound, cells, self.design.candidates)
        full = y.shape[1] >= MIN_BLOCKS
        if found is None or self.design.fixed or not (full or fit.df >= EARLY_FREEDOM):
            return StageOne(fit, survivors, found, settled=False, y=y)
        settled = found.probability_within_margin >= 1 - STOP_PROBABILITY / cells
        dropped = found.dropped if full else ()
        return StageOne(fit, tuple(k for k in survivors if k not in dropped), found, settled, y)


def _shared_columns(a: Floats, b: Floats) -> int | None:
    """How many leading columns of two tables are equal; None when all are."""
    width = min(a.shape[1], b.shape[1])
    left, right = a[:, :width], b[:, :width]
    differing = np.flatnonzero(((left != right) & ~(np.isnan(left) & np.isnan(right))).any(axis=0))
    if differing.size:
        return int(differing[0])
    return None if a.shape == b.shape else width


def leading_pair(design: Design, stage: StageOne) -> Pair | None:
    """Leader against runner-up among the survivors of a cell that can be chosen."""
    order = [k for k in rank(stage.fit, stage.survivors, design.stacks) if design.can_choose(design.stacks[k])]
    if len(order) < 2:
        return None
    return Pair(design.stacks[order[0]], design.stacks[order[1]], design.bound)


def judge_pairs(
    design: Design, pairs: Sequence[Pair], table: Table, screened: Scatter | None = None
) -> tuple[PairVerdict, ...]:
    """Verdicts of stage 2 in one cell: Holm over the pairs, printed intervals at alpha / pairs.

    `screened` is what screening saw of the scatter of the pair that it found.
    """
    rates, one_look = design.error_rates(len(pairs)), design.one_look
    row = {name: index for index, name in enumerate(design.stacks)}
    at = [(row[p.a], row[p.b]) for p in pairs]
    estimates = [with_screening(e, screened) for e in pair_estimates(table.y, at, one_look=one_look)]
    g = DECLARED_G if len(pairs) > 1 else CONFIRM_G
    p_values = [t_p(e) if one_look else anytime_p(e, g) for e in estimates]
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
            one_look=one_look,
        )
        for e, (i, j), p, r in zip(estimates, at, pairs, rejected, strict=True)
    )


def pair_sigma(verdict: PairVerdict) -> float:
    """Standard deviation of one paired difference; nan while unknown."""
    e = verdict.estimate
    return e.se * math.sqrt(e.n)


def seconds_by_stack(observations: Iterable[Observation]) -> dict[str, float]:
    """Mean machine time that each stack takes in a block, over all its cells."""
    return mean_seconds((o.stack, o.block, o.duration_s) for o in observations)


def mean_seconds(spent: Iterable[tuple[str, int, float]]) -> dict[str, float]:
    """The same of any stacks, blocks and seconds: those of a stack and block are added up."""
    total: dict[str, float] = {}
    blocks: dict[str, set[int]] = {}
    for stack, block, seconds in spent:
        total[stack] = total.get(stack, 0.0) + seconds
        blocks.setdefault(stack, set()).add(block)
    return {name: seconds / len(blocks[name]) for name, seconds in total.items()}


def summary(verdict: PairVerdict) -> dict[str, Any]:
    """Figures of a pair for the record of decisions."""
    e = verdict.estimate
    return {"verdict": verdict.verdict, "difference": e.value, "se": e.se, "pairs": int(e.n), "p": verdict.p}
