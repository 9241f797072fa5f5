"""The picture of a failing state: acknowledgements, writes and flushes before the cut, in parallel.

Events are positioned by order, not by time. The page's template draws the strips and puts words next to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.record.crash import CutEvent, MinimalRecord
from pgstrata.report.sentences.figures import render_count

WIDTH = 1000.0
LEAST = 4.0
"""Minimum width of an event, so that it is visible."""


@dataclass(frozen=True)
class Bar:
    x: float
    width: float
    lost: bool
    title: str


@dataclass(frozen=True)
class Strip:
    """All events of one kind."""

    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class CutPicture:
    strips: tuple[Strip, ...]
    first: int
    cut: int
    words: str
    """The same in words, for readers who cannot see it."""


_NAMES = (("acknowledgement", "Acknowledged"), ("write", "Writes"), ("flush", "Flushes"))


def draw_cut(minimal: MinimalRecord) -> CutPicture | None:
    """Return the picture; None if the record has no events."""
    events = minimal.timeline
    if not events:
        return None
    numbers = {event.seq for event in events} | {event.until for event in events if event.until is not None}
    order = {seq: place for place, seq in enumerate(sorted(numbers))}
    step = WIDTH / max(len(order), 1)
    strips = tuple(
        Strip(name, tuple(_bar(event, order, step) for event in events if event.what == what)) for what, name in _NAMES
    )
    return CutPicture(strips, events[0].seq, minimal.cut, _words(minimal))


def _bar(event: CutEvent, order: dict[int, int], step: float) -> Bar:
    """Return the bar of an event from its submission to its end, or to the cut if it had no end."""
    begin = order[event.seq] * step
    end = WIDTH if event.until is None else (order[event.until] + 1) * step
    ended = "under way at the cut" if event.until is None else f"to {event.until:,}"
    lost = {"acknowledgement": "transaction missing", "write": "lost, in full or in part"}.get(event.what, "")
    title = f"event {event.seq:,}" if event.until == event.seq else f"events {event.seq:,} {ended}"
    return Bar(
        round(begin, 1), round(max(end - begin, LEAST), 1), event.lost, f"{title}: {lost}" if event.lost else title
    )


def _words(minimal: MinimalRecord) -> str:
    events = minimal.timeline
    counts = {what: [event for event in events if event.what == what] for what, _ in _NAMES}
    lost = sum(event.lost for event in counts["write"])
    gone = sum(event.lost for event in counts["acknowledgement"])
    parts = (
        f"{render_count(len(counts['acknowledgement']), 'acknowledgement')}, {gone} of them of missing transactions",
        f"{render_count(len(counts['write']), 'write')}, {lost} of them lost in full or in part",
        render_count(len(counts["flush"]), "flush", "flushes"),
    )
    return f"Events {events[0].seq:,} to {minimal.cut:,}, the cut: {'; '.join(parts)}."
