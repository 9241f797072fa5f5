"""Aggregated logs of pgbench (`--aggregate-interval`): sums of intervals, no single latencies.

Format (pgbench documentation, "Aggregated Logging"): `interval_start num_transactions sum_latency sum_latency_2
min_latency max_latency`, then columns that depend on options and version, which are not read. Latencies are in
microseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pgstrata.errors import UsageError

_LINE = re.compile(rb"^\d{9,11} \d+ \d+ \d+ \d+ \d+(?: \d+)*\r?\n")


@dataclass(frozen=True)
class Interval:
    """The transactions of one interval, of all threads."""

    start_s: int
    transactions: int
    sum_us: int
    sum_of_squares_us2: int


@dataclass(frozen=True)
class AggregatedLog:
    """The whole intervals of a run; the last one, which the end of the run cuts, is left out."""

    interval_s: int
    intervals: tuple[Interval, ...]

    @property
    def duration_s(self) -> float:
        return float(self.intervals[-1].start_s - self.intervals[0].start_s + self.interval_s)

    @property
    def transactions(self) -> int:
        return sum(one.transactions for one in self.intervals)

    @property
    def latency_avg_ms(self) -> float:
        return sum(one.sum_us for one in self.intervals) / max(1, self.transactions) / 1000

    @property
    def latency_stddev_ms(self) -> float:
        """Population standard deviation of the latencies, from their sums of squares."""
        mean_us = 1000 * self.latency_avg_ms
        squares = sum(one.sum_of_squares_us2 for one in self.intervals) / max(1, self.transactions)
        return math.sqrt(max(0.0, squares - mean_us**2)) / 1000

    @property
    def rows(self) -> list[tuple[float | None, ...]]:
        """Each interval as a row of progress, by the time of its end."""
        return [
            (
                float(one.start_s - self.intervals[0].start_s + self.interval_s),
                one.transactions / self.interval_s,
                one.sum_us / max(1, one.transactions) / 1000,
                *(None,) * 5,
            )
            for one in self.intervals
        ]


def is_aggregate_line(head: bytes) -> bool:
    """True where the first line is one of an aggregated log."""
    return _LINE.match(head) is not None


def read_aggregates(paths: Sequence[Path]) -> AggregatedLog:
    """The intervals of all threads of a run; UsageError for a damaged line and for fewer than two intervals."""
    return parse_aggregates([(path, path.read_bytes()) for path in paths])


def parse_aggregates(logs: Sequence[tuple[Path, bytes]]) -> AggregatedLog:
    """The intervals of all threads of a run, from the contents of their files."""
    found: dict[int, list[int]] = {}
    for path, content in logs:
        for number, line in enumerate(content.splitlines(keepends=True), 1):
            if not line.endswith(b"\n"):
                continue  # torn at the end of the file
            if not _LINE.match(line):
                raise UsageError(
                    f"{path}: line {number} is not a line of an aggregated pgbench log: {line[:80]!r}",
                    hint="remove the damaged lines, or give the log of one run only",
                )
            start_s, *sums = map(int, line.split()[:4])
            row = found.setdefault(start_s, [0, 0, 0])
            found[start_s] = [a + b for a, b in zip(row, sums, strict=True)]
    starts = sorted(found)
    if len(starts) < 2:
        raise UsageError(
            f"{logs[0][0]} has {len(starts)} interval: the length of an interval is not known",
            hint="import the output of pgbench instead, or the log of a run of several intervals",
        )
    intervals = tuple(Interval(start, *found[start]) for start in starts[:-1])
    return AggregatedLog(min(b - a for a, b in pairwise(starts)), intervals)
