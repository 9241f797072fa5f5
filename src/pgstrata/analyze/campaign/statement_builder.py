"""From the conclusion on a cell to its statements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from pgstrata.analyze.campaign.conclude import CellConclusion, PairConclusion
from pgstrata.analyze.campaign.evidence import Evidence, Run
from pgstrata.analyze.campaign.later_stages import capacity_statement
from pgstrata.analyze.campaign.pair_findings import PairFindings, pair_statement, relative_margin, sorted_bounds
from pgstrata.analyze.campaign.policy import MAX_PAIRS
from pgstrata.analyze.campaign.run_features import feature_statements, known, stalls, suggested_length
from pgstrata.analyze.campaign.slice_evidence import slice_statements
from pgstrata.analyze.campaign.statements import (
    Amount,
    BadModeStatement,
    Behind,
    BestLength,
    Choice,
    DeclaredBlocks,
    FarRun,
    Growing,
    LevelsApart,
    LostCount,
    LostRuns,
    NotCompared,
    NotConfirmed,
    NoVerdict,
    PairStatement,
    Price,
    Remembering,
    SoakTrend,
    Statement,
    Trend,
    WholeRunsApart,
)
from pgstrata.analyze.crash import effective_durability
from pgstrata.analyze.finding import Source
from pgstrata.analyze.findings import SlicesFinding
from pgstrata.analyze.stats.bad_mode import BadMode
from pgstrata.analyze.stats.comparison import Design, Table, tabulate
from pgstrata.analyze.stats.detectable_difference import expected_sigma, slices_sigma
from pgstrata.analyze.stats.forecast import smallest_margin
from pgstrata.analyze.stats.interval import Floats, Interval
from pgstrata.analyze.stats.trend import trend_p
from pgstrata.analyze.why.use import disk_findings, late_disks
from pgstrata.record.decision import COMPARISON, Observation
from pgstrata.spec.campaign import Slices
from pgstrata.spec.durability import CLASSES
from pgstrata.spec.workload import Cell

TREND_ALPHA = 0.05
TREND_RUN_S = 300.0
"""Minimum length of runs for a trend: the slope of shorter runs says nothing about the following hours."""


def rivals_of(design: Design, conclusion: CellConclusion) -> list[str]:
    """Return the ranked stacks that could be chosen instead of the leader."""
    return [n for n in conclusion.ranking[1:] if design.can_choose(n)]


def amounts(items: Iterable[tuple[str, float]]) -> Iterator[Amount]:
    return (Amount(name=name, value=value) for name, value in items)


@dataclass(frozen=True)
class CellStatements:
    """Statements on one cell of the comparison."""

    evidence: Evidence
    design: Design
    cell: Cell
    conclusion: CellConclusion
    observations: Sequence[Observation]
    pairs: PairFindings
    slices: SlicesFinding | None

    @property
    def _metric(self) -> str:
        return self.evidence.goal.primary

    @property
    def _rivals(self) -> list[str]:
        return rivals_of(self.design, self.conclusion)

    def all(self) -> Iterator[Statement]:
        """Yield all statements, the most important first."""
        if self.evidence.unranked:
            yield from (NoVerdict(reason="emulated"),) if self.evidence.emulated else self._bad_modes()
            yield from self._late_disks()
            return
        leader = self.conclusion.leader
        if leader is None:
            yield self._no_verdict()
        else:
            yield self._choice(leader)
            yield from self._lost_runs()
            yield from self._verdicts(leader)
            if self.design.one_look:
                yield DeclaredBlocks(blocks=self.design.max_blocks)
            yield from self._levels_apart()
            yield from self._remembering()
            yield from self._whole_runs_apart(leader)
            yield from slice_statements(self.slices) if self.slices else ()
            yield from self._growing()
            yield from self._bad_modes()
            yield from self._best_length(leader)
            if self.conclusion.apart:
                yield NotCompared(names=self.conclusion.apart)
        yield from self._late_disks()
        yield from self._features()

    def _lost_runs(self) -> Iterator[Statement]:
        """Yield a statement if stacks lost different numbers of runs."""
        lost = {name: self.evidence.lost_runs.get(name, (0, 0)) for name in self.conclusion.ranking}
        if len({count for count, _ in lost.values()}) > 1:
            yield LostRuns(counts=tuple(LostCount(name=n, lost=c, runs=r) for n, (c, r) in lost.items()))

    def _late_disks(self) -> Iterator[Statement]:
        for name in self.evidence.stacks:
            runs = self.evidence.of(name, self.cell.id)
            yield from late_disks(name, disk_findings([run.data.result for run in runs]))

    def _choice(self, leader: str) -> Choice:
        chosen, rivals = self.conclusion.chosen, self._rivals
        held_back = self.conclusion.held_back
        limited = any(not self.design.can_choose(name) for name in self.conclusion.ranking)
        return Choice(
            subject=leader,
            relation=("chosen" if chosen else "leads") if rivals else "only one",
            metric=self._metric,
            margin=self.design.goal.margin,
            class_=self._demanded(leader) if limited else None,
            **self.pairs.caveats(*self.evidence.stacks),
            bad_mode_cost=None if held_back is None else self._mean_cost(held_back),
        )

    def _mean_cost(self, mode: BadMode) -> float:
        """Return the ratio (or difference) of the mean of all runs to that of the runs outside the bad mode."""
        metric, share = self.evidence.primary, mode.bad / mode.runs
        amount = metric.from_model(-mode.loss)
        return 1 + share * (amount - 1) if metric.scale == "ratio" else share * amount

    def _demanded(self, leader: str) -> str:
        """Return the durability to choose in: that of the goal, or the strongest available."""
        weakest = (d for d in reversed(CLASSES) if any(self._has(n, d) for n in (leader, *self._rivals)))
        return self.design.goal.durability or next(weakest)

    def _has(self, stack: str, class_: str) -> bool:
        return effective_durability(self.evidence.durability[stack]) == class_

    def _best_length(self, leader: str) -> Iterator[Statement]:
        if self._metric != "tps":
            return
        suggested = suggested_length(self.evidence, leader, self.cell.id, self.conclusion.fit.sigma)
        if suggested is not None and not 0.5 <= suggested[0].best_s / suggested[1] <= 2:
            yield BestLength(best_s=suggested[0].best_s, length_s=suggested[1])

    def _capacity(self) -> Iterator[Statement]:
        campaign, decisions = self.evidence.data.campaign, self.evidence.data.decisions
        if campaign.latency is None:
            return
        compared = [o for o in self.evidence.observations("tps") if o.stage in COMPARISON]
        loops = self.evidence.open_loops(campaign.latency.percentile)
        found = capacity_statement(campaign, loops, compared, self.cell)
        if found is not None:
            yield found.model_copy(update={"out_of_budget": bool(decisions and decisions[-1].budget_notice)})

    def _no_verdict(self) -> NoVerdict:
        if len(self.conclusion.ranking) > 1:
            return NoVerdict(reason="no candidate", subject=self.design.goal.durability or "")
        measured = [n for n in self.evidence.stacks if self.evidence.of(n, self.cell.id)]
        if len(measured) == 1 and (self.evidence.imported or len(self.design.stacks) == 1):
            return NoVerdict(reason="alone", subject=measured[0])
        if self.evidence.imported and measured:
            return NoVerdict(reason="single runs")
        if len(self.design.stacks) == 1:
            return NoVerdict(reason="alone", subject=self.design.stacks[0])
        return NoVerdict(reason="too few runs")

    def _verdicts(self, leader: str) -> Iterator[Statement]:
        conclusion = self.conclusion
        if self.evidence.imported and len(conclusion.screened) <= 10:
            yield from (self._pair(p) for p in conclusion.screened)
            return
        prices = list(self._prices(leader))
        priced = {price.subject for price in prices}
        yield from (self._pair(p) for p in conclusion.confirmed if not priced & {p.a, p.b})
        if self.design.screens and not conclusion.confirmed:
            yield from self._not_confirmed()
        if self.design.screens or self.evidence.imported:
            yield from self._behind(leader)
        yield from prices

    def _pair(self, pair: PairConclusion) -> PairStatement:
        return pair_statement(self.pairs.comparison(pair, self.evidence.primary, declared=True))

    def _not_confirmed(self) -> Iterator[Statement]:
        """Yield a statement on leader and runner-up if both could be chosen and screening decided nothing."""
        first = {self.conclusion.leader, *self._rivals[:1]}
        for pair in self.conclusion.screened:
            if {pair.a, pair.b} == first and not pair.verdict.decided:
                yield self._pair(pair)
                reach = relative_margin(self.evidence.primary, smallest_margin(pair.sigma, MAX_PAIRS))
                yield NotConfirmed(
                    subject=pair.a,
                    object=pair.b,
                    metric=self._metric,
                    pairs=MAX_PAIRS,
                    provable_margin=reach,
                )

    def _behind(self, leader: str) -> Iterator[Statement]:
        metric, others = self.evidence.primary, []
        for pair in self.conclusion.screened:
            if leader in (pair.a, pair.b) and pair.verdict.verdict == ("better" if pair.a == leader else "worse"):
                other = pair.b if pair.a == leader else pair.a
                others.append((other, metric.from_model(-abs(pair.verdict.estimate.value))))
        if others:
            source: Source = "import" if self.evidence.imported else "screening"
            yield Behind(
                subject=leader,
                metric=metric.name,
                others=tuple(amounts(others)),
                source=source,
                **self.pairs.caveats(leader, *(name for name, _ in others)),
            )

    def _prices(self, leader: str) -> Iterator[Price]:
        """Yield the stacks that promise less durability and are faster by their estimate."""
        metric = self.evidence.primary
        for pair in (*self.conclusion.confirmed, *self._only_screened()):
            other = pair.b if pair.a == leader else pair.a
            if leader not in (pair.a, pair.b) or self.design.can_choose(other):
                continue
            sign = 1 if other == pair.a else -1
            if sign * pair.verdict.estimate.value <= 0 or pair.verdict.verdict == "equal":
                continue
            bounds = pair.verdict.interval
            turned = bounds if sign > 0 else Interval(-bounds.high, -bounds.low, bounds.level)
            low, high = sorted_bounds(metric, turned)
            yield Price(
                subject=other,
                object=leader,
                metric=metric.name,
                amount=metric.from_model(sign * pair.verdict.estimate.value),
                low=low,
                high=high,
                class_=effective_durability(self.evidence.durability[other]),
                **self.pairs.caveats(other, leader),
                proven=pair.verdict.decided,
            )

    def _only_screened(self) -> tuple[PairConclusion, ...]:
        fresh = {frozenset((p.a, p.b)) for p in self.conclusion.confirmed}
        return tuple(p for p in self.conclusion.screened if frozenset((p.a, p.b)) not in fresh)

    def _levels_apart(self) -> Iterator[Statement]:
        """Compare levels with verdicts from fresh pairs; all other verdicts rest on the same runs as the levels."""
        metric, own = self.evidence.primary, self.conclusion.own
        for pair in self.conclusion.confirmed if self.design.screens else ():
            levels, value = own[pair.a].level - own[pair.b].level, pair.verdict.estimate.value
            if pair.over is None and is_notable(levels - value, pair.bound):
                yield LevelsApart(
                    subject=pair.a,
                    object=pair.b,
                    metric=metric.name,
                    of_levels=metric.from_model(levels),
                    of_pairs=metric.from_model(value),
                    **self.pairs.caveats(pair.a, pair.b),
                    far_run=self._far_run(pair, levels - value),
                )

    def _growing(self) -> Iterator[Statement]:
        metric = self.evidence.primary
        for pair, line in self.conclusion.ageing():
            yield Growing(
                subject=pair.a,
                object=pair.b,
                metric=metric.name,
                first=metric.from_model(line.first),
                last=metric.from_model(line.last),
                pairs=line.pairs,
            )

    def _remembering(self) -> Iterator[Statement]:
        for pair in self.conclusion.of_leader:
            r = pair.correlation()
            if r is not None and not pair.verdict.one_look:
                pairs = int(np.isfinite(pair.x - pair.y).sum())
                yield Remembering(
                    subject=pair.a,
                    object=pair.b,
                    correlation=r,
                    pairs=pairs,
                    worth_pairs=pairs * (1 - r) / (1 + r),
                )

    def _whole_runs_apart(self, leader: str) -> Iterator[Statement]:
        """Yield pairs of the leader whose whole runs, in the same builds, contradict the slices."""
        if self.evidence.goal.primary != "tps":
            return
        for name in self.conclusion.ranking:
            found = whole_against_slices(self.evidence.of(leader, self.cell.id), self.evidence.of(name, self.cell.id))
            if name != leader and found is not None:
                yield WholeRunsApart(
                    subject=leader, object=name, whole=found.whole, slices=found.slices, runs=found.blocks
                )

    def _far_run(self, pair: PairConclusion, gap: float) -> FarRun | None:
        names = self.design.stacks
        fresh = frozenset(o.block for o in self.observations if o.stage == "confirm" and o.cell == self.cell.id)
        table = tabulate(self.design, self.observations, self.cell.id, COMPARISON)
        found = far_run(table, names.index(pair.a), names.index(pair.b), fresh, gap)
        if found is None:
            return None
        return FarRun(
            stack=pair.a if found.first else pair.b,
            block=found.block,
            fresh=found.block in fresh,
            amount=self.evidence.primary.from_model(found.off),
        )

    def _bad_modes(self) -> Iterator[Statement]:
        metric = self.evidence.primary
        for found in self.conclusion.bad_modes:
            yield BadModeStatement(
                subject=found.stack,
                metric=metric.name,
                bad=found.bad,
                runs=found.runs,
                amount=metric.from_model(-found.loss),
                blocks=found.blocks,
            )

    def _features(self) -> Iterator[Statement]:
        """Yield stalls and trends, by stack; soak runs separately."""
        for name in self.evidence.stacks:
            yield from self._soak(name)
        yield from self._capacity()
        for name in self.evidence.stacks:
            runs = self.evidence.whole(name, self.cell.id)
            yield from stalls(name, runs)
            slopes = known(runs, "trend_per_hour")
            long = all(r.data.result.duration_s >= TREND_RUN_S for r in runs)
            if long and slopes.size >= 3 and trend_p(slopes) < TREND_ALPHA / max(1, len(self.design.stacks)):
                yield Trend(subject=name, per_hour=float(np.median(slopes)))
            yield from feature_statements(name, [r.data for r in runs])

    def _soak(self, name: str) -> Iterator[Statement]:
        """Yield slope, stalls and changes of level of a stack's long runs."""
        soaked = self.evidence.of(name, self.cell.id, ("soak",))
        slopes = known(soaked, "trend_per_hour")
        durations_s = [r.data.result.duration_s for r in soaked]
        if slopes.size and min(durations_s) >= TREND_RUN_S:
            yield SoakTrend(
                subject=name,
                runs=len(soaked),
                duration_s=float(np.median(durations_s)),
                per_hour=float(np.median(slopes)),
            )
        yield from stalls(name, soaked, soak=True)
        yield from feature_statements(name, [r.data for r in soaked], soak=True)


# ---------------------------------------------------------------- levels apart

# Differences between the levels in a table and the verdict next to them, and the run responsible.
#
# A level is fitted over the screening; a verdict rests on the fresh pairs alone, so the two may disagree. With y the
# runs of both stacks on the scale of the model and d = y_a - y_b in each block that has both,
#
#     gap = (level_a - level_b) - (the estimate of the fresh pairs), reported from max(margin, ln 1.05) on
#
# A block is far off where |d - m| > max(4 s, ln 1.1), m = median d, s = 1.4826 median|d - m| (Hampel, JASA 69, 1974),
# and widens the gap: towards it in the screening, away from it among the fresh pairs. If at most a third of the
# blocks are far off, the farthest is named, and of its two runs the one further from the median of its own stack.

LEAST_BLOCKS = 5
MOST_SHARE = 1 / 3
SPREADS = 4.0
FAR = math.log(1.1)
NOTABLE = math.log(1.05)


@dataclass(frozen=True)
class OffRun:
    """A run far from the others of its stack; `off` is on the scale of the model, negative where it was worse."""

    first: bool
    """True for the first stack of the pair."""
    block: int
    off: float


def is_notable(gap: float, bound: float) -> bool:
    """Return True if levels and verdict differ enough to be reported."""
    return abs(gap) > max(bound, NOTABLE)


def far_run(table: Table, i: int, j: int, fresh: frozenset[int], gap: float) -> OffRun | None:
    """Return the run that contributes most to the gap; None if no block is far off. `fresh` has blocks of fresh
    pairs."""
    d: Floats = table.y[i] - table.y[j]
    both = np.flatnonzero(np.isfinite(d))
    if both.size < LEAST_BLOCKS:
        return None
    off = d[both] - np.median(d[both])
    widens = np.array([gap * (-1.0 if table.blocks[k] in fresh else 1.0) for k in both]) * off > 0
    limit = max(SPREADS * 1.4826 * float(np.median(np.abs(off))), FAR)
    if not 0 < int((widens & (np.abs(off) > limit)).sum()) <= MOST_SHARE * both.size:
        return None
    column = int(both[np.argmax(np.where(widens, np.abs(off), 0.0))])
    own = [float(table.y[k][column] - np.nanmedian(table.y[k])) for k in (i, j)]
    first = abs(own[0]) >= abs(own[1])
    return OffRun(first, table.blocks[column], own[0] if first else own[1])


# ---------------------------------------------------------------- whole runs against slices of the same builds

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
