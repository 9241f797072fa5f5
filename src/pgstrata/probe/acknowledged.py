"""Standby that let a commit go, the time that took, and stale reads on standbys: what asks, and what it found. Pure."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Literal

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command, marked
from pgstrata.spec.quorum import Quorum

HANGS_AFTER_S = 180.0

_WATCHER = Path(__file__).with_name("reply_watcher.py")

Position = Literal["write", "flush", "apply"]
AWAITED: Mapping[str, Position] = {"remote_write": "write", "on": "flush", "remote_apply": "apply"}
"""Position that a commit waits for, by synchronous_commit."""


@dataclass(frozen=True)
class Acknowledgements:
    """Commits that waited for standbys and whose last missing acknowledgement came from this one."""

    watched: int
    """All commits that were looked at, whoever let them go."""
    released: int
    median_ms: float | None
    p99_ms: float | None
    """Time from the record of such a commit to that acknowledgement."""


@dataclass(frozen=True)
class Replies:
    """Positions that one standby said it had, in ascending order, and when it said so first."""

    positions: tuple[int, ...]
    at_us: tuple[int, ...]

    def reached_us(self, position: int) -> float:
        """When it had that position; infinite where it did not say so."""
        at = bisect_left(self.positions, position)
        return self.at_us[at] if at < len(self.at_us) else math.inf


def plan_watcher(
    pg_waldump: str, wal: str, port: int, interface: str, addresses: Mapping[str, str], *, seconds: float, os_user: str,
    marker: str,
) -> Command:  # fmt: skip
    """`addresses` are those of the standbys that acknowledge, by their names. It begins as root."""
    return Command(
        (
            "python3", "-I", "-",
            "--interface", interface,
            "--user", os_user,
            "--pg-waldump", pg_waldump,
            "--wal", wal,
            "--port", str(port),
            "--seconds", f"{seconds:g}",
            *(word for name, address in addresses.items() for word in ("--standby", f"{name}={address}")),
        ),
        timeout_s=seconds + HANGS_AFTER_S,
        stdin=_WATCHER.read_text(encoding="utf-8"),
        env=marked(marker),
        cwd="/",
    )  # fmt: skip


@parser_of("the watcher of replies")
def parse_watched(text: str, awaited: Position) -> tuple[dict[str, Replies], tuple[tuple[int, int], ...]]:
    """Parse what each standby said of the position that commits wait for, and for each commit the end of its record and
    when it was made, in microseconds."""
    rows = [json.loads(line) for line in text.splitlines()]
    said: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        if "standby" in row:
            said.setdefault(str(row["standby"]), []).append((int(row[awaited]), int(row["us"])))
    commits = tuple((int(row["commit"]), int(row["us"])) for row in rows if "commit" in row)
    return {name: _replies(told) for name, told in said.items()}, commits


def _replies(told: Sequence[tuple[int, int]]) -> Replies:
    """In the order in which they came: a position that is behind one that was told before says nothing new."""
    return Replies(tuple(accumulate((position for position, _ in told), max)), tuple(at_us for _, at_us in told))


def let_go(
    said: Mapping[str, Replies], commits: Sequence[tuple[int, int]], quorum: Quorum, standbys: Sequence[str]
) -> dict[str, Acknowledgements]:
    """For each of the standbys that may acknowledge; `standbys` are all that follow the primary.

    A commit that is not acknowledged within what was seen is not looked at, nor one that was made before every standby
    that said anything had said something.
    """
    able = quorum.candidates(standbys)
    began_us = max((replies.at_us[0] for replies in said.values()), default=0)
    found: dict[str, list[float]] = {name: [] for name in able}
    for position, made_us in commits:
        if made_us < began_us:
            continue
        reached = {name: said[name].reached_us(position) if name in said else math.inf for name in able}
        last = last_awaited(quorum, reached)
        if math.isfinite(reached[last]):
            found[last].append((reached[last] - made_us) / 1000)
    watched = sum(map(len, found.values()))
    return {name: _told(watched, times_ms) for name, times_ms in found.items()}


def last_awaited(quorum: Quorum, reached_us: Mapping[str, float]) -> str:
    """The standby whose acknowledgement was the last that a commit waited for.

    `ANY k`: the k-th to reach it. `FIRST k`: the last of the first k in the order of their names, while all are there.
    """
    if quorum.method == "any":
        return sorted(reached_us, key=lambda name: reached_us[name])[quorum.count - 1]
    in_order = sorted(reached_us, key=lambda name: quorum.names.index(name) if name in quorum.names else 0)
    return max(in_order[: quorum.count], key=lambda name: reached_us[name])


def _told(watched: int, times_ms: Sequence[float]) -> Acknowledgements:
    if not times_ms:
        return Acknowledgements(watched, 0, None, None)
    in_order = sorted(times_ms)
    p99 = in_order[min(len(in_order) - 1, math.ceil(0.99 * len(in_order)) - 1)]
    return Acknowledgements(watched, len(in_order), round(median(in_order), 3), round(p99, 3))


PATIENCE_S = 10.0
"""A read that is stale for longer is given up; it counts with that time."""
READER_HANGS_AFTER_S = 120.0

_READER = Path(__file__).with_name("stale_reader.py")


@dataclass(frozen=True)
class Stale:
    """Reads on one standby, each right after the acknowledgement of a commit."""

    checked: int
    stale: int
    """Number of them that lacked that commit."""
    median_ms: float | None
    max_ms: float | None
    """Time from the acknowledgement until a stale read had the commit."""


def plan_reader(
    psql: str, port: int, table: str, addresses: Mapping[str, str], *, seconds: float, user: str, os_user: str,
    passfile: str, marker: str,
) -> Command:  # fmt: skip
    """`addresses` are those of the primary, which comes first, and of the standbys by their names."""
    (_, primary), *standbys = addresses.items()
    return Command(
        (
            "python3", "-I", "-",
            "--psql", psql,
            "--port", str(port),
            "--user", user,
            "--database", "postgres",
            "--table", table,
            "--primary", primary,
            "--seconds", f"{seconds:g}",
            "--patience", f"{PATIENCE_S:g}",
            *(word for name, address in standbys for word in ("--standby", f"{name}={address}")),
        ),
        timeout_s=seconds + PATIENCE_S + READER_HANGS_AFTER_S,
        stdin=_READER.read_text(encoding="utf-8"),
        user=os_user,
        env=(*marked(marker), ("PGPASSFILE", passfile)),
        cwd="/",
    )  # fmt: skip


@parser_of("the reader of standbys")
def parse_reads(text: str) -> dict[str, Stale]:
    """By the names of the standbys that were read."""
    rows = [json.loads(line) for line in text.splitlines()]
    names = dict.fromkeys(str(row["standby"]) for row in rows)
    return {name: _stale(row for row in rows if row["standby"] == name) for name in names}


def _stale(rows: Iterable[Mapping[str, object]]) -> Stale:
    reads = [(bool(row["stale"]), float(str(row["ms"]))) for row in rows]
    late_ms = [ms for stale, ms in reads if stale]
    return Stale(len(reads), len(late_ms), median(late_ms) if late_ms else None, max(late_ms, default=None))
