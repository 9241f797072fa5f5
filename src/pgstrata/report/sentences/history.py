"""Several campaigns in words and as plain values: two of them, or a stack over many, which has a page too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pgstrata import __version__
from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.sessions.comparison import Moved, SessionComparison, SessionUncounted
from pgstrata.analyze.sessions.history import Change, History, LeftOut, Refusal, StackHistory
from pgstrata.report.html import page_environment, page_style
from pgstrata.report.sentences.figures import UNBOUNDED, render_count, render_metric, render_percent
from pgstrata.report.sentences.statements import shares_words

# ---------------------------------------------------------------- two campaigns

_NOT_COMPARED = {
    "no stack in common": "they have no stack in common",
    "no reference": "no second stack ran in enough blocks of both, to tell the drift between them",
    "other metric": "they are about different metrics",
    "unpaired": "an import without blocks cannot be compared over sessions",
}
_VERDICTS = {
    "higher": "more than the reference, proven",
    "lower": "less than the reference, proven",
    "equal": "practically as the reference",
    "undecided": "undecided",
    "unclaimed": "no claim, because with two stacks in common nothing tells how far sessions lie apart",
}


def comparison_lines(found: SessionComparison) -> Iterator[str]:
    """Yield all lines, the drift first."""
    yield f"{found.b} against {found.a}, {metric_of(found.metric).title.lower()}"
    if found.refused is not None:
        yield f"not compared: {_NOT_COMPARED[found.refused]}"
    else:
        yield f"reference: {found.reference}; what moved it too is not counted"
    for one in found.moved:
        yield f"  {moved_words(one, found)}"
    for missed in found.uncounted:
        yield f"  {uncounted_line(missed, (found.a, found.b))}"
    for cell, moved in found.reference_moved:
        yield f"the reference itself moved against the other stacks in {cell}: {change_words(moved, found.metric)}"
        yield "HINT: name another reference with --reference"
    for name, a, b in found.differing:
        yield f"differs: {name}: {a} | {b}"
    if found.unmatched:
        yield f"in one of them alone, or of another specification: {', '.join(found.unmatched)}"


def moved_words(one: Moved, found: SessionComparison) -> str:
    """Describe the movement of one stack in one cell."""
    bounds = "no bounds yet"
    if one.low is not None and one.high is not None:
        bounds = f"{change_words(one.low, found.metric)} … {change_words(one.high, found.metric)}"
    moved, drift = change_words(one.raw, found.metric), change_words(one.reference, found.metric)
    return (
        f"{one.stack}, {one.cell}: {moved}, the reference {drift}: {change_words(one.change, found.metric)} ({bounds}) "
        f"in {one.blocks_a} and {one.blocks_b} blocks: {_VERDICTS[one.verdict]}"
    )


def comparison_value(found: SessionComparison) -> dict[str, Any]:
    """Return plain values for programs, with the sentences."""
    value = asdict(found)
    for shown, one in zip(value["moved"], found.moved, strict=True):
        shown["sentence"] = moved_words(one, found)
    return {**value, "uncounted": uncounted_value(found.uncounted, (found.a, found.b))}


def uncounted_line(one: SessionUncounted, names: Sequence[str]) -> str:
    """Return `xfs, c16: committed transactions alone count: in monday 12 % failed`."""
    return (
        f"{one.stack}, {one.cell}: committed transactions alone count: in {names[one.session]} "
        f"{shares_words(one.transactions)}"
    )


def uncounted_value(found: Sequence[SessionUncounted], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return notable transactions as plain values for programs, with the sentences."""
    return [
        {
            "session": one.session,
            "stack": one.stack,
            "cell": one.cell,
            **one.transactions.model_dump(),
            "sentence": uncounted_line(one, names),
        }
        for one in found
    ]


def change_words(value: float, metric: str) -> str:
    """Return `+3.1 %`; a difference if the metric has no logarithm."""
    if metric_of(metric).scale == "difference":
        return render_metric(value, metric_of(metric))
    return f"{'+' if value > 1 else ''}{render_percent(value - 1)}"


# ---------------------------------------------------------------- the picture

# The picture of a stack over many sessions: every block, the mean of each session, levels, and their changes.
#
# It is stretched to the width of the page, so words are outside it, and dots are strokes of zero length with round
# ends.

WIDTH, HEIGHT = 1000.0, 200.0
ROOM = 0.06
"""Margin above, below and at the sides, as a share."""


@dataclass(frozen=True)
class Box:
    """Range of a change of level."""

    x: float
    width: float


@dataclass(frozen=True)
class PastPicture:
    """Paths in a box of WIDTH x HEIGHT."""

    pairs: str
    means: str
    levels: str
    zero: float | None
    """Height of no difference, if it is in the picture."""
    changes: tuple[Box, ...]
    top: str
    bottom: str
    words: str
    """The same in words, for readers who cannot see it."""


def draw_past(one: StackHistory, found: History) -> PastPicture:
    """Draw one stack in one cell."""
    seconds = [session.at.timestamp() for session in found.sessions]
    values = [value for point in one.points for value in point.pairs]
    across = _Scale.over(seconds, WIDTH)
    up = _Scale.over(values, HEIGHT)
    neutral = 1.0 if metric_of(found.metric).scale == "ratio" else 0.0

    def x(session: int) -> float:
        return across.place(seconds[session])

    def y(value: float) -> float:
        return round(HEIGHT - up.place(value), 1)

    return PastPicture(
        pairs=_dots((x(point.session), y(value)) for point in one.points for value in point.pairs),
        means=_dots((x(point.session), y(point.value)) for point in one.points),
        levels=" ".join(f"M{x(level.first)} {y(level.value)}H{x(level.last)}" for level in one.levels),
        zero=y(neutral) if up.first <= neutral <= up.last else None,
        changes=tuple(Box(x(c.after), round(x(c.before) - x(c.after), 1)) for c in one.changes),
        top=change_words(up.last, found.metric),
        bottom=change_words(up.first, found.metric),
        words=f"{one.stack} against {found.reference}: "
        + ", then ".join(change_words(level.value, found.metric) for level in one.levels),
    )


def _dots(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"M{x} {y}h0" for x, y in places)


@dataclass(frozen=True)
class _Scale:
    first: float
    last: float
    length: float

    @classmethod
    def over(cls, values: Iterable[float], length: float) -> _Scale:
        """Return a scale for all values, with margins at both ends."""
        low, high = min(values := list(values)), max(values)
        room = ROOM * (high - low) or abs(low) or 1.0
        return cls(low - room, high + room, length)

    def place(self, value: float) -> float:
        return round(self.length * (value - self.first) / (self.last - self.first), 1)


_REFUSED: dict[Refusal, str] = {
    "too few sessions": "fewer than two sessions can be used",
    "no reference": "no stack ran in all sessions, to tell the drift by; --reference takes one that ran in most",
    "no second stack": "no stack but the reference ran in two sessions",
}
_LEFT_OUT: dict[LeftOut, str] = {
    "other metric": "about another metric than the last one",
    "unpaired": "an import without blocks",
    "without the reference": "without the reference, or with another specification of it",
    "the same as another": "the same campaign as another one",
}


def history_lines(found: History) -> Iterator[str]:
    """Yield all lines, changes first in each series."""
    yield head_words(found)
    if found.refused is not None:
        yield f"no history: {_REFUSED[found.refused]}"
    for one in found.series:
        for line in series_words(one, found):
            yield f"  {line}"
    yield from below_words(found)


def head_words(found: History) -> str:
    """Return the number of sessions and their reference."""
    names = moment_names(found)
    span = f" from {names[0]} to {names[-1]}" if names else ""
    against = f", against {found.reference}" if found.reference is not None else ""
    return f"{render_count(len(names), 'session')}{span}: {metric_of(found.metric).title.lower()}{against}"


def below_words(found: History) -> Iterator[str]:
    """Yield notes on data that was not counted. Of the sessions of a stack, the worst is shown."""
    names = moment_names(found)
    for stack, cell in dict.fromkeys((one.stack, one.cell) for one in found.uncounted):
        every = [one for one in found.uncounted if (one.stack, one.cell) == (stack, cell)]
        worst = max(every, key=lambda one: max(one.transactions.shares.values()))
        more = f", and in {render_count(len(every) - 1, 'other session')} fewer" if len(every) > 1 else ""
        yield f"{uncounted_line(worst, names)}{more}"
    for name, reason in found.left_out:
        yield f"left out: {name}: {_LEFT_OUT[reason]}"
    if found.unmatched:
        yield f"not counted where of another specification, or in one session alone: {', '.join(found.unmatched)}"


def series_words(one: StackHistory, found: History) -> Iterator[str]:
    """Yield the level of one stack in one cell, and every change with the differing facts."""
    name, level = f"{one.stack}, {one.cell}", change_words(one.levels[-1].value, found.metric)
    count = render_count(len(one.points), "session")
    if len(one.points) < found.fewest:
        yield f"{name}: {level} in {count}; a change can be told from {found.fewest} on"
    elif not one.changes:
        yield f"{name}: {level} in {count}; no change proven"
    else:
        yield f"{name}: {level} since {moment_names(found)[one.changes[-1].before]}, in {count} in all"
    for change in one.changes:
        yield f"  {changed_words(change, found)}"
        for fact, before, after in change.differing:
            yield f"    differs: {fact}: {before} | {after}"


def changed_words(change: Change, found: History) -> str:
    """Return `−8.1 % (−11.0 % … −5.2 %) between 2026-05-03 and 2026-05-04: ...`."""
    names, metric = moment_names(found), found.metric
    bounds = UNBOUNDED
    if change.low is not None and change.high is not None:
        bounds = f"{change_words(change.low, metric)} … {change_words(change.high, metric)}"
    shared = "; all other stacks changed then the same way: it may be the reference" if change.shared else ""
    return (
        f"{change_words(change.change, metric)} ({bounds}) between {names[change.after]} and {names[change.before]}: "
        f"the stack itself {change_words(change.raw, metric)}, the reference {change_words(change.reference, metric)}; "
        f"told by {names[change.told]}{shared}"
    )


def moment_names(found: History) -> tuple[str, ...]:
    """Return days if they distinguish the sessions, otherwise times to the second, UTC."""
    days = [one.at.strftime("%Y-%m-%d") for one in found.sessions]
    if len(set(days)) == len(days):
        return tuple(days)
    return tuple(one.at.strftime("%Y-%m-%d %H:%M:%S") for one in found.sessions)


def history_value(found: History) -> dict[str, Any]:
    """Return plain values for programs, with the sentences."""
    value = asdict(found)
    for session, one in zip(value["sessions"], found.sessions, strict=True):
        session["at"] = one.at.isoformat()
    for series, stack in zip(value["series"], found.series, strict=True):
        for shown, change in zip(series["changes"], stack.changes, strict=True):
            shown["sentence"] = changed_words(change, found)
    uncounted = uncounted_value(found.uncounted, moment_names(found))
    return {"schema": "pgstrata.history/1", **value, "uncounted": uncounted}


def write_history(found: History, path: Path) -> Path:
    """Write the page, with a picture of each series; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_page(found), encoding="utf-8")
    return path


def _page(found: History) -> str:
    return (
        page_environment()
        .get_template("history.html.j2")
        .render(
            head=head_words(found),
            names=moment_names(found),
            sessions=found.sessions,
            reference=found.reference,
            views=tuple(_view(one, found) for one in found.series),
            below=tuple(below_words(found)),
            version=__version__,
            style=Markup(page_style()),
        )
    )


def _view(one: StackHistory, found: History) -> dict[str, Any]:
    """Return the view of one stack in one cell on the page, with a row for each session."""
    names, about = moment_names(found), metric_of(found.metric)
    return {
        "title": f"{one.stack}, {one.cell}",
        "lines": [line.strip() for line in series_words(one, found)],
        "picture": draw_past(one, found),
        "rows": [
            {
                "when": names[point.session],
                "value": change_words(point.value, found.metric),
                "raw": render_metric(point.raw, about),
                "reference": render_metric(point.reference, about),
                "blocks": len(point.pairs),
            }
            for point in one.points
        ],
    }
