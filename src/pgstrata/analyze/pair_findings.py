"""A conclusion about a pair as a finding: in the metric's own units, with what more pairs would cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pgstrata.analyze.conclude import PairConclusion
from pgstrata.analyze.finding import Kind, Source
from pgstrata.analyze.findings import Comparison
from pgstrata.analyze.interval import Interval
from pgstrata.analyze.scale import Metric
from pgstrata.analyze.statements import PairStatement


@dataclass(frozen=True)
class PairFindings:
    """Of one cell."""

    cell: str
    imported: bool
    seconds: dict[str, float]
    """Machine time that a stack takes in a block."""

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
            margin=as_share(metric, pair.bound) if declared else None,
            one_look=verdict.one_look,
            proven=declared and pair.confirmed and verdict.verdict in ("better", "worse"),
            smallest_provable=as_share(metric, half),
            acceptable_margin=as_share(metric, verdict.acceptable_bound) if declared else None,
            sigma=pair.sigma,
            cross_check=_cross_check(pair, metric) if declared else None,
        )

    def _cost_s(self, pair: PairConclusion, pairs: int | None) -> float | None:
        """Machine time of so many more pairs."""
        seconds = self.seconds.get(pair.a, 0.0) + self.seconds.get(pair.b, 0.0)
        known = pairs and seconds and not self.imported and pair.over is None
        return pairs * seconds if pairs and known else None

    def _source(self, pair: PairConclusion) -> Source:
        if self.imported:
            return "import"
        if pair.over is not None:
            return "hosts"
        return "fresh pairs" if pair.confirmed else "screening"


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


def _leaning(pair: PairConclusion) -> Literal["better", "worse"] | None:
    if pair.verdict.verdict != "equal" or not pair.verdict.interval.excludes_zero():
        return None
    return "better" if pair.verdict.estimate.value > 0 else "worse"


def sorted_bounds(metric: Metric, bounds: Interval) -> tuple[float | None, float | None]:
    """Bounds in the metric's own units (ratios: of the ratio); None while unbounded."""
    if not (math.isfinite(bounds.low) and math.isfinite(bounds.high)):
        return None, None
    low, high = sorted((metric.from_model(bounds.low), metric.from_model(bounds.high)))
    return low, high


def as_share(metric: Metric, bound: float) -> float | None:
    if not math.isfinite(bound):
        return None
    return math.expm1(bound) if metric.scale == "ratio" else bound


def _cross_check(pair: PairConclusion, metric: Metric) -> float | None:
    """The two estimates should agree; where they do not, the runs are skewed or fall into groups."""
    check = pair.cross_check()
    return metric.from_model(check) if abs(check - pair.verdict.estimate.value) > pair.bound / 2 else None
