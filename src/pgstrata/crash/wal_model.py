"""Computes every failure of a cluster at every recorded moment, from how far each node's WAL reached. Pure.

A commit is on a node if its record lies in the valid part of the node's WAL. When one node continues alone, the missing
entries are the acknowledged transactions whose commit lies after the node's last one.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from pgstrata.errors import TrialError, parser_of
from pgstrata.record.crash import ARCHIVE, ClusterFound, FailureRecord, LostNodes, Rejoined, RejoinedNodes
from pgstrata.spec.crash_request import Promoted
from pgstrata.spec.stack import PRIMARY


@dataclass(frozen=True)
class TriedRejoin:
    """The lost primary after it followed the promoted node, as reported by the worker; or why it did not follow."""

    problem: str
    server: int | None
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Tried:
    """A failure that was carried out, as reported by the worker."""

    lost: tuple[str, ...]
    promoted: str
    position: int
    server: int | None
    stdout: str
    stderr: str
    problem: str
    duration_s: float
    rejoin: TriedRejoin | None = None


@dataclass(frozen=True)
class Cut:
    """A moment at which all nodes stood still."""

    number: int
    at_s: float
    acknowledged: Mapping[int, int]
    """The last acknowledged entry of each session."""
    positions: Mapping[str, int]
    """Position of the last commit in each node's WAL."""
    failures: tuple[Tried, ...]

    def choose(self, left: Sequence[str], promoted: Promoted) -> str:
        """The remaining node that continues; the primary if it is among them."""
        if PRIMARY in left:
            return PRIMARY
        sign = -1 if promoted == "least" else 1
        return max(left, key=lambda name: sign * self.positions[name])


@dataclass(frozen=True)
class Entry:
    """A committed entry of the ledger: the position of its commit, and when it was acknowledged (None: never)."""

    position: int
    session: int
    number: int
    at_s: float | None


@dataclass(frozen=True)
class Loss:
    """Acknowledged transactions that are missing, and how long ago the first of them was acknowledged."""

    missing: int
    seconds: float | None


@parser_of("the worker of a cluster")
def parse_cuts(text: str) -> tuple[tuple[Cut, ...], tuple[Entry, ...]]:
    """Parses the moments, and all entries by position. Raises TrialError if the worker did not finish."""
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    if not lines or "commits" not in lines[-1]:
        raise TrialError("the worker of the cluster did not get to its end")
    times = {int(session): ats for session, ats in lines[-1]["times_s"].items()}
    entries = [
        Entry(int(position), int(session), int(number), _at(times, int(session), int(number)))
        for session, number, position in lines[-1]["commits"]
    ]
    return tuple(map(_parse_cut, lines[:-1])), tuple(sorted(entries, key=lambda entry: entry.position))


def _at(times: Mapping[int, Sequence[float]], session: int, number: int) -> float | None:
    known = times.get(session, ())
    return float(known[number - 1]) if number <= len(known) else None


def _parse_cut(given: Mapping[str, Any]) -> Cut:
    return Cut(
        number=int(given["number"]),
        at_s=float(given["at_s"]),
        acknowledged={int(session): int(number) for session, number in given["acknowledged"].items()},
        positions={str(name): int(position) for name, position in given["positions"].items()},
        failures=tuple(map(_parse_tried, given["failures"])),
    )


def _parse_tried(given: Mapping[str, Any]) -> Tried:
    rejoin = given.get("rejoin")
    return Tried(**{**given, "lost": tuple(given["lost"]), "rejoin": TriedRejoin(**rejoin) if rejoin else None})


def loss(cut: Cut, entries: Sequence[Entry], position: int) -> Loss:
    """The loss at a moment if nothing after `position` remains; `entries` are in WAL order."""
    first = bisect_right(entries, position, key=lambda entry: entry.position)
    last = bisect_right(entries, cut.positions[PRIMARY], key=lambda entry: entry.position)
    gone = [e for e in entries[first:last] if e.number <= cut.acknowledged.get(e.session, 0)]
    times = [entry.at_s for entry in gone if entry.at_s is not None]
    return Loss(len(gone), round(max(0.0, cut.at_s - min(times)), 3) if times else None)


def discarded(cut: Cut, entries: Sequence[Entry], position: int) -> int:
    """Number of commits of the primary beyond `position`, acknowledged or not. It loses them when it follows a node
    that ends there."""
    return sum(position < entry.position <= cut.positions[PRIMARY] for entry in entries)


def reckon(
    cuts: Sequence[Cut], entries: Sequence[Entry], names: Sequence[str], promoted: Promoted, lost: int
) -> LostNodes:
    """Evaluates every set of `lost` nodes at every moment that leaves at least one node."""
    losses = list(_losses(cuts, entries, names, promoted, lost))
    worst = max(losses, key=lambda found: found[1].missing, default=None)
    return LostNodes(
        nodes=lost,
        reckoned=len(losses),
        losing=sum(found.missing > 0 for _, found in losses),
        missing_max=worst[1].missing if worst else 0,
        missing_max_s=max((f.seconds for _, f in losses if f.seconds is not None), default=None),
        worst=worst[0] if worst is not None and worst[1].missing else (),
    )


def _losses(
    cuts: Sequence[Cut], entries: Sequence[Entry], names: Sequence[str], promoted: Promoted, lost: int
) -> Iterator[tuple[tuple[str, ...], Loss]]:
    for cut in cuts:
        for gone in combinations(names, lost):
            left = [name for name in names if name not in gone]
            chosen = cut.choose(left, promoted)
            forgot = promoted == "forgetful" and chosen != PRIMARY
            yield gone, loss(cut, entries, cuts[0].positions[chosen] if forgot else cut.positions[chosen])


def all_lost(cuts: Sequence[Cut]) -> LostNodes:
    """The loss of all nodes at once without an archive: nothing remains."""
    acknowledged = [sum(cut.acknowledged.values()) for cut in cuts]
    return LostNodes(
        nodes=len(cuts[0].positions) - (ARCHIVE in cuts[0].positions) if cuts else 0,
        reckoned=len(cuts),
        losing=sum(count > 0 for count in acknowledged),
        missing_max=max(acknowledged, default=0),
    )


def found_of(
    cuts: Sequence[Cut],
    entries: Sequence[Entry],
    carried_out: Sequence[FailureRecord],
    names: Sequence[str],
    promoted: Promoted,
    lost_at_once: int,
) -> ClusterFound:
    """Summarises the failures of a cluster."""
    rows = [reckon(cuts, entries, names, promoted, lost) for lost in range(1, len(names))]
    rows.append(all_lost(cuts))
    archive = None
    if cuts and ARCHIVE in cuts[0].positions:
        losses = [loss(cut, entries, cut.positions[ARCHIVE]) for cut in cuts]
        archive = LostNodes(
            nodes=len(names),
            reckoned=len(losses),
            losing=sum(found.missing > 0 for found in losses),
            missing_max=max(found.missing for found in losses),
            missing_max_s=max((found.seconds for found in losses if found.seconds is not None), default=None),
        )
    by_nodes = [f for f in carried_out if f.promoted != ARCHIVE]
    return ClusterFound(
        nodes=tuple(names),
        moments=len(cuts),
        promoted=promoted,
        lost_at_once=lost_at_once,
        by_lost=tuple(_with_carried_out(row, [f for f in by_nodes if len(f.lost) == row.nodes]) for row in rows),
        archive=_with_carried_out(archive, [f for f in carried_out if f.promoted == ARCHIVE]) if archive else None,
        rejoined=_rejoined_of([f.rejoined for f in carried_out if f.rejoined is not None]),
        holders=count_holders(cuts, entries, names),
    )


def count_holders(cuts: Sequence[Cut], entries: Sequence[Entry], names: Sequence[str]) -> tuple[int, ...]:
    """Number of commits that were on no node, on one, on two and so on, at the first moment after their
    acknowledgement.
    """
    counts, before = [0] * (len(names) + 1), dict[int, int]()
    for cut in cuts:
        new = (e for e in entries if before.get(e.session, 0) < e.number <= cut.acknowledged.get(e.session, 0))
        for entry in new:
            counts[sum(cut.positions[name] >= entry.position for name in names)] += 1
        before = dict(cut.acknowledged)
    return tuple(counts)


def _rejoined_of(tried: Sequence[Rejoined]) -> RejoinedNodes | None:
    if not tried:
        return None
    return RejoinedNodes(
        how=tried[0].how,
        tried=len(tried),
        failed=sum(one.verdict != "held" for one in tried),
        discarded_max=max(one.discarded for one in tried),
        acknowledged_max=max(one.acknowledged for one in tried),
    )


def _with_carried_out(row: LostNodes, failures: Sequence[FailureRecord]) -> LostNodes:
    failed = sum(failure.verdict != "held" for failure in failures)
    return row.model_copy(update={"carried_out": len(failures), "failed": failed})
