"""A failing state explained to a database administrator: the loss, its effects, and the command to reproduce it.

Only recorded facts are stated. A loss is described by the disk's events: numbers, not times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from pgstrata.analyze.findings import DurabilityFinding
from pgstrata.record.crash import CutEvent, LostPlace, MinimalRecord
from pgstrata.record.reader import CrashData
from pgstrata.report.sentences.figures import render_count
from pgstrata.spec.durability_class import SURVIVES
from pgstrata.spec.units import render_size

PAGE_BYTES = 8192
MOST_PLACES = 6
NUMBERS = "Events are numbered in the order in which the disk saw them; a cut lies after one of them."


@dataclass(frozen=True)
class Story:
    """Explanation of one state of a stack, in this order."""

    stack: str
    title: str
    before: tuple[str, ...]
    """Events up to the cut: acknowledged, durable, missing."""
    places: tuple[str, ...]
    """Data missing from the disk, one line each."""
    after: tuple[str, ...]
    """Effects, and the promise of the configuration."""
    command: str
    """Command that recreates the state."""

    @property
    def told(self) -> tuple[str, ...]:
        """The events, for a terminal."""
        return (*self.before, *(f"  - {place}" for place in self.places), *self.after)

    @property
    def lines(self) -> tuple[str, ...]:
        """The events, and the command to reproduce the state."""
        return (*self.told, f"See it: {self.command}")


def tell_story(crash: CrashData, durability: DurabilityFinding, place: str) -> Story | None:
    """Explain the minimised state; None if there is none. `place` is the campaign directory."""
    return tell_state(crash, crash.minimal, durability, place) if crash.minimal else None


def tell_state(crash: CrashData, minimal: MinimalRecord, durability: DurabilityFinding, place: str) -> Story:
    fate = "is damaged" if minimal.verdict == "corrupt" else "loses acknowledged transactions"
    return Story(
        stack=crash.found.stack,
        title=f"How {crash.found.stack} {fate}",
        before=tuple(_before(minimal, honest=durability.ignored_flushes == "0")),
        places=tuple(_places(minimal)),
        after=(*_after(minimal, crash.found.request.ignore_flushes), _configuration(durability), _size(minimal)),
        command=f"pgstrata crash replay {place}/{crash.folder}/{minimal.state}",
    )


def _before(minimal: MinimalRecord, *, honest: bool) -> Iterator[str]:
    acknowledged = render_count(minimal.acknowledged, "transaction")
    yield f"Power is lost after event {minimal.cut:,}. By then PostgreSQL had acknowledged {acknowledged}."
    if honest and minimal.disk:
        yield _durable(minimal)
    if minimal.places:
        lost = render_count(_blocks(minimal), f"block of {minimal.block_bytes} bytes", _blocks_of(minimal))
        writes = render_count(len({place.seq for place in minimal.places}), "write")
        yield f"All that had been given to the disk is there, except for {lost} of {writes}:"
    else:
        yield (
            "All that had been given to the disk is there. So what is missing had not been written when it was "
            "acknowledged, or not in a way that can be read after a power cut."
        )


def _durable(minimal: MinimalRecord) -> str:
    if minimal.last_flush is None:
        return f"No flush of disk {minimal.disk} was done by then: what it had written may be lost in any part."
    return (
        f"The last flush of disk {minimal.disk} that was done by then was asked for at event {minimal.last_flush:,}: "
        "what it had written before that is durable, what came later may be lost in any part."
    )


def _blocks(minimal: MinimalRecord) -> int:
    return sum(place.length_bytes for place in minimal.places) // minimal.block_bytes


def _blocks_of(minimal: MinimalRecord) -> str:
    return f"blocks of {minimal.block_bytes} bytes"


def _places(minimal: MinimalRecord) -> Iterator[str]:
    """Yield a line for each page of a file, or other place, with missing data."""
    groups = [list(group) for _, group in groupby(minimal.places, key=lambda p: (p.seq, p.file, _page(p)))]
    for group in groups[:MOST_PLACES]:
        first = group[0]
        yield f"{_where(group)}: {_lost(first, sum(place.length_bytes for place in group))}"
    more = len(groups) - MOST_PLACES
    if more > 0:
        yield f"and {render_count(more, 'further place')}"


def _lost(first: LostPlace, lost_bytes: int) -> str:
    done = f"done at event {first.completed:,}" if first.completed is not None else "not done by the cut"
    write = f"the write of event {first.seq:,}"
    if lost_bytes == first.written_bytes:
        return f"nothing of {write} is there ({render_size(lost_bytes)}, {done})"
    return f"{lost_bytes:,} bytes are as they were before {write} ({first.written_bytes:,} bytes, {done})"


def _page(place: LostPlace) -> int | None:
    """Return the PostgreSQL block that contains it; None if it is not in one."""
    name = place.file or ""
    pages = name.startswith(("base/", "global/", "pg_wal/")) and not name.endswith(("pg_control", "pg_filenode.map"))
    return place.file_offset_bytes // PAGE_BYTES if pages else None


def _where(group: list[LostPlace]) -> str:
    first, page = group[0], _page(group[0])
    if first.file is None:
        return f"disk {first.disk}, byte {first.offset_bytes:,}, of which the file is not known"
    if not first.file:
        return f"disk {first.disk}, byte {first.offset_bytes:,}, in no file: the filesystem's own metadata"
    if page is None:
        return f"{first.file}, byte {first.file_offset_bytes:,}"
    last = group[-1]
    to = (last.file_offset_bytes + last.length_bytes - 1) // PAGE_BYTES
    blocks = f"block {page:,}" if to == page else f"blocks {page:,} to {to:,}"
    relation = f"{first.relation} (file {first.file})" if first.relation else first.file
    return f"{relation}, {blocks}"


def _after(minimal: MinimalRecord, ignored: str) -> Iterator[str]:
    if minimal.verdict == "corrupt":
        yield f"What is found then: {' '.join(minimal.reason.split())}."
    if minimal.lost:
        yield f"{render_count(minimal.lost, 'acknowledged transaction')} cannot be read from this state."
    if not minimal.missing:
        return
    last = minimal.missing[-1]
    told = (
        f"The last of them is number {last.number} of session {last.session}: begun after event {last.began:,}, "
        f"acknowledged at event {last.acknowledged:,}"
    )
    if last.flushes and ignored != "0":
        yield f"{told}. {render_count(last.flushes, 'flush', 'flushes')} came in between, and the disk ignored flushes."
    elif last.flushes:
        yield f"{told}, with {render_count(last.flushes, 'flush', 'flushes')} of a disk in between."
    else:
        yield f"{told}. No flush of a disk came in between, so nothing had made it durable."


def _configuration(durability: DurabilityFinding) -> str:
    if durability.ignored_flushes != "0":
        which = (
            "all flushes" if durability.ignored_flushes == "all" else f"the last {durability.ignored_flushes} flushes"
        )
        return f"The disk was made to ignore {which}: that is what no stack is safe from."
    if durability.fault:
        return (
            f"Before power was lost something else had been made to fail (fault {durability.fault}): what the "
            "configuration promises is about power alone."
        )
    if durability.class_ == SURVIVES:
        return "Its configuration promises to survive power loss: no setting of it explains this."
    return f"Its configuration promises no better: it {durability.class_}. {durability.reason}."


def _size(minimal: MinimalRecord) -> str:
    tried = render_count(minimal.tried, "state")
    began = f"made from state {minimal.of}"
    if not minimal.places:
        return f"This state, {began}, needs no lost write; {tried} tried."
    if minimal.blocks_before > _blocks(minimal):
        began += f", which lacks {minimal.blocks_before:,} blocks"
    if minimal.proven:
        back = "this block" if _blocks(minimal) == 1 else "any one of these blocks"
        return f"This state was {began}: with {back} back it does not fail in this way; {tried} tried."
    return f"This state was {began}. Fewer blocks may be enough: the search ended after {tried}."


# ---------------------------------------------------------------- the picture of a state

# The picture of a failing state: acknowledgements, writes and flushes before the cut, in parallel.
#
# Events are positioned by order, not by time. The page's template draws the strips and puts words next to them.

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
