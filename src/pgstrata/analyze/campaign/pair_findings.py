"""Converts a conclusion about a pair to a finding: in the metric's own units, with the cost of more pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from pgstrata.analyze.campaign.caveats import Surroundings, unlike
from pgstrata.analyze.campaign.conclude import CellConclusion, PairConclusion
from pgstrata.analyze.campaign.evidence import Evidence
from pgstrata.analyze.campaign.scale import Metric
from pgstrata.analyze.campaign.statements import PairFigures, PairStatement
from pgstrata.analyze.crash import share_bound
from pgstrata.analyze.finding import Kind, Modes, Rounds, Source, Uncounted, Unlike
from pgstrata.analyze.findings import Comparison, HostFinding, HostsFinding
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.equivalence import PairVerdict, mean_of_differences
from pgstrata.analyze.stats.hosts import HostDifference, HostTable
from pgstrata.analyze.stats.interval import ALPHA, CONFIRM_G, Interval, interval, t_interval


class Caveats(TypedDict):
    """Fields of a claim with what its sentence must name."""

    uncounted: Uncounted
    unlike: Unlike


@dataclass(frozen=True)
class PairFindings:
    """Converter for the pairs of one cell."""

    cell: str
    imported: bool
    seconds: dict[str, float]
    """Machine time of a stack in a block."""
    notable: Uncounted = field(default_factory=dict)
    """Uncommitted or retried transactions of the cell's stacks, if notable."""
    surroundings: Mapping[str, Surroundings] = field(default_factory=dict)
    """Servers, checksums, networks and client machines by stack."""

    def uncounted(self, *names: str) -> Uncounted:
        """Return the notable shares of these stacks."""
        return {name: self.notable[name] for name in names if name in self.notable}

    def caveats(self, *names: str) -> Caveats:
        """Return what a claim on these stacks must name: notable shares, and surroundings that differ."""
        return {"uncounted": self.uncounted(*names), "unlike": unlike(self.surroundings, names)}

    def comparison(self, pair: PairConclusion, metric: Metric, *, declared: bool) -> Comparison:
        verdict = pair.verdict
        shown = verdict.equivalence if verdict.verdict == "equal" else verdict.interval
        low, high = sorted_bounds(metric, shown)
        estimate = verdict.estimate
        kind: Kind = "confirm" if pair.confirmed else "screen"
        half = (verdict.interval.high - verdict.interval.low) / 2
        needed = pair.needed() if declared else None
        return Comparison(
            a=pair.a,
            b=pair.b,
            cell=self.cell,
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
            margin=relative_margin(metric, pair.bound) if declared else None,
            one_look=verdict.one_look,
            proven=declared and not self.imported and verdict.verdict in ("better", "worse"),
            smallest_provable=relative_margin(metric, half),
            acceptable_margin=relative_margin(metric, verdict.acceptable_bound) if declared else None,
            sigma=pair.sigma,
            unseen_mode=unseen_mode(verdict),
            rounds=_rounds(pair, metric) if declared else None,
            modes=_modes(verdict, metric) if declared else None,
            **self.caveats(pair.a, pair.b),
            cross_check=_cross_check(pair, metric) if declared else None,
        )

    def _cost_s(self, pair: PairConclusion, pairs: int | None) -> float | None:
        """Return the machine time of `pairs` more pairs."""
        seconds = self.seconds.get(pair.a, 0.0) + self.seconds.get(pair.b, 0.0)
        known = pairs and seconds and not self.imported and pair.over is None
        return pairs * seconds if pairs and known else None

    def _source(self, pair: PairConclusion) -> Source:
        if self.imported:
            return "import"
        if pair.over is not None:
            return "hosts"
        return "fresh pairs" if pair.confirmed else "screening"


def _rounds(pair: PairConclusion, metric: Metric) -> Rounds | None:
    d = pair.in_blocks
    if not d.size:
        return None
    low, high = sorted_bounds(metric, t_interval(mean_of_differences(d), ALPHA))
    return Rounds(blocks=d.size, better=int((d > 0).sum()), worse=int((d < 0).sum()), low=low, high=high)


def _modes(verdict: PairVerdict, metric: Metric) -> Modes | None:
    found = verdict.modes
    if found is None:
        return None
    parts = ((metric.from_model(found.low), found.below), (metric.from_model(found.high), found.above))
    (low, below), (high, above) = sorted(parts)
    return Modes(low=low, high=high, below=below, above=above)


def pair_statement(comparison: Comparison) -> PairStatement:
    """Return the statement on a comparison in the declared metric."""
    decided = comparison.verdict != "undecided"
    return PairStatement(
        **{name: getattr(comparison, name) for name in PairFigures.model_fields},
        subject=comparison.a,
        relation=comparison.verdict,
        object=comparison.b,
        amount=comparison.ratio if comparison.ratio is not None else math.nan,
        certainty=("shown" if comparison.source == "import" else "proven") if decided else "open",
        margin=comparison.margin or 0.0,
        sigma=comparison.sigma if comparison.sigma and math.isfinite(comparison.sigma) else None,
        settled_by_pairs=comparison.needed_pairs,
        settled_by_s=comparison.needed_s,
    )


def unseen_mode(verdict: PairVerdict) -> float | None:
    """Return the largest share of runs at another level that the runs behind "equal" miss with a probability of 5 %."""
    return share_bound(verdict.runs) if verdict.verdict == "equal" else None


def _leaning(pair: PairConclusion) -> Literal["better", "worse"] | None:
    if pair.verdict.verdict != "equal" or not pair.verdict.interval.excludes_zero():
        return None
    return "better" if pair.verdict.estimate.value > 0 else "worse"


def sorted_bounds(metric: Metric, bounds: Interval) -> tuple[float | None, float | None]:
    """Return bounds in the metric's own units (ratios: of the ratio); None while unbounded."""
    if not (math.isfinite(bounds.low) and math.isfinite(bounds.high)):
        return None, None
    low, high = sorted((metric.from_model(bounds.low), metric.from_model(bounds.high)))
    return low, high


def relative_margin(metric: Metric, bound: float) -> float | None:
    if not math.isfinite(bound):
        return None
    return math.expm1(bound) if metric.scale == "ratio" else bound


def _cross_check(pair: PairConclusion, metric: Metric) -> float | None:
    """Return the second estimate if it disagrees with the first: the runs are then skewed or form groups."""
    check = pair.cross_check()
    return metric.from_model(check) if abs(check - pair.verdict.estimate.value) > pair.bound / 2 else None


# ---------------------------------------------------------------- hosts


def hosts_findings(evidence: Evidence, design: Design, conclusion: CellConclusion, cell: str) -> Iterator[HostsFinding]:
    """Yield levels of every stack on every host, and its difference there from the first of the ranking. Yields nothing
    for a campaign on one host."""
    table = conclusion.hosts
    if table is None or evidence.emulated:
        return
    against = conclusion.ranking[0] if conclusion.ranking else design.stacks[0]
    pairs = {p.a if p.b == against else p.b: p for p in conclusion.confirmed if against in (p.a, p.b)}
    yield HostsFinding(
        cell=cell,
        metric=design.metric.name,
        scale=design.metric.scale,
        against=against,
        rows=tuple(_rows(design, table, pairs, against)),
        spread={name: _tau(pair) for name, pair in pairs.items()},
    )


def _tau(pair: PairConclusion) -> float | None:
    return pair.over.tau if pair.over is not None and math.isfinite(pair.over.tau) else None


def _rows(design: Design, table: HostTable, pairs: dict[str, PairConclusion], against: str) -> Iterator[HostFinding]:
    claims = max(1, len(design.stacks) - 1) * len(table.hosts) * len(design.cells)
    for at, host in enumerate(table.hosts):
        for k, name in enumerate(design.stacks):
            level, runs = float(table.y[k, at]), int(table.runs[k, at])
            shown = design.metric.from_model(level) if math.isfinite(level) else None
            pair = pairs.get(name)
            own = _on(pair, host) if pair is not None else None
            if pair is None or own is None:
                yield HostFinding(host=host, stack=name, runs=runs, level=shown)
            else:
                yield _compared(design, own, name, runs, shown, ALPHA / claims, turned=pair.a == against)


def _on(pair: PairConclusion, host: str) -> HostDifference | None:
    return next((one for one in pair.over.hosts if one.host == host), None) if pair.over is not None else None


def _compared(
    design: Design,
    own: HostDifference,
    stack: str,
    runs: int,
    level: float | None,
    alpha: float,
    *,
    turned: bool,
) -> HostFinding:
    sign = -1 if turned else 1
    bounds = interval(own.estimate, alpha, CONFIRM_G) if own.estimate.se > 0 else Interval(-math.inf, math.inf, 1)
    ends = sorted((sign * bounds.low, sign * bounds.high))
    finite = math.isfinite(ends[0])
    verdict: Literal["better", "worse", "undecided"] = "undecided"
    if ends[0] > 0 or ends[1] < 0:
        verdict = "better" if ends[0] > 0 else "worse"
    metric = design.metric
    low, high = sorted(metric.from_model(end) for end in ends) if finite else (None, None)
    return HostFinding(
        host=own.host,
        stack=stack,
        runs=runs,
        level=level,
        ratio=metric.from_model(sign * own.estimate.value),
        low=low,
        high=high,
        verdict=verdict,
        disagrees=own.disagrees,
    )
