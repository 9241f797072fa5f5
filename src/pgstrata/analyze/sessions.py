"""Campaigns against one another: what a stack gained or lost between two sessions, the machine's own drift apart.

Between two days, hosts or kernels everything moves, and how far cannot be told from the stack itself: two intervals
that do not overlap may show nothing but that. So a stack is compared with a reference stack that both sessions ran. In
every block that ran both, x = y_stack - y_reference (y the logarithm, or the value of metrics without one); what is
common to a block or a session drops out. The difference between sessions A and B is

    d = mean(x_B) - mean(x_A),  se^2 = s_A^2 / n_A + s_B^2 / n_B,  nu by Welch and Satterthwaite

with the anytime interval of `interval` (n = 1 / (1 / n_A + 1 / n_B), g as in screening), alpha shared by all rows.
Welch, Biometrika 34, 1947. What moved the stack but not the reference is the difference; whether it was the stack or
something that meets the one and not the other, no figure can tell. Without a reference in common nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np

from pgstrata.analyze.findings import Findings, StackFinding
from pgstrata.analyze.interval import ALPHA, SCREEN_G, Estimate, interval
from pgstrata.analyze.scale import metric_of
from pgstrata.errors import UsageError
from pgstrata.record.reader import CampaignData
from pgstrata.record.redact import MACHINE_ID, machine_stand_in
from pgstrata.record.source import DAMAGED

Blocks = Mapping[int, float]
"""The value of a run by its block, on the scale of the model."""
Verdict = Literal["higher", "lower", "equal", "undecided"]
Refusal = Literal["no stack in common", "no reference", "other metric", "unpaired"]
LEAST_BLOCKS = 2
_UNKNOWN = "unknown"
"""A fact that a record does not have, or that could not be read."""


@dataclass(frozen=True)
class Session:
    """One campaign: what another session is compared with."""

    name: str
    at: datetime
    """When the campaign was begun; of an import, when it was imported."""
    metric: str
    margin: float
    paired: bool
    """Whether its runs are ordered in blocks."""
    specs: Mapping[str, str]
    """Specification by name of the stack, in the order of the campaign."""
    values: Mapping[str, Mapping[str, Blocks]]
    """By name of the stack and cell."""
    facts: Mapping[str, str]
    """Those that are checked."""


def session_of(name: str, data: CampaignData, findings: Findings) -> Session:
    """A campaign by what was found in it."""
    metric = findings.campaign.primary
    blocks = {t.id: t.trial.block for t in data.trials}
    values: dict[str, dict[str, Blocks]] = {s.name: {} for s in findings.stacks}
    for stack in findings.stacks:
        values[stack.name][stack.cell] = _by_block(stack, metric, blocks)
    return Session(
        name=name,
        at=_moment(data),
        metric=metric,
        margin=findings.campaign.margin,
        paired=data.record.paired,
        specs={s.name: s.spec for s in findings.stacks},
        values=values,
        facts=next((dict(t.facts.checked) for t in data.trials if t.valid and t.facts is not None), {}),
    )


def _moment(data: CampaignData) -> datetime:
    try:
        at = datetime.fromisoformat(data.record.created)
    except ValueError:
        raise UsageError(
            f"{data.source.text}/campaign.json: {data.record.created!r} is no time", hint=DAMAGED
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Moved:
    """One stack in one cell: session b against session a. Ratios, or differences where the metric has no logarithm."""

    stack: str
    cell: str
    raw: float
    """What it moved by, drift and all."""
    reference: float
    """What the reference moved by."""
    change: float
    """The one over the other."""
    low: float | None
    high: float | None
    level: float
    blocks_a: int
    blocks_b: int
    verdict: Verdict


@dataclass(frozen=True)
class SessionComparison:
    """Session b against session a."""

    a: str
    b: str
    metric: str
    margin: float
    reference: str | None
    moved: tuple[Moved, ...]
    unmatched: tuple[str, ...]
    """Stacks of one session alone, or of another specification in the other."""
    differing: tuple[tuple[str, str, str], ...]
    """Checked facts that are not the same: name, value in a, value in b."""
    refused: Refusal | None = None


def session_estimate(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """The difference of the means of two sessions of paired differences."""
    first, second = np.asarray(a), np.asarray(b)
    parts = [float(x.var(ddof=1)) / x.size for x in (first, second)]
    variance = sum(parts)
    spread = sum(part**2 / (x.size - 1) for part, x in zip(parts, (first, second), strict=True))
    nu = variance**2 / spread if spread > 0 else float(first.size + second.size - 2)
    count = 1 / (1 / first.size + 1 / second.size)
    return Estimate(float(second.mean() - first.mean()), math.sqrt(variance), nu, count)


def paired(stack: Blocks, reference: Blocks) -> list[float]:
    """Stack against reference in every block that ran both."""
    return [stack[block] - reference[block] for block in sorted(stack.keys() & reference.keys())]


def compare_sessions(a: Session, b: Session, reference: str | None = None) -> SessionComparison:
    """Session b against session a; `reference` is chosen by the number of its runs where it is not given."""
    common = common_stacks((a, b))
    unmatched = tuple(sorted((a.specs.keys() | b.specs.keys()) - set(common)))
    chosen = reference if reference is not None else reference_of((a, b), common)
    refused: Refusal | None = None
    if b.metric != a.metric:
        refused = "other metric"
    elif not common:
        refused = "no stack in common"
    elif not (a.paired and b.paired):
        refused = "unpaired"
    elif chosen is None or chosen not in common or len(common) < 2:
        refused = "no reference"
    moved = () if refused or chosen is None else _rows(a, b, common, chosen)
    if not refused and not moved:
        refused = "no reference"
    return SessionComparison(
        a.name,
        b.name,
        a.metric,
        a.margin,
        None if refused else chosen,
        moved,
        unmatched,
        differing_facts(a, b),
        refused,
    )


def common_stacks(sessions: Sequence[Session]) -> tuple[str, ...]:
    """Names that stand for the same specification in all, in the order of the first."""
    first, *others = sessions
    return tuple(name for name, spec in first.specs.items() if all(s.specs.get(name) == spec for s in others))


def reference_of(sessions: Sequence[Session], common: Sequence[str]) -> str | None:
    """The common stack that ran in most blocks of the session where it ran least; ties go by name."""

    def least(name: str) -> int:
        return min(sum(len(values) for values in one.values[name].values()) for one in sessions)

    return min(common, key=lambda name: (-least(name), name), default=None)


def _by_block(stack: StackFinding, metric: str, blocks: Mapping[str, int]) -> Blocks:
    found = stack.metrics.get(metric)
    if found is None or len(found.runs) != len(stack.trials):
        return {}
    ratio = metric_of(metric).scale == "ratio"
    pairs = ((blocks[t], v) for t, v in zip(stack.trials, found.runs, strict=True) if t in blocks and v is not None)
    return {block: math.log(value) if ratio else value for block, value in pairs if not ratio or value > 0}


def _rows(a: Session, b: Session, common: Sequence[str], reference: str) -> tuple[Moved, ...]:
    metric, references = a.metric, [one.values[reference] for one in (a, b)]
    pairs = []
    for name in (one for one in common if one != reference):
        values = [one.values[name] for one in (a, b)]
        for cell in (cell for cell in values[0] if all(cell in one for one in (values[1], *references))):
            x, y = (paired(v[cell], r[cell]) for v, r in zip(values, references, strict=True))
            if min(len(x), len(y)) >= LEAST_BLOCKS:
                pairs.append((name, cell, x, y, _shift(values, cell), _shift(references, cell)))
    alpha = ALPHA / max(1, len(pairs))
    bound = _bound(metric, a.margin)
    return tuple(_moved(name, cell, x, y, raw, moved, alpha, metric, bound) for name, cell, x, y, raw, moved in pairs)


def _shift(values: Sequence[Mapping[str, Blocks]], cell: str) -> float:
    first, second = (np.mean(list(one[cell].values())) for one in values)
    return float(second - first)


def shown_by(metric: str) -> Callable[[float], float]:
    """What makes a difference of the model a figure: a ratio, or the difference itself."""
    return math.exp if metric_of(metric).scale == "ratio" else float


def _bound(metric: str, margin: float) -> float:
    """What counts as equal; metrics without a logarithm have no margin."""
    return math.log1p(margin) if metric_of(metric).scale == "ratio" else 0.0


def _moved(
    stack: str,
    cell: str,
    x: Sequence[float],
    y: Sequence[float],
    raw: float,
    reference: float,
    alpha: float,
    metric: str,
    bound: float,
) -> Moved:
    estimate = session_estimate(x, y)
    found = interval(estimate, alpha, SCREEN_G)
    bounded = math.isfinite(found.low)
    shown = shown_by(metric)
    verdict: Verdict = "undecided"
    if bounded and found.inside(bound):
        verdict = "equal"
    elif bounded and found.excludes_zero():
        verdict = "higher" if found.low > 0 else "lower"
    return Moved(
        stack, cell, shown(raw), shown(reference), shown(estimate.value),
        shown(found.low) if bounded else None, shown(found.high) if bounded else None, 1 - alpha,
        len(x), len(y), verdict,
    )  # fmt: skip


def differing_facts(a: Session, b: Session) -> tuple[tuple[str, str, str], ...]:
    """Checked facts that are not the same: name, value in a, value in b. A machine is the same one in a bundle that it
    was taken out of."""
    both = {name: (a.facts.get(name, _UNKNOWN), b.facts.get(name, _UNKNOWN)) for name in [*a.facts, *b.facts]}
    if _same_machine(a.facts.get(MACHINE_ID), b.facts.get(MACHINE_ID)):
        both.pop(MACHINE_ID)
    return tuple((name, *values) for name, values in both.items() if values[0] != values[1])


def _same_machine(a: str | None, b: str | None) -> bool:
    """Whether ids are of one machine, of which one record may have what stands for it."""
    return a is not None and b is not None and (machine_stand_in(a) == b or a == machine_stand_in(b))
