"""The picture of a stack over many sessions: every block, the mean of each session, levels, and their changes.

It is stretched to the width of the page, so words are outside it, and dots are strokes of zero length with round ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.sessions.history import History, StackHistory
from pgstrata.report.sentences.sessions import change_words

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
