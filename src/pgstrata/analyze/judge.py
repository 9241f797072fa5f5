"""From a recorded campaign to findings: the one entry for reports and gates.

Each metric of each cell goes through `conclude` (the declared primary metric) or `explore` (all others); here their
results become the types of the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from pgstrata.analyze.comparison import Design, Replay, seconds_by_stack, tabulate
from pgstrata.analyze.conclude import (
    COMPARISON,
    CellConclusion,
    OwnLevel,
    PairConclusion,
    conclude,
    explore,
    left_behind,
)
from pgstrata.analyze.crash import durability_found
from pgstrata.analyze.disk_use import disk_findings
from pgstrata.analyze.evidence import Evidence, Run, gather
from pgstrata.analyze.findings import (
    Amount,
    BadModeStatement,
    Behind,
    BestLength,
    CampaignFinding,
    CellFinding,
    Choice,
    Chosen,
    Comparison,
    DeclaredBlocks,
    FarRun,
    Findings,
    Kind,
    LevelChanges,
    LevelsApart,
    MatchedLoad,
    MetricFinding,
    NotCompared,
    NotConfirmed,
    NoVerdict,
    PairStatement,
    Price,
    SoakTrend,
    Source,
    StackFinding,
    Statement,
    Trend,
)
from pgstrata.analyze.fit import BlockFit
from pgstrata.analyze.forecast import smallest_margin
from pgstrata.analyze.hosts import host_factor_table
from pgstrata.analyze.hosts_findings import hosts_findings
from pgstrata.analyze.interval import ALPHA, Interval
from pgstrata.analyze.later_stages import capacities_tps, capacity_statement
from pgstrata.analyze.levels_apart import far_run, is_notable
from pgstrata.analyze.policy import MAX_PAIRS
from pgstrata.analyze.run_features import features_of
from pgstrata.analyze.run_scatter import suggested_length
from pgstrata.analyze.scale import Metric, metric_of
from pgstrata.analyze.screen import rank
from pgstrata.analyze.steadiness import feature_statements, known, stalls
from pgstrata.analyze.trend import trend_p
from pgstrata.analyze.why import explain
from pgstrata.record.reader import CampaignData
from pgstrata.spec.durability import CLASSES
from pgstrata.spec.notation import render_stack
from pgstrata.spec.workload import Cell

TREND_ALPHA = 0.05
TREND_RUN_S = 300.0
"""The slope of shorter runs says nothing about the hours after them."""


def judge(data: CampaignData) -> Findings:
    """The findings of a campaign, finished or not; a pure function of the record."""
    evidence = gather(data)
    design = evidence.design()
    replay = Replay(design)
    cells, stacks, comparisons, hosts = [], [], [], []
    for cell in evidence.cells:
        judged = _JudgedCell(evidence, design, cell, evidence.goal.primary, replay)
        cells.append(judged.finding())
        hosts += list(hosts_findings(evidence, design, judged.conclusion, cell.id))
        stacks += list(judged.stacks())
        comparisons += list(judged.comparisons())
    profiles, whys = explain(evidence, cells)
    for cell in evidence.matched:
        matched = _MatchedCell(evidence, design, cell, replay)
        cells.append(matched.finding())
        stacks += list(matched.stacks())
        comparisons += list(matched.comparisons())
    first = cells[0] if cells else None
    return Findings(
        campaign=_campaign(evidence),
        cells=tuple(cells),
        stacks=tuple(stacks),
        comparisons=tuple(comparisons),
        ranking=first.ranking if first else (),
        chosen=first.chosen if first else None,
        profiles=profiles,
        whys=whys,
        hosts=tuple(hosts),
    )


def _campaign(evidence: Evidence) -> CampaignFinding:
    data = evidence.data
    facts = data.first_facts
    checked = facts.checked if facts else {}
    versions = [v for k, v in checked.items() if "postgres" in k.lower()]
    host: dict[str, Any] = {"name": facts.name, "kind": facts.kind, "medium": facts.medium, **checked} if facts else {}
    if data.baselines:
        host["baseline"] = data.baselines[-1].model_dump(mode="json", exclude={"format"})
    return CampaignFinding(
        name=data.campaign.name,
        primary=evidence.goal.primary,
        margin=evidence.goal.margin,
        seed=data.campaign.seed,
        host=host,
        postgres_version=versions[0] if versions else "",
        origin=data.record.origin,
        notices=evidence.notices,
        machine_time_s=sum(t.verdict.duration_s for t in data.every_trial),
        rejected=data.record.rejected,
    )


class _JudgedCell:
    """One cell: the primary metric by the stages, the others explored."""

    def __init__(self, evidence: Evidence, design: Design, cell: Cell, primary: str, replay: Replay) -> None:
        self.evidence, self.design, self.cell, self.primary, self.replay = evidence, design, cell, primary, replay
        self.observations = evidence.observations(primary)
        self.seconds = seconds_by_stack(self.observations)
        self.own: dict[str, dict[str, OwnLevel]] = {}
        self.explored: dict[str, tuple[PairConclusion, ...]] = {}
        self.conclusion = self._conclude()
        self.own[primary] = self.conclusion.own
        for name in self._other_metrics():
            self._explore(name)

    def _conclude(self) -> CellConclusion:
        evidence = self.evidence
        paired = evidence.data.record.paired
        imported, replay = evidence.imported, self.replay
        return conclude(self.design, self.observations, self.cell.id, imported=imported, paired=paired, replay=replay)

    def _other_metrics(self) -> tuple[str, ...]:
        """What was measured here; failures only where there were any."""
        names: dict[str, None] = {}
        for run in self.evidence.runs:
            if run.cell == self.cell.id:
                names |= dict.fromkeys(n for n, v in run.metrics.items() if _is_told(n, v))
        return tuple(n for n in names if n != self.primary)

    def _explore(self, name: str) -> BlockFit:
        design = replace(self.design, goal=self.design.goal.model_copy(update={"primary": name}))
        table = host_factor_table(design, self.evidence.observations(name), self.cell.id)
        paired = self.evidence.data.record.paired
        fit, self.own[name], self.explored[name] = explore(design, table, paired=paired)
        return fit

    # ------------------------------------------------------------ stacks

    def stacks(self) -> Iterator[StackFinding]:
        for name in self.evidence.stacks:
            yield self._stack(name)

    def _stack(self, name: str) -> StackFinding:
        evidence, stack = self.evidence, self.evidence.stacks[name]
        runs = evidence.of(name, self.cell.id)
        durability = evidence.durability[name]
        names = dict.fromkeys((self.primary, *(m for m in self.own if any(m in r.metrics for r in runs))))
        return StackFinding(
            name=name,
            cell=self.cell.id,
            spec=render_stack(stack),
            n=len(runs),
            excluded=evidence.excluded.get(name, ()),
            unsupported=evidence.unsupported.get(name),
            metrics={m: self._metric(m, name, runs) for m in names},
            durability=durability_found(durability, evidence.crashes.get(name), evidence.untested.get(name, "")),
            trials=tuple(r.trial.id for r in runs),
            labels=tuple(self._labels(runs)),
            disks=disk_findings([r.data.result for r in runs]),
        )

    def _metric(self, metric: str, stack: str, runs: tuple[Run, ...]) -> MetricFinding:
        values = tuple(r.metrics.get(metric) for r in runs)
        own = self.own[metric].get(stack)
        if own is None:
            return MetricFinding(estimate=None, runs=values)
        low, high = _sorted_bounds(metric_of(metric), own.interval)
        alike = {v for v in values if v is not None}
        # All runs the same: the value itself, free of the rounding of logarithms.
        estimate = alike.pop() if len(alike) == 1 else metric_of(metric).from_model(own.level)
        return MetricFinding(estimate=estimate, low=low, high=high, runs=values)

    def _labels(self, runs: tuple[Run, ...]) -> Iterator[str]:
        if self.evidence.imported and runs:
            yield "imported"
        if self.evidence.emulated and runs:
            yield "functional only"
        counts = [r.data.result.checkpoints for r in runs if r.data.result.checkpoints is not None]
        if counts and min(counts) < 1:
            yield "checkpoint cost not included"
        if any(r.data.result.percentiles_ms and not r.data.result.open_loop for r in runs):
            yield "percentiles of a closed loop hide stalls"
        if any(r.data.result.warmup_stable is False for r in runs):
            yield "not warmed up in every run"

    # ------------------------------------------------------------ comparisons

    def comparisons(self) -> Iterator[Comparison]:
        """One for each pair and metric: the strongest statement there is."""
        if self.evidence.emulated:
            return
        yield from (self._comparison(p, self.evidence.primary, declared=True) for p in self._primary_pairs())
        for name, pairs in self.explored.items():
            yield from (self._comparison(p, metric_of(name), declared=False) for p in pairs)

    def _primary_pairs(self) -> tuple[PairConclusion, ...]:
        """Confirmed pairs, then those that only screening saw (also where confirmation is still unbounded)."""
        confirmed = self.conclusion.confirmed
        settled = {frozenset((p.a, p.b)) for p in confirmed if math.isfinite(p.verdict.interval.low)}
        return (*confirmed, *(p for p in self.conclusion.screened if frozenset((p.a, p.b)) not in settled))

    def _comparison(self, pair: PairConclusion, metric: Metric, *, declared: bool) -> Comparison:
        verdict = pair.verdict
        shown = verdict.equivalence if verdict.verdict == "equal" else verdict.interval
        low, high = _sorted_bounds(metric, shown)
        estimate = verdict.estimate
        kind: Kind = "confirm" if pair.confirmed else "screen"
        half = (verdict.interval.high - verdict.interval.low) / 2
        needed = pair.needed() if declared else None
        return Comparison(
            a=pair.a,
            b=pair.b,
            cell=self.cell.id,
            metric=metric.name,
            scale=metric.scale,
            ratio=metric.from_model(estimate.value),
            low=low,
            high=high,
            level=shown.level,
            kind="equivalence" if verdict.verdict == "equal" else kind,
            verdict=verdict.verdict,
            pairs=round(estimate.n),
            needed_pairs=needed,
            needed_s=self._cost_s(pair, needed),
            source=self._source(pair),
            leaning=_leaning(pair),
            margin=_as_share(metric, pair.bound) if declared else None,
            one_look=verdict.one_look,
            proven=declared and pair.confirmed and verdict.verdict in ("better", "worse"),
            smallest_provable=_as_share(metric, half),
            acceptable_margin=_as_share(metric, verdict.acceptable_bound) if declared else None,
            sigma=pair.sigma,
            cross_check=_cross_check(pair, metric) if declared else None,
        )

    def _cost_s(self, pair: PairConclusion, pairs: int | None) -> float | None:
        """Machine time of so many more pairs."""
        seconds = self.seconds.get(pair.a, 0.0) + self.seconds.get(pair.b, 0.0)
        known = pairs and seconds and not self.evidence.imported and pair.over is None
        return pairs * seconds if pairs and known else None

    def _source(self, pair: PairConclusion) -> Source:
        if self.evidence.imported:
            return "import"
        if pair.over is not None:
            return "hosts"
        return "fresh pairs" if pair.confirmed else "screening"

    # ------------------------------------------------------------ statements

    def finding(self) -> CellFinding:
        return CellFinding(
            id=self.cell.id,
            script=self.cell.script_name,
            scale=self.cell.scale,
            scaled=self.evidence.data.campaign.workload.scaled,
            clients=self.cell.clients,
            rate_tps=self.cell.rate_tps,
            ranking=() if self.evidence.emulated else self._ranking(),
            chosen=self._chosen(),
            statements=tuple(self._statements()),
            screened=self.design.screens and bool(self.conclusion.confirmed),
        )

    def _chosen(self) -> Chosen | None:
        leader = self.conclusion.leader
        if leader is None or not self.conclusion.chosen or self.evidence.emulated:
            return None
        class_ = self.evidence.durability[leader].class_
        return Chosen(
            name=leader,
            class_=class_,
            probability_within_margin=1 - ALPHA if self._rivals() else None,
            left_behind=left_behind(self.design, self.conclusion.fit, leader, *self._pairs()),
        )

    def _pairs(self) -> tuple[tuple[PairConclusion, ...], tuple[PairConclusion, ...]]:
        return self.conclusion.screened, self.conclusion.confirmed

    def _rivals(self) -> list[str]:
        """Ranked stacks that could be chosen instead of the leader."""
        names = self.conclusion.ranking[1:]
        return [n for n in names if self.design.can_choose(n)]

    def _ranking(self) -> tuple[str, ...]:
        """Ranked stacks; those that could not be compared follow by their own level."""
        own = self.conclusion.own
        apart = sorted(self.conclusion.apart, key=lambda name: (-own[name].level, name))
        return (*self.conclusion.ranking, *apart)

    def _statements(self) -> Iterator[Statement]:
        if self.evidence.emulated:
            yield NoVerdict(reason="emulated")
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
        yield from self._features()

    def _choice(self, leader: str) -> Choice:
        chosen, rivals = self.conclusion.chosen, self._rivals()
        limited = any(not self.design.can_choose(name) for name in self.conclusion.ranking)
        return Choice(
            subject=leader,
            relation=("chosen" if chosen else "leads") if rivals else "only one",
            metric=self.primary,
            margin=self.design.goal.margin,
            class_=self._demanded(leader) if limited else None,
        )

    def _demanded(self, leader: str) -> str:
        """The durability to choose in: that of the goal, or the strongest there is."""
        weakest = (d for d in reversed(CLASSES) if any(self._has(n, d) for n in (leader, *self._rivals())))
        return self.design.goal.durability or next(weakest)

    def _has(self, stack: str, class_: str) -> bool:
        return self.evidence.durability[stack].class_ == class_

    def _best_length(self, leader: str) -> Iterator[Statement]:
        if self.primary != "tps":
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
        return pair_statement(self._comparison(pair, self.evidence.primary, declared=True))

    def _not_confirmed(self) -> Iterator[Statement]:
        """Leader and runner-up, where both could be chosen and screening decided nothing."""
        first = {self.conclusion.leader, *self._rivals()[:1]}
        for pair in self.conclusion.screened:
            if {pair.a, pair.b} == first and not pair.verdict.decided:
                yield self._pair(pair)
                reach = _as_share(self.evidence.primary, smallest_margin(pair.sigma, MAX_PAIRS))
                yield NotConfirmed(
                    subject=pair.a, object=pair.b, metric=self.primary, pairs=MAX_PAIRS, provable_margin=reach
                )

    def _behind(self, leader: str) -> Iterator[Statement]:
        metric, others = self.evidence.primary, []
        for pair in self.conclusion.screened:
            if leader in (pair.a, pair.b) and pair.verdict.verdict == ("better" if pair.a == leader else "worse"):
                other = pair.b if pair.a == leader else pair.a
                others.append((other, metric.from_model(-abs(pair.verdict.estimate.value))))
        if others:
            source: Source = "import" if self.evidence.imported else "screening"
            yield Behind(subject=leader, metric=metric.name, others=tuple(_amounts(others)), source=source)

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
            low, high = _sorted_bounds(metric, turned)
            yield Price(
                subject=other,
                object=leader,
                metric=metric.name,
                amount=metric.from_model(sign * pair.verdict.estimate.value),
                low=low,
                high=high,
                class_=self.evidence.durability[other].class_,
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


class _MatchedCell(_JudgedCell):
    """An open-loop cell of the latency stage: nothing was declared about it, so nothing is proven."""

    def __init__(self, evidence: Evidence, design: Design, cell: Cell, replay: Replay) -> None:
        asked = evidence.data.campaign.latency
        primary = f"latency_{asked.percentile if asked else 'p99'}_ms"
        super().__init__(evidence, replace(design, as_declared=False), cell, primary, replay)

    def _conclude(self) -> CellConclusion:
        fit = self._explore(self.primary)
        order = rank(fit, range(len(self.design.stacks)), self.design.stacks)
        return CellConclusion(
            fit=fit,
            own=self.own[self.primary],
            ranking=tuple(self.design.stacks[k] for k in order),
            leader=None,
            chosen=False,
            bad_modes=(),
            screened=(),
            confirmed=(),
            apart=tuple(n for n in self.own[self.primary] if n not in {self.design.stacks[k] for k in order}),
        )

    def _chosen(self) -> None:
        return None

    def _statements(self) -> Iterator[Statement]:
        metric = metric_of(self.primary)
        levels = [(n, metric.from_model(self.own[self.primary][n].level)) for n in self._ranking()]
        ordered = tuple(_amounts(sorted(levels, key=lambda item: item[1])))
        yield MatchedLoad(rate_tps=self.cell.rate_tps or 0.0, metric=metric.name, levels=ordered)


def pair_statement(comparison: Comparison) -> PairStatement:
    """What a comparison in the declared metric says."""
    decided = comparison.verdict != "undecided"
    return PairStatement(
        subject=comparison.a,
        relation=comparison.verdict,
        object=comparison.b,
        metric=comparison.metric,
        amount=comparison.ratio if comparison.ratio is not None else math.nan,
        low=comparison.low,
        high=comparison.high,
        certainty=("proven" if comparison.source in ("fresh pairs", "hosts") else "shown") if decided else "open",
        source=comparison.source,
        margin=comparison.margin or 0.0,
        leaning=comparison.leaning,
        sigma=comparison.sigma if comparison.sigma and math.isfinite(comparison.sigma) else None,
        settled_by_pairs=comparison.needed_pairs,
        settled_by_s=comparison.needed_s,
        acceptable_margin=comparison.acceptable_margin,
    )


def _amounts(items: Iterable[tuple[str, float]]) -> Iterator[Amount]:
    return (Amount(name=name, value=value) for name, value in items)


def _leaning(pair: PairConclusion) -> Literal["better", "worse"] | None:
    if pair.verdict.verdict != "equal" or not pair.verdict.interval.excludes_zero():
        return None
    return "better" if pair.verdict.estimate.value > 0 else "worse"


def _is_told(metric: str, value: float | None) -> bool:
    """Whether a run's value is reason to show the metric; a share of failures of 0 is none."""
    return value is not None and (metric != "failed_fraction" or value > 0)


def _sorted_bounds(metric: Metric, bounds: Interval) -> tuple[float | None, float | None]:
    """Bounds in the metric's own units (ratios: of the ratio); None while unbounded."""
    if not (math.isfinite(bounds.low) and math.isfinite(bounds.high)):
        return None, None
    low, high = sorted((metric.from_model(bounds.low), metric.from_model(bounds.high)))
    return low, high


def _as_share(metric: Metric, bound: float) -> float | None:
    if not math.isfinite(bound):
        return None
    return math.expm1(bound) if metric.scale == "ratio" else bound


def _cross_check(pair: PairConclusion, metric: Metric) -> float | None:
    """The two estimates should agree; where they do not, the runs are skewed or fall into groups."""
    check = pair.cross_check()
    return metric.from_model(check) if abs(check - pair.verdict.estimate.value) > pair.bound / 2 else None
