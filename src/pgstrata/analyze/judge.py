"""From a recorded campaign to findings: the one entry for reports and gates.

Each metric of each cell goes through `conclude` (the declared primary metric) or `explore` (all others); here their
results become the types of the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pgstrata.analyze import words
from pgstrata.analyze.conclude import CellConclusion, OwnLevel, PairConclusion, conclude, explore
from pgstrata.analyze.evidence import Evidence, Run, durability_of, gather
from pgstrata.analyze.findings import (
    CampaignFinding,
    CellFinding,
    Chosen,
    Comparison,
    DurabilityFinding,
    Findings,
    Kind,
    MetricFinding,
    StackFinding,
)
from pgstrata.analyze.fit import BlockFit
from pgstrata.analyze.interval import Interval
from pgstrata.analyze.later import capacities_tps
from pgstrata.analyze.noise import suggested_length
from pgstrata.analyze.policy import MAX_PAIRS
from pgstrata.analyze.scale import Metric, metric_of
from pgstrata.analyze.screen import rank
from pgstrata.analyze.shape import describe
from pgstrata.analyze.stages import Design, Replay, seconds_by_stack, tabulate
from pgstrata.analyze.trend import trend_p
from pgstrata.record.decision import Stage
from pgstrata.record.reader import CampaignData
from pgstrata.spec.notation import render_stack
from pgstrata.spec.workload import Cell

TREND_ALPHA = 0.05
TREND_RUN_S = 300.0
"""Shorter runs are all beginning: their slope says nothing about the hours after."""


def judge(data: CampaignData) -> Findings:
    """The findings of a campaign, finished or not; a pure function of the record."""
    evidence = gather(data)
    design = evidence.design()
    replay = Replay(design)
    cells, stacks, comparisons = [], [], []
    for cell in evidence.cells:
        judged = _JudgedCell(evidence, design, cell, evidence.goal.primary, replay)
        cells.append(judged.finding())
        stacks += list(judged.stacks())
        comparisons += list(judged.comparisons())
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
    )


def _campaign(evidence: Evidence) -> CampaignFinding:
    data = evidence.data
    facts = next((t.facts for t in data.trials if t.facts is not None), None)
    checked = facts.checked if facts else {}
    versions = [v for k, v in checked.items() if "postgres" in k.lower()]
    host: dict[str, Any] = {"name": facts.name, "kind": facts.kind, "medium": facts.medium, **checked} if facts else {}
    if data.media:
        host["baseline"] = data.media[-1].model_dump(mode="json", exclude={"format"})
    return CampaignFinding(
        name=data.campaign.name,
        primary=evidence.goal.primary,
        margin=evidence.goal.margin,
        seed=data.campaign.seed,
        host=host,
        postgres_version=versions[0] if versions else "",
        origin=data.record.origin,
        notices=evidence.notices,
        machine_time_s=sum(t.verdict.duration_s for t in data.trials),
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
        design = Design(self.design.stacks, self.design.cells, self.design.goal.model_copy(update={"primary": name}))
        stages: tuple[Stage, ...] = ("screen", "confirm")
        table = tabulate(design, self.evidence.observations(name), self.cell.id, stages)
        paired, cells = self.evidence.data.record.paired, len(design.cells)
        fit, self.own[name], self.explored[name] = explore(design.stacks, table, paired=paired, cells=cells)
        return fit

    # ------------------------------------------------------------ stacks

    def stacks(self) -> Iterator[StackFinding]:
        for name in self.evidence.stacks:
            yield self._stack(name)

    def _stack(self, name: str) -> StackFinding:
        evidence, stack = self.evidence, self.evidence.stacks[name]
        runs = evidence.of(name, self.cell.id)
        durability = durability_of(evidence.data, stack)
        names = dict.fromkeys((self.primary, *(m for m in self.own if any(m in r.metrics for r in runs))))
        return StackFinding(
            name=name,
            cell=self.cell.id,
            spec=render_stack(stack),
            n=len(runs),
            excluded=evidence.excluded.get(name, ()),
            unsupported=evidence.unsupported.get(name),
            metrics={m: self._metric(m, name, runs) for m in names},
            durability=DurabilityFinding(class_=durability.class_, reason=durability.reason),
            trials=tuple(r.trial.id for r in runs),
            labels=tuple(self._labels(runs)),
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
            needed_pairs=pair.needed() if declared else None,
            margin=_as_share(metric, pair.bound) if declared else None,
            proven=declared and pair.confirmed and verdict.verdict in ("better", "worse"),
            smallest_provable=_as_share(metric, half),
            acceptable_margin=_as_share(metric, verdict.acceptable_bound) if declared else None,
            sigma=pair.sigma,
            warning=_warning(pair, metric) if declared else "",
            sentence=self._sentence(pair, metric) if declared else "",
        )

    def _sentence(self, pair: PairConclusion, metric: Metric) -> str:
        cost_s = self.seconds.get(pair.a, 0.0) + self.seconds.get(pair.b, 0.0)
        return words.pair_sentence(pair, metric, cost_s or None, self.evidence.imported)

    # ------------------------------------------------------------ words

    def finding(self) -> CellFinding:
        conclusion = self.conclusion
        chosen = None
        if conclusion.chosen is not None and not self.evidence.emulated:
            chosen = Chosen(name=conclusion.chosen, probability_within_margin=conclusion.probability_within_margin)
        return CellFinding(
            id=self.cell.id,
            script=self.cell.script,
            scale=self.cell.scale,
            clients=self.cell.clients,
            rate_tps=self.cell.rate_tps,
            ranking=() if self.evidence.emulated else self._ranking(),
            chosen=chosen,
            words=tuple(self._words()),
        )

    def _ranking(self) -> tuple[str, ...]:
        """Ranked stacks; those that could not be compared follow by their own level."""
        own = self.conclusion.own
        apart = sorted(self.conclusion.apart, key=lambda name: (-own[name].level, name))
        return (*self.conclusion.ranking, *apart)

    def _words(self) -> Iterator[str]:
        if self.evidence.emulated:
            yield "Functional only: throughput on an emulated machine is not compared."
            return
        conclusion, metric = self.conclusion, self.evidence.primary
        if conclusion.chosen is None:
            yield self._no_verdict()
        else:
            rivals = len(conclusion.ranking) - 1
            probability = conclusion.probability_within_margin
            yield words.chosen_sentence(conclusion.chosen, probability, metric, self.design.bound, rivals)
            yield from self._verdict_words()
            yield from self._length_words(conclusion.chosen)
        if conclusion.chosen is not None and conclusion.apart:
            yield f"Not compared, too few runs in common: {words.listed(conclusion.apart)}."
        yield from self._shape_words()

    def _length_words(self, chosen: str) -> Iterator[str]:
        if self.primary != "tps":
            return
        suggested = suggested_length(self.evidence, chosen, self.cell.id, self.conclusion.fit.sigma)
        if suggested is not None and not 0.5 <= suggested[0].best_s / suggested[1] <= 2:
            yield words.length_sentence(suggested[0].best_s, suggested[1])

    def _capacity_words(self) -> Iterator[str]:
        asked = self.evidence.data.campaign.latency
        if asked is None or asked.objective_ms is None:
            return
        found = capacities_tps(self.evidence.data.campaign, self.evidence.open_loops(asked.percentile))
        own = {stack: tps for (stack, cell), tps in found.items() if cell == self.cell.id}
        if own:
            yield words.capacity_sentence(asked.percentile, asked.objective_ms, own)

    def _no_verdict(self) -> str:
        if self.evidence.imported and any(self.evidence.of(n, self.cell.id) for n in self.evidence.stacks):
            return "Single runs give **no verdict**: nothing tells a difference of the stacks from luck of the run."
        if len(self.design.stacks) == 1:
            return f"{words.quoted(self.design.stacks[0])} alone: there is nothing to compare it with."
        return "There are too few runs for any verdict yet: at least two blocks with two stacks."

    def _verdict_words(self) -> Iterator[str]:
        conclusion, metric = self.conclusion, self.evidence.primary
        chosen = str(conclusion.chosen)
        if self.evidence.imported and len(conclusion.screened) <= 10:
            yield from (self._sentence(p, metric) for p in conclusion.screened)
            return
        yield from (self._sentence(p, metric) for p in conclusion.confirmed)
        if self.design.screens and not conclusion.confirmed:
            pair = self._leading_screened()
            if pair is not None and not pair.verdict.decided:
                yield words.not_confirmed_sentence(pair, metric, MAX_PAIRS)
        if self.design.screens or self.evidence.imported:
            behind = words.screened_sentence(chosen, conclusion.screened, metric, self.evidence.imported)
            yield from [behind] if behind else []

    def _leading_screened(self) -> PairConclusion | None:
        first = set(self.conclusion.ranking[:2])
        return next((p for p in self.conclusion.screened if {p.a, p.b} == first), None)

    def _shape_words(self) -> Iterator[str]:
        """Stalls and trends, named; soak runs by themselves."""
        for name in self.evidence.stacks:
            yield from self._soak_words(name)
        yield from self._capacity_words()
        for name in self.evidence.stacks:
            runs = self.evidence.of(name, self.cell.id)
            yield from _stall_words(name, runs)
            slopes = _known(runs, "trend_per_hour")
            long = all(r.data.result.duration_s >= TREND_RUN_S for r in runs)
            if long and slopes.size >= 3 and trend_p(slopes) < TREND_ALPHA / max(1, len(self.design.stacks)):
                yield words.trend_sentence(name, float(np.median(slopes)))
            shape = describe([r.data for r in runs])
            if shape is not None:
                yield from words.shape_sentences(name, shape)

    def _soak_words(self, name: str) -> Iterator[str]:
        """Slope, stalls and changes of level of a stack's long runs."""
        soaked = self.evidence.of(name, self.cell.id, ("soak",))
        slopes = _known(soaked, "trend_per_hour")
        durations_s = [r.data.result.duration_s for r in soaked]
        if slopes.size and min(durations_s) >= TREND_RUN_S:
            yield words.soak_sentence(name, len(soaked), float(np.median(durations_s)), float(np.median(slopes)))
        shape = describe([r.data for r in soaked])
        levels = words.level_sentences(name, shape.changes_s) if shape is not None else ()
        yield from (f"Soak: {sentence}" for sentence in (*_stall_words(name, soaked), *levels))


class _MatchedCell(_JudgedCell):
    """An open-loop cell of the latency stage: nothing was declared about it, so nothing is proven."""

    def __init__(self, evidence: Evidence, design: Design, cell: Cell, replay: Replay) -> None:
        asked = evidence.data.campaign.latency
        super().__init__(evidence, design, cell, f"latency_{asked.percentile if asked else 'p99'}_ms", replay)

    def _conclude(self) -> CellConclusion:
        fit = self._explore(self.primary)
        order = rank(fit, range(len(self.design.stacks)), self.design.stacks)
        return CellConclusion(
            fit=fit,
            own=self.own[self.primary],
            ranking=tuple(self.design.stacks[k] for k in order),
            chosen=None,
            probability_within_margin=None,
            screened=(),
            confirmed=(),
            apart=tuple(n for n in self.own[self.primary] if n not in {self.design.stacks[k] for k in order}),
        )

    def _words(self) -> Iterator[str]:
        metric = metric_of(self.primary)
        levels = {n: metric.from_model(self.own[self.primary][n].level) for n in self._ranking()}
        yield words.matched_sentence(self.cell.rate_tps or 0.0, metric, levels)


def _is_told(metric: str, value: float | None) -> bool:
    """Whether a run's value is reason enough to show the metric: the share of failures is not while it is 0."""
    return value is not None and (metric != "failed_fraction" or value > 0)


def _stall_words(name: str, runs: tuple[Run, ...]) -> Iterator[str]:
    steadiness = [_known(runs, m) for m in ("half_fraction", "stall_fraction", "longest_stall_s")]
    if all(values.size for values in steadiness):
        sentence = words.stall_sentence(name, *(float(np.median(values)) for values in steadiness))
        yield from [sentence] if sentence else []


def _known(runs: tuple[Run, ...], metric: str) -> npt.NDArray[np.float64]:
    return np.array([v for r in runs if (v := r.metrics.get(metric)) is not None], dtype=np.float64)


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


def _warning(pair: PairConclusion, metric: Metric) -> str:
    """The two estimates should agree; where they do not, the runs are skewed or fall into groups."""
    check = pair.cross_check()
    if not abs(check - pair.verdict.estimate.value) > pair.bound / 2:
        return ""
    other = metric.from_model(check)
    return f"the Hodges-Lehmann estimate is {other:.3f}, more than half a margin away: look at the single runs"
