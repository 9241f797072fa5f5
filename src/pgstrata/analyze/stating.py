"""From the conclusion on a cell to what is said of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.comparison import Design, tabulate
from pgstrata.analyze.conclude import COMPARISON, CellConclusion, PairConclusion
from pgstrata.analyze.crash import kept_class
from pgstrata.analyze.disk_use import disk_findings, late_disks
from pgstrata.analyze.evidence import Evidence
from pgstrata.analyze.finding import Source
from pgstrata.analyze.forecast import smallest_margin
from pgstrata.analyze.interval import Interval
from pgstrata.analyze.later_stages import capacities_tps, capacity_statement
from pgstrata.analyze.levels_apart import far_run, is_notable
from pgstrata.analyze.pair_findings import PairFindings, as_share, pair_statement, sorted_bounds
from pgstrata.analyze.policy import MAX_PAIRS
from pgstrata.analyze.run_features import features_of
from pgstrata.analyze.run_scatter import suggested_length
from pgstrata.analyze.statements import (
    Amount,
    BadModeStatement,
    Behind,
    BestLength,
    Choice,
    DeclaredBlocks,
    FarRun,
    LevelChanges,
    LevelsApart,
    NotCompared,
    NotConfirmed,
    NoVerdict,
    PairStatement,
    Price,
    SoakTrend,
    Statement,
    Trend,
)
from pgstrata.analyze.steadiness import feature_statements, known, stalls
from pgstrata.analyze.trend import trend_p
from pgstrata.record.decision import Observation
from pgstrata.spec.durability import CLASSES
from pgstrata.spec.workload import Cell

TREND_ALPHA = 0.05
TREND_RUN_S = 300.0
"""The slope of shorter runs says nothing about the hours after them."""


def rivals_of(design: Design, conclusion: CellConclusion) -> list[str]:
    """Ranked stacks that could be chosen instead of the leader."""
    return [n for n in conclusion.ranking[1:] if design.can_choose(n)]


def amounts(items: Iterable[tuple[str, float]]) -> Iterator[Amount]:
    return (Amount(name=name, value=value) for name, value in items)


@dataclass(frozen=True)
class CellStatements:
    """Of one cell of the comparison."""

    evidence: Evidence
    design: Design
    cell: Cell
    conclusion: CellConclusion
    observations: Sequence[Observation]
    pairs: PairFindings

    @property
    def _metric(self) -> str:
        return self.evidence.goal.primary

    @property
    def _rivals(self) -> list[str]:
        return rivals_of(self.design, self.conclusion)

    def all(self) -> Iterator[Statement]:
        """The most important first."""
        if self.evidence.emulated:
            yield NoVerdict(reason="emulated")
            yield from self._late_disks()
            return
        leader = self.conclusion.leader
        if leader is None:
            yield self._no_verdict()
        else:
            yield self._choice(leader)
            yield from self._verdicts(leader)
            if self.design.one_look:
                yield DeclaredBlocks(blocks=self.design.max_blocks)
            yield from self._levels_apart()
            yield from self._bad_modes()
            yield from self._best_length(leader)
            if self.conclusion.apart:
                yield NotCompared(names=self.conclusion.apart)
        yield from self._late_disks()
        yield from self._features()

    def _late_disks(self) -> Iterator[Statement]:
        for name in self.evidence.stacks:
            runs = self.evidence.of(name, self.cell.id)
            yield from late_disks(name, disk_findings([run.data.result for run in runs]))

    def _choice(self, leader: str) -> Choice:
        chosen, rivals = self.conclusion.chosen, self._rivals
        limited = any(not self.design.can_choose(name) for name in self.conclusion.ranking)
        return Choice(
            subject=leader,
            relation=("chosen" if chosen else "leads") if rivals else "only one",
            metric=self._metric,
            margin=self.design.goal.margin,
            class_=self._demanded(leader) if limited else None,
        )

    def _demanded(self, leader: str) -> str:
        """The durability to choose in: that of the goal, or the strongest there is."""
        weakest = (d for d in reversed(CLASSES) if any(self._has(n, d) for n in (leader, *self._rivals)))
        return self.design.goal.durability or next(weakest)

    def _has(self, stack: str, class_: str) -> bool:
        return kept_class(self.evidence.durability[stack]) == class_

    def _best_length(self, leader: str) -> Iterator[Statement]:
        if self._metric != "tps":
            return
        suggested = suggested_length(self.evidence, leader, self.cell.id, self.conclusion.fit.sigma)
        if suggested is not None and not 0.5 <= suggested[0].best_s / suggested[1] <= 2:
            yield BestLength(best_s=suggested[0].best_s, length_s=suggested[1])

    def _capacity(self) -> Iterator[Statement]:
        asked = self.evidence.data.campaign.latency
        if asked is None or asked.objective_ms is None:
            return
        found = capacities_tps(self.evidence.data.campaign, self.evidence.open_loops(asked.percentile))
        own = {stack: tps for (stack, cell), tps in found.items() if cell == self.cell.id}
        if own:
            yield capacity_statement(asked, own)

    def _no_verdict(self) -> NoVerdict:
        if len(self.conclusion.ranking) > 1:
            return NoVerdict(reason="no candidate", subject=self.design.goal.durability or "")
        if self.evidence.imported and any(self.evidence.of(n, self.cell.id) for n in self.evidence.stacks):
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
        """Leader and runner-up, where both could be chosen and screening decided nothing."""
        first = {self.conclusion.leader, *self._rivals[:1]}
        for pair in self.conclusion.screened:
            if {pair.a, pair.b} == first and not pair.verdict.decided:
                yield self._pair(pair)
                reach = as_share(self.evidence.primary, smallest_margin(pair.sigma, MAX_PAIRS))
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
            yield Behind(subject=leader, metric=metric.name, others=tuple(amounts(others)), source=source)

    def _prices(self, leader: str) -> Iterator[Price]:
        """Stacks that promise less durability and are faster by their estimate."""
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
                class_=kept_class(self.evidence.durability[other]),
                proven=pair.verdict.decided,
            )

    def _only_screened(self) -> tuple[PairConclusion, ...]:
        fresh = {frozenset((p.a, p.b)) for p in self.conclusion.confirmed}
        return tuple(p for p in self.conclusion.screened if frozenset((p.a, p.b)) not in fresh)

    def _levels_apart(self) -> Iterator[Statement]:
        """Of fresh pairs alone: everywhere else levels and verdicts rest on the same runs."""
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
                    far_run=self._far_run(pair, levels - value),
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
        """Stalls and trends, named; soak runs by themselves."""
        for name in self.evidence.stacks:
            yield from self._soak(name)
        yield from self._capacity()
        for name in self.evidence.stacks:
            runs = self.evidence.of(name, self.cell.id)
            yield from stalls(name, runs)
            slopes = known(runs, "trend_per_hour")
            long = all(r.data.result.duration_s >= TREND_RUN_S for r in runs)
            if long and slopes.size >= 3 and trend_p(slopes) < TREND_ALPHA / max(1, len(self.design.stacks)):
                yield Trend(subject=name, per_hour=float(np.median(slopes)))
            features = features_of([r.data for r in runs])
            if features is not None:
                yield from feature_statements(name, features)

    def _soak(self, name: str) -> Iterator[Statement]:
        """Slope, stalls and changes of level of a stack's long runs."""
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
        features = features_of([r.data for r in soaked])
        if features is not None and features.changes_s:
            yield LevelChanges(subject=name, at_s=features.changes_s, step=features.step, soak=True)
