"""The history of a failing state from the disk's events: written, flushed and acknowledged before the cut. Pure.

A session starts a transaction after its previous acknowledgement (the first one after the transactions began). If no
flush was submitted and completed in between, nothing can have made the transaction durable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pgstrata.crash.ledger import BEGIN, Mark
from pgstrata.errors import parser_of
from pgstrata.record.crash import CutEvent, MissingCommit

MOST_MISSING = 5
MOST_EVENTS = 60
"""Number of last events before the cut."""


@dataclass(frozen=True)
class Request:
    """A write or a flush: when it was submitted, and when the disk reported its completion."""

    seq: int
    what: str
    length: int
    completed: int | None
    disk: str


@parser_of("strata-disk events")
def parse_requests(text: str, cut: int) -> tuple[Request, ...]:
    """The write and flush requests to the disks by the cut, without refused ones, in order of submission."""
    asked: dict[int, Request] = {}
    disks: dict[int, str] = {}
    for line in text.splitlines():
        event = json.loads(line)
        if event["seq"] > cut:
            break
        match event["event"]:
            case "added":
                disks[event["disk"]] = event["text"]
            case "write" | "zero" | "flush" as what:
                length = int(event.get("length", 0))
                asked[event["seq"]] = Request(event["seq"], what, length, None, disks[event["disk"]])
            case "completed" if event["failed"]:
                asked.pop(event["of"], None)
            case "completed" if event["of"] in asked:
                asked[event["of"]] = replace(asked[event["of"]], completed=event["seq"])
    return tuple(asked[seq] for seq in sorted(asked))


@parser_of("strata-disk events")
def parse_beginning(text: str) -> int:
    """The number of the event before the first transaction."""
    events = (json.loads(line) for line in text.splitlines())
    return next(int(event["seq"]) for event in events if event["event"] == "mark" and event["text"] == BEGIN)


def flushes_done(requests: Iterable[Request]) -> tuple[Request, ...]:
    return tuple(request for request in requests if request.what == "flush" and request.completed is not None)


def last_flush(requests: Sequence[Request], disk: str) -> int | None:
    """Submission of the last completed flush of a disk; None if there was none."""
    return max((flush.seq for flush in flushes_done(requests) if flush.disk == disk), default=None)


def missing_commits(
    marks: Sequence[Mark], entries: Mapping[int, int], requests: Sequence[Request], cut: int, begun: int
) -> tuple[MissingCommit, ...]:
    """Acknowledged transactions beyond each session's existing entries, the last ones; `begun` is the event before the
    first transaction."""
    flushes = flushes_done(requests)
    before: dict[int, int] = {}
    found = []
    for mark in marks:
        if mark.seq > cut:
            break
        began = before.get(mark.session, begun)
        before[mark.session] = mark.seq
        if mark.number > entries.get(mark.session, 0):
            between = sum(began < f.seq and (f.completed or cut) < mark.seq for f in flushes)
            found.append(
                MissingCommit(
                    session=mark.session, number=mark.number, began=began, acknowledged=mark.seq, flushes=between
                )
            )
    return tuple(found[-MOST_MISSING:])


def timeline(
    requests: Sequence[Request], marks: Sequence[Mark], missing: Sequence[MissingCommit], lost: frozenset[int], cut: int
) -> tuple[CutEvent, ...]:
    """The last events before the cut, with all lost writes and missing transactions."""
    gone = {commit.acknowledged for commit in missing}
    writes = [
        CutEvent(
            seq=one.seq,
            until=one.completed,
            what="flush" if one.what == "flush" else "write",
            lost=one.seq in lost,
        )
        for one in requests
    ]
    acknowledged = [
        CutEvent(seq=mark.seq, until=mark.seq, what="acknowledgement", lost=mark.seq in gone)
        for mark in marks
        if mark.seq <= cut
    ]
    every = sorted((*writes, *acknowledged), key=lambda event: event.seq)
    last = every[-MOST_EVENTS:]
    earlier = every[: len(every) - len(last)]
    return (*(event for event in earlier if event.lost), *last)
