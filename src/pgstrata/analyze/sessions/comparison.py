"""Comparison of campaigns: gain or loss of a stack between two sessions, separated from the drift of the machine.

Between two days, hosts or kernels everything moves, and the stack itself does not show by how much: two intervals may
fail to overlap for that reason alone. So a stack is compared with a reference stack that both sessions ran. In every
block that ran both, x = y_stack - y_reference (y the logarithm, or the value of metrics without one); effects common to
a block or a session cancel. The difference between sessions A and B is

    d = mean(x_B) - mean(x_A),  se^2 = s_A^2 / n_A + s_B^2 / n_B,  nu by Welch and Satterthwaite

with the anytime interval of `interval` (n = 1 / (1 / n_A + 1 / n_B), g as in screening), alpha shared by all rows.
Welch, Biometrika 34, 1947.

Blocks of a session share gains and losses of a stack in it (other places of its files, another memory layout), so that
interval is about these two sessions. The other common stacks, including the reference, show how much sessions differ:
s^2 is the variance of their d (0 of the reference), each as far from its true change as the judged stack. A claim needs
the interval above and Student's, d +- t(1 - alpha / 2; K - 2) s sqrt 2 with K stacks in common, so the interval is the
hull of both. With K = 2 s is unknown, and no claim is made. The reference itself moved if it differs from the mean of
the others by their t: 0 - mean(d), with s of the others times sqrt(1 + 1 / (K - 1)).

The difference is the movement of the stack without that of the reference. Its cause may be the stack or anything that
affects only one of the two; figures cannot separate these. Without a common reference there is no result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import numpy as np

from pgstrata.analyze.campaign.caveats import notable_in
from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.finding import Transactions, Uncounted
from pgstrata.analyze.findings import Findings, StackFinding
from pgstrata.analyze.stats.interval import ALPHA, SCREEN_G, Estimate, interval, t_interval
from pgstrata.errors import UsageError
from pgstrata.record.reader import CampaignData
from pgstrata.record.redact import MACHINE_ID, machine_stand_in
from pgstrata.record.source import DAMAGED

Blocks = Mapping[int, float]
"""The value of a run by its block, on the scale of the model."""
Verdict = Literal["higher", "lower", "equal", "undecided", "unclaimed"]
"""Verdict on a change; `unclaimed` if no other stack shows how much sessions differ."""
Refusal = Literal["no stack in common", "no reference", "other metric", "unpaired"]
LEAST_BLOCKS = 2
_IMPORTED = "imported"
"""Specification of a stack that an import knows by name alone."""
_UNKNOWN = "unknown"
"""Marks a fact that a record does not have, or that could not be read."""


@dataclass(frozen=True)
class Session:
    """One campaign, as compared with others."""

    name: str
    at: datetime
    """Start of the campaign; time of the import for an imported one."""
    metric: str
    margin: float
    paired: bool
    """True if its runs are ordered in blocks."""
    specs: Mapping[str, str]
    """Specification by name of the stack, in the order of the campaign."""
    values: Mapping[str, Mapping[str, Blocks]]
    """Values by name of the stack and cell."""
    facts: Mapping[str, str]
    """Checked facts."""
    uncounted: Mapping[str, Uncounted] = field(default_factory=dict)
    """Notable transactions of the stacks by cell."""
    unreadable: int = 0
    """Number of trials that do not count because they are damaged."""


def session_of(name: str, data: CampaignData, findings: Findings) -> Session:
    """Convert a campaign and its findings to a session."""
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
        uncounted={cell.id: notable_in(cell.id, findings.stacks) for cell in findings.cells},
        unreadable=len(data.unreadable),
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
    """Total movement, including drift."""
    reference: float
    """Movement of the reference."""
    change: float
    """`raw` over `reference`."""
    low: float | None
    high: float | None
    level: float
    blocks_a: int
    blocks_b: int
    verdict: Verdict


@dataclass(frozen=True)
class SessionUncounted:
    """Notable transactions of one stack in one cell of a session: figures are of committed transactions alone."""

    session: int
    """Counted from 0."""
    stack: str
    cell: str
    transactions: Transactions


def uncounted_in(sessions: Sequence[Session], rows: Collection[tuple[str, str]]) -> tuple[SessionUncounted, ...]:
    """Return the notable transactions of sessions, of the given stacks and cells."""
    return tuple(
        SessionUncounted(at, name, cell, transactions)
        for at, one in enumerate(sessions)
        for cell, by_stack in one.uncounted.items()
        for name, transactions in by_stack.items()
        if (name, cell) in rows
    )


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
    """Stacks of only one session, or with different specifications in the two."""
    differing: tuple[tuple[str, str, str], ...]
    """Checked facts that differ: name, value in a, value in b."""
    reference_moved: tuple[tuple[str, float], ...] = ()
    """Cells in which the reference moved relative to the other stacks, and by how much."""
    uncounted: tuple[SessionUncounted, ...] = ()
    """Notable transactions of the reference and of the stacks that moved; session 0 is a."""
    refused: Refusal | None = None


def session_estimate(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Estimate the difference of the means of two sessions of paired differences."""
    first, second = np.asarray(a), np.asarray(b)
    parts = [float(x.var(ddof=1)) / x.size for x in (first, second)]
    variance = sum(parts)
    spread = sum(part**2 / (x.size - 1) for part, x in zip(parts, (first, second), strict=True))
    nu = variance**2 / spread if spread > 0 else float(first.size + second.size - 2)
    count = 1 / (1 / first.size + 1 / second.size)
    return Estimate(float(second.mean() - first.mean()), math.sqrt(variance), nu, count)


def between_sessions(value: float, others: Sequence[float]) -> Estimate:
    """Estimate a difference between sessions with the scatter of the other stacks' differences; no bounds from a single
    one."""
    nu = len(others) - 1
    se = math.sqrt(2 * float(np.var(others, ddof=1))) if nu else math.nan
    return Estimate(value, se, nu, 1)


def moved_against(others: Sequence[float]) -> float | None:
    """Return the movement of the reference against the other stacks, given their differences; None if it did not
    move."""
    if len(others) < 2:
        return None
    d = np.asarray(others)
    away = Estimate(-float(d.mean()), float(d.std(ddof=1)) * math.sqrt(1 + 1 / d.size), d.size - 1, 1)
    return away.value if t_interval(away, ALPHA).excludes_zero() else None


def paired(stack: Blocks, reference: Blocks) -> list[float]:
    """Return stack minus reference in every block that ran both."""
    return [stack[block] - reference[block] for block in sorted(stack.keys() & reference.keys())]


def compare_sessions(a: Session, b: Session, reference: str | None = None) -> SessionComparison:
    """Compare session b with session a; by default `reference` is chosen by its number of runs."""
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
        tuple(_reference_moves(moved, a.metric)),
        uncounted_in((a, b), {(name, one.cell) for one in moved for name in (one.stack, chosen or "")}),
        refused,
    )


def common_stacks(sessions: Sequence[Session]) -> tuple[str, ...]:
    """Return the names with the same specification in all sessions, in the order of the first. An import without a
    specification knows its stacks by name."""
    return tuple(
        name
        for name in sessions[0].specs
        if all(name in one.specs for one in sessions) and len({one.specs[name] for one in sessions} - {_IMPORTED}) <= 1
    )


def reference_of(sessions: Sequence[Session], common: Sequence[str]) -> str | None:
    """Return the common stack whose smallest number of blocks per session is largest; ties go by name."""

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
    return tuple(
        _moved(name, cell, session_estimate(x, y), others, (len(x), len(y)), raw, moved, alpha, metric, bound)
        for name, cell, x, y, raw, moved in pairs
        for others in [[0.0, *(session_estimate(v, w).value for n, c, v, w, _, _ in pairs if c == cell and n != name)]]
    )


def _reference_moves(moved: Sequence[Moved], metric: str) -> Iterator[tuple[str, float]]:
    to_model = math.log if metric_of(metric).scale == "ratio" else float
    for cell in dict.fromkeys(one.cell for one in moved):
        away = moved_against([to_model(one.change) for one in moved if one.cell == cell])
        if away is not None:
            yield cell, shown_by(metric)(away)


def _shift(values: Sequence[Mapping[str, Blocks]], cell: str) -> float:
    first, second = (np.mean(list(one[cell].values())) for one in values)
    return float(second - first)


def shown_by(metric: str) -> Callable[[float], float]:
    """Return the conversion of a model difference to a figure: a ratio, or the difference itself."""
    return math.exp if metric_of(metric).scale == "ratio" else float


def _bound(metric: str, margin: float) -> float:
    """Bound of equality; metrics without a logarithm have no margin."""
    return math.log1p(margin) if metric_of(metric).scale == "ratio" else 0.0


def _moved(
    stack: str,
    cell: str,
    estimate: Estimate,
    others: Sequence[float],
    blocks: tuple[int, int],
    raw: float,
    reference: float,
    alpha: float,
    metric: str,
    bound: float,
) -> Moved:
    between = between_sessions(estimate.value, others)
    found = interval(estimate, alpha, SCREEN_G)
    if between.nu:
        found = found.hull(t_interval(between, alpha))
    bounded = math.isfinite(found.low)
    shown = shown_by(metric)
    verdict: Verdict = "undecided" if between.nu else "unclaimed"
    if between.nu and bounded and found.inside(bound):
        verdict = "equal"
    elif between.nu and bounded and found.excludes_zero():
        verdict = "higher" if found.low > 0 else "lower"
    return Moved(
        stack, cell, shown(raw), shown(reference), shown(estimate.value),
        shown(found.low) if bounded else None, shown(found.high) if bounded else None, 1 - alpha,
        *blocks, verdict,
    )  # fmt: skip


def differing_facts(a: Session, b: Session) -> tuple[tuple[str, str, str], ...]:
    """Return the checked facts that differ: name, value in a, value in b. A machine in a bundle is the same machine as
    the original."""
    both = {name: (a.facts.get(name, _UNKNOWN), b.facts.get(name, _UNKNOWN)) for name in [*a.facts, *b.facts]}
    if _same_machine(a.facts.get(MACHINE_ID), b.facts.get(MACHINE_ID)):
        both.pop(MACHINE_ID)
    return tuple((name, *values) for name, values in both.items() if values[0] != values[1])


def _same_machine(a: str | None, b: str | None) -> bool:
    """Return True if ids are of one machine; one record may have an alias for it."""
    return a is not None and b is not None and (machine_stand_in(a) == b or a == machine_stand_in(b))
