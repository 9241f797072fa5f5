"""A stack over many sessions: its level against the reference stack, and the times of its changes.

In each session d = mean over blocks of y_stack - y_reference, as in `comparison`: effects common to all stacks of a
session cancel. Effects on one stack alone in a session (other places of its files, another memory layout) remain, and
blocks of a session share them. The unit of evidence is therefore the session, however many blocks it has. `shifts`
finds shifts of the series of d. Alpha is divided among all series; the same holds for that of the intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from statistics import fmean
from typing import Literal

from pgstrata.analyze.sessions.comparison import (
    Session,
    SessionUncounted,
    common_stacks,
    differing_facts,
    paired,
    reference_of,
    shown_by,
    uncounted_in,
)
from pgstrata.analyze.stats.interval import ALPHA, CONFIRM_G, interval
from pgstrata.analyze.stats.shifts import Shift, fewest, find_shifts

LeftOut = Literal["other metric", "unpaired", "without the reference", "the same as another"]
Refusal = Literal["too few sessions", "no reference", "no second stack"]


@dataclass(frozen=True)
class SessionPoint:
    """One stack in one cell of one session. Ratios, or differences where the metric has no logarithm."""

    session: int
    value: float
    """Value relative to the reference."""
    pairs: tuple[float, ...]
    """Values by block."""
    raw: float
    """Values of the stack and of the reference by themselves, in the metric (geometric means of ratios)."""
    reference: float


@dataclass(frozen=True)
class Level:
    """Level around which points of a series lie."""

    first: int
    last: int
    """First and last session."""
    value: float


@dataclass(frozen=True)
class Change:
    """A change from one level to another."""

    after: int
    before: int
    """Sessions around the change: it lies after the first and before the second."""
    told: int
    """The session in which it was detected."""
    change: float
    low: float | None
    high: float | None
    level: float
    rose: bool
    raw: float
    """Movement of the stack's own values, including drift; and that of the reference."""
    reference: float
    shared: bool
    """True if every other stack changed against the reference at that time, in the same direction."""
    differing: tuple[tuple[str, str, str], ...]
    """Checked facts that differ in `after` and `before`."""


@dataclass(frozen=True)
class StackHistory:
    """One stack in one cell."""

    stack: str
    cell: str
    points: tuple[SessionPoint, ...]
    levels: tuple[Level, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class PastSession:
    name: str
    at: datetime


@dataclass(frozen=True)
class History:
    """Sessions in the order of time; `session` in the types below counts them from 0."""

    metric: str
    margin: float
    alpha: float
    """Probability that a series without any change shows one."""
    fewest: int
    """Minimum number of sessions for a change to be reported, however large."""
    sessions: tuple[PastSession, ...]
    reference: str | None
    series: tuple[StackHistory, ...]
    unmatched: tuple[str, ...]
    """Stacks that occur in one session only, or whose sessions with an older specification are not counted."""
    left_out: tuple[tuple[str, LeftOut], ...]
    uncounted: tuple[SessionUncounted, ...] = ()
    """Notable transactions of the reference and of the stacks of the series."""
    refused: Refusal | None = None


@dataclass(frozen=True)
class _Row:
    """One stack in one cell, on the scale of the model."""

    stack: str
    cell: str
    sessions: tuple[int, ...]
    pairs: tuple[tuple[float, ...], ...]
    raw: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def means(self) -> tuple[float, ...]:
        return tuple(fmean(one) for one in self.pairs)


def trace_history(sessions: Sequence[Session], reference: str | None = None) -> History:
    """Trace all stacks except the reference over all sessions with the reference; by default it is chosen as in
    `comparison`."""
    ordered = sorted(sessions, key=lambda one: (one.at, one.name))
    metric, margin = ordered[-1].metric, ordered[-1].margin
    usable, left_out = _usable(ordered, metric)
    chosen = reference
    if chosen is None and usable:
        chosen = reference_of(usable, common_stacks(usable))
    if chosen is not None:
        held = _holders(usable, chosen)
        left_out += [(one.name, "without the reference") for one in usable if one not in held]
        usable = held
    rows = list(_rows(usable, chosen)) if chosen is not None else []
    refused: Refusal | None = None
    if chosen is None:
        refused = "no reference"
    elif len(usable) < 2:
        refused = "too few sessions"
    elif not rows:
        refused = "no second stack"
    alpha = ALPHA / max(1, len(rows))
    return History(
        metric=metric,
        margin=margin,
        alpha=alpha,
        fewest=fewest(alpha),
        sessions=tuple(PastSession(one.name, one.at) for one in usable),
        reference=None if refused else chosen,
        series=() if refused else _mark_shared([_series(row, usable, alpha, metric) for row in rows]),
        unmatched=_unmatched(usable, rows, chosen),
        left_out=tuple(left_out),
        uncounted=uncounted_in(usable, {(name, row.cell) for row in rows for name in (row.stack, chosen or "")}),
        refused=refused,
    )


def _usable(ordered: Sequence[Session], metric: str) -> tuple[list[Session], list[tuple[str, LeftOut]]]:
    usable: list[Session] = []
    left_out: list[tuple[str, LeftOut]] = []
    for one in ordered:
        if one.metric != metric:
            left_out.append((one.name, "other metric"))
        elif not one.paired:
            left_out.append((one.name, "unpaired"))
        elif any(one.at == other.at and one.values == other.values for other in usable):
            left_out.append((one.name, "the same as another"))
        else:
            usable.append(one)
    return usable, left_out


def _holders(sessions: Sequence[Session], reference: str) -> list[Session]:
    """Return the sessions that ran the reference, by the specification of the last one that did."""
    ran = [one for one in sessions if any(one.values.get(reference, {}).values())]
    return [one for one in ran if one.specs[reference] == ran[-1].specs[reference]]


def _rows(sessions: Sequence[Session], reference: str) -> Iterator[_Row]:
    """Yield the rows. Another specification is another stack: the last one's counts."""
    specs = {name: spec for one in sessions for name, spec in one.specs.items() if name != reference}
    for name, spec in specs.items():
        holding = [(at, one) for at, one in enumerate(sessions) if one.specs.get(name) == spec]
        for cell in dict.fromkeys(cell for _, one in holding for cell in one.values[name]):
            row = _row(name, cell, holding, reference)
            if len(row.sessions) > 1:
                yield row


def _row(name: str, cell: str, holding: Sequence[tuple[int, Session]], reference: str) -> _Row:
    both = [(at, one.values[name].get(cell, {}), one.values[reference].get(cell, {})) for at, one in holding]
    found = [(at, stack, other) for at, stack, other in both if stack.keys() & other.keys()]
    return _Row(
        name,
        cell,
        tuple(at for at, _, _ in found),
        tuple(tuple(paired(stack, other)) for _, stack, other in found),
        tuple(fmean(stack.values()) for _, stack, _ in found),
        tuple(fmean(other.values()) for _, _, other in found),
    )


def _series(row: _Row, sessions: Sequence[Session], alpha: float, metric: str) -> StackHistory:
    shown, means = shown_by(metric), row.means
    shifts = find_shifts(means, alpha)
    edges = [0, *(shift.at for shift in shifts), len(means)]
    spans = list(pairwise(edges))
    return StackHistory(
        row.stack,
        row.cell,
        tuple(
            SessionPoint(at, shown(mean), tuple(shown(one) for one in pairs), shown(raw), shown(reference))
            for at, mean, pairs, raw, reference in zip(
                row.sessions, means, row.pairs, row.raw, row.reference, strict=True
            )
        ),
        tuple(Level(row.sessions[a], row.sessions[b - 1], shown(fmean(means[a:b]))) for a, b in spans),
        tuple(
            _change(row, sessions, shift, before, after, alpha, metric)
            for shift, (before, after) in zip(shifts, pairwise(spans), strict=True)
        ),
    )


def _change(
    row: _Row,
    sessions: Sequence[Session],
    shift: Shift,
    before: tuple[int, int],
    after: tuple[int, int],
    alpha: float,
    metric: str,
) -> Change:
    shown, found = shown_by(metric), interval(shift.estimate, alpha, CONFIRM_G)
    bounded = found.high < float("inf")
    first, last = row.sessions[shift.earliest - 1], row.sessions[shift.latest]
    raw, reference = (fmean(y[slice(*after)]) - fmean(y[slice(*before)]) for y in (row.raw, row.reference))
    return Change(
        after=first,
        before=last,
        told=row.sessions[shift.told],
        change=shown(shift.estimate.value),
        low=shown(found.low) if bounded else None,
        high=shown(found.high) if bounded else None,
        level=1 - alpha,
        rose=shift.estimate.value > 0,
        raw=shown(raw),
        reference=shown(reference),
        shared=False,
        differing=differing_facts(sessions[first], sessions[last]),
    )


def _mark_shared(series: Sequence[StackHistory]) -> tuple[StackHistory, ...]:
    """Mark shared changes: a change of the reference appears as a simultaneous change of all other stacks."""

    def marked(one: StackHistory, change: Change) -> Change:
        others = [other for other in series if other.cell == one.cell and other.stack != one.stack]
        shared = bool(others) and all(any(_alike(change, c) for c in other.changes) for other in others)
        return replace(change, shared=shared)

    return tuple(replace(one, changes=tuple(marked(one, change) for change in one.changes)) for one in series)


def _alike(a: Change, b: Change) -> bool:
    """Return True if two changes may be simultaneous and have the same direction."""
    return a.after < b.before and b.after < a.before and a.rose == b.rose


def _unmatched(sessions: Sequence[Session], rows: Sequence[_Row], reference: str | None) -> tuple[str, ...]:
    specs: dict[str, set[str]] = {}
    for one in sessions:
        for name, spec in one.specs.items():
            specs.setdefault(name, set()).add(spec)
    whole = {row.stack for row in rows if len(specs[row.stack]) == 1}
    return tuple(sorted(specs.keys() - whole - {reference}))
