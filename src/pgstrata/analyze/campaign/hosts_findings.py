"""Results of each host of a campaign by itself, as findings: hosts x stacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from pgstrata.analyze.campaign.conclude import CellConclusion, PairConclusion
from pgstrata.analyze.campaign.evidence import Evidence
from pgstrata.analyze.findings import HostFinding, HostsFinding
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.hosts import HostDifference, HostTable
from pgstrata.analyze.stats.interval import ALPHA, CONFIRM_G, Interval, interval


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
