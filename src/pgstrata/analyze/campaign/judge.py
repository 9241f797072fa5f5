"""From a recorded campaign to findings: the single entry for reports and gates.

Each metric of each cell goes through `conclude` (the declared primary metric) or `explore` (all others). This module
converts their results to the types of the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pgstrata.analyze.campaign.caveats import notable, surroundings_of, transactions_of
from pgstrata.analyze.campaign.conclude import (
    CellConclusion,
    OwnLevel,
    PairConclusion,
    conclude,
    explore,
    undecided_rivals,
)
from pgstrata.analyze.campaign.evidence import Evidence, Run, gather
from pgstrata.analyze.campaign.pair_findings import PairFindings, hosts_findings, sorted_bounds
from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.campaign.slice_evidence import slices_finding
from pgstrata.analyze.campaign.statement_builder import CellStatements, amounts, rivals_of
from pgstrata.analyze.campaign.statements import MatchedLoad, Statement
from pgstrata.analyze.campaign.tuning import tuning_finding
from pgstrata.analyze.crash import effective_durability
from pgstrata.analyze.findings import (
    CampaignFinding,
    CellFinding,
    Chosen,
    Comparison,
    CostFinding,
    Findings,
    MetricFinding,
    StackFinding,
)
from pgstrata.analyze.stats.comparison import Design, Replay, seconds_by_stack
from pgstrata.analyze.stats.fit import BlockFit
from pgstrata.analyze.stats.hosts import host_factor_table
from pgstrata.analyze.stats.interval import ALPHA
from pgstrata.analyze.stats.screen import rank
from pgstrata.analyze.why.account import explain
from pgstrata.analyze.why.use import disk_findings, node_findings, script_findings
from pgstrata.record.reader import CampaignData, without_collection
from pgstrata.spec.campaign import cost_of_million
from pgstrata.spec.layers.not_built import NOT_ATTESTED
from pgstrata.spec.notation.stack import render_stack
from pgstrata.spec.workload import Cell


@without_collection()
def judge(data: CampaignData) -> Findings:
    """Return the findings of a campaign, finished or not; a pure function of the record."""
    evidence = gather(data)
    design = evidence.design()
    replay = Replay(design)
    cells, stacks, comparisons, hosts, slices, pairs = [], [], [], [], [], {}
    for cell in evidence.cells:
        judged = _JudgedCell(evidence, design, cell, evidence.goal.primary, replay)
        cells.append(judged.finding())
        pairs[cell.id] = judged.pairs
        hosts += list(hosts_findings(evidence, design, judged.conclusion, cell.id))
        slices += [judged.slices] if judged.slices else []
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
        whys=tuple(w.model_copy(update={"uncounted": pairs[w.cell].uncounted(w.a, w.b)}) for w in whys),
        hosts=tuple(hosts),
        slices=tuple(slices),
        tuning=tuning_finding(evidence),
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
        wanted_tps=data.campaign.price.rate if data.campaign.price else None,
        machine_time_s=sum(t.verdict.duration_s for t in data.every_trial),
        rejected=data.record.rejected,
    )


class _JudgedCell:
    """One cell: the primary metric judged by the stages, the others explored."""

    def __init__(self, evidence: Evidence, design: Design, cell: Cell, primary: str, replay: Replay) -> None:
        self.evidence, self.design, self.cell, self.primary, self.replay = evidence, design, cell, primary, replay
        self.observations = evidence.observations(primary)
        self.transactions = {
            n: transactions_of(r.data.result for r in evidence.of(n, cell.id)) for n in evidence.stacks
        }
        seconds = seconds_by_stack(self.observations)
        around = {n: surroundings_of(r.trial for r in evidence.of(n, cell.id)) for n in evidence.stacks}
        self.pairs = PairFindings(cell.id, evidence.imported, seconds, notable(self.transactions), around)
        self.own: dict[str, dict[str, OwnLevel]] = {}
        self.explored: dict[str, tuple[PairConclusion, ...]] = {}
        self.slices = slices_finding(evidence, cell.id)
        self.paired = evidence.data.record.paired
        self.conclusion = self._conclude()
        self.own[primary] = self.conclusion.own
        for name in self._other_metrics():
            self._explore(name)

    def _conclude(self) -> CellConclusion:
        return conclude(
            self.design,
            self.observations,
            self.cell.id,
            imported=self.evidence.imported,
            paired=self.paired,
            replay=self.replay,
        )

    def _other_metrics(self) -> tuple[str, ...]:
        """Return the metrics measured in this cell; failures only if there were any."""
        names: dict[str, None] = {}
        for run in self.evidence.runs:
            if run.cell == self.cell.id:
                names |= dict.fromkeys(n for n, v in run.metrics.items() if _is_told(n, v))
        return tuple(n for n in names if n != self.primary)

    def _explore(self, name: str) -> BlockFit:
        design = replace(self.design, goal=self.design.goal.model_copy(update={"primary": name}))
        table = host_factor_table(design, self.evidence.observations(name), self.cell.id)
        fit, self.own[name], self.explored[name] = explore(design, table, paired=self.paired)
        return fit

    # ------------------------------------------------------------ stacks

    def stacks(self) -> Iterator[StackFinding]:
        return (self._stack(name) for name in self.evidence.stacks)

    def _stack(self, name: str) -> StackFinding:
        evidence, stack = self.evidence, self.evidence.stacks[name]
        runs = evidence.of(name, self.cell.id)
        results = [r.data.result for r in runs]
        names = dict.fromkeys((self.primary, *(m for m in self.own if any(m in r.metrics for r in runs))))
        return StackFinding(
            name=name,
            cell=self.cell.id,
            spec=render_stack(stack),
            n=len(runs),
            excluded=evidence.excluded.get(name, ()),
            unsupported=evidence.unsupported.get(name),
            metrics={m: self._metric(m, name, runs) for m in names},
            durability=evidence.durability[name],
            trials=tuple(r.trial.id for r in runs),
            labels=tuple(self._labels(runs)),
            cost=self._cost(name, runs),
            transactions=self.transactions[name],
            scripts=script_findings(results),
            disks=disk_findings(results),
            nodes=node_findings(results),
        )

    def _metric(self, metric: str, stack: str, runs: tuple[Run, ...]) -> MetricFinding:
        values = tuple(r.metrics.get(metric) for r in runs)
        own = self.own[metric].get(stack)
        if own is None:
            return MetricFinding(estimate=None, runs=values)
        low, high = sorted_bounds(metric_of(metric), own.interval)
        alike = {v for v in values if v is not None}
        # All runs are the same: the value itself, free of the rounding of logarithms.
        estimate = alike.pop() if len(alike) == 1 else metric_of(metric).from_model(own.level)
        return MetricFinding(estimate=estimate, low=low, high=high, runs=values)

    def _cost(self, name: str, runs: tuple[Run, ...]) -> CostFinding | None:
        """Return the cost of its transactions; that of an open loop is of the scheduled rate, and of no stack."""
        prices = self.evidence.data.campaign.price
        per_hour = prices.per_hour(name) if prices else None
        if prices is None or per_hour is None or self.cell.rate_tps is not None or "tps" not in self.own:
            return None
        tps = self._metric("tps", name, runs)
        million, high, low = (cost_of_million(per_hour, value) for value in (tps.estimate, tps.low, tps.high))
        if million is None:
            return None
        return CostFinding(currency=prices.currency, per_hour=per_hour, million=million, low=low, high=high)

    def _labels(self, runs: tuple[Run, ...]) -> Iterator[str]:
        if self.evidence.imported and runs:
            yield "imported"
        if self.evidence.emulated and runs:
            yield "functional only"
        if runs and not runs[0].trial.stack.is_attested:
            yield NOT_ATTESTED
        counts = [r.data.result.checkpoints for r in runs if r.data.result.checkpoints is not None]
        if counts and min(counts) < 1:
            yield "checkpoint cost not included"
        if any(r.data.result.percentiles_ms and not r.data.result.open_loop for r in runs):
            yield "percentiles of a closed loop hide stalls"
        rising = sum(r.data.result.warmup_stable is False for r in runs)
        if rising:
            yield f"throughput was still rising in {rising} of {len(runs)} runs"

    # ------------------------------------------------------------ comparisons

    def comparisons(self) -> Iterator[Comparison]:
        """Yield one comparison for each pair and metric: the strongest statement available."""
        if self.evidence.unranked:
            return
        yield from (self.pairs.comparison(p, self.evidence.primary, declared=True) for p in self._primary_pairs())
        for name, pairs in self.explored.items():
            yield from (self.pairs.comparison(p, metric_of(name), declared=False) for p in pairs)

    def _primary_pairs(self) -> tuple[PairConclusion, ...]:
        """Return confirmed pairs, then pairs from screening alone (also while confirmation has no bounds yet)."""
        confirmed = self.conclusion.confirmed
        settled = {frozenset((p.a, p.b)) for p in confirmed if math.isfinite(p.verdict.interval.low)}
        return (*confirmed, *(p for p in self.conclusion.screened if frozenset((p.a, p.b)) not in settled))

    # ------------------------------------------------------------ the cell

    def finding(self) -> CellFinding:
        return CellFinding(
            id=self.cell.id,
            script=self.cell.script_name,
            scale=self.cell.scale,
            scaled=self.evidence.data.campaign.workload.scaled,
            clients=self.cell.clients,
            rate_tps=self.cell.rate_tps,
            ranking=() if self.evidence.unranked else self._ranking(),
            chosen=self._chosen(),
            statements=tuple(self._statements()),
            screened=self.design.screens and bool(self.conclusion.confirmed),
        )

    def _chosen(self) -> Chosen | None:
        leader = self.conclusion.leader
        if leader is None or not self.conclusion.chosen or self.evidence.unranked:
            return None
        found = self.conclusion
        return Chosen(
            name=leader,
            class_=effective_durability(self.evidence.durability[leader]),
            probability_within_margin=1 - ALPHA if rivals_of(self.design, found) else None,
            left_behind=undecided_rivals(self.design, found.fit, leader, found.screened, found.confirmed),
        )

    def _ranking(self) -> tuple[str, ...]:
        """Return ranked stacks; those that could not be compared follow by their own level."""
        own = self.conclusion.own
        apart = sorted(self.conclusion.apart, key=lambda name: (-own[name].level, name))
        return (*self.conclusion.ranking, *apart)

    def _statements(self) -> Iterator[Statement]:
        return CellStatements(
            self.evidence, self.design, self.cell, self.conclusion, self.observations, self.pairs, self.slices
        ).all()


class _MatchedCell(_JudgedCell):
    """An open-loop cell of the latency stage: no goal was declared for it, so nothing is proven."""

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
            favoured=False,
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
        ordered = tuple(amounts(sorted(levels, key=lambda item: item[1])))
        yield MatchedLoad(
            rate_tps=self.cell.rate_tps or 0.0,
            metric=metric.name,
            levels=ordered,
            **self.pairs.caveats(*self.evidence.stacks),
        )


def _is_told(metric: str, value: float | None) -> bool:
    """Return True if a run's value justifies showing the metric; a failure share of 0 does not."""
    return value is not None and (metric != "failed_fraction" or value > 0)
