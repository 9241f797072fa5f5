"""Per-transaction logs of pgbench (`-l`): exact percentiles of a run, in bounded memory.

The log is read in blocks, each of which is reduced to a histogram of whole microseconds and to the transactions of each
second. These add up, so a log can be cut at any end of a line, and its parts be read in any order, by anybody.
Percentiles interpolate linearly between order statistics, as PostgreSQL's `percentile_cont` does, and are taken from
merged counts.

Format (pgbench documentation, "Per-Transaction Logging"): `client_id transaction_no time script_no time_epoch
time_us [schedule_lag] [retries]`; `time` is in microseconds, counted from the scheduled start under `--rate`, or one
of the words `skipped`, `failed`, `serialization`, `deadlock`, `other`.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pgstrata.errors import UsageError

BLOCK_BYTES = 16 << 20
PART_BYTES = 64 << 20
"""Bytes of a part of a log that is read by several: whoever reads it, and however many, the parts are the same."""
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
PERCENTILES = ("p50", "p90", "p95", "p99", "p999")
"""Names of the QUANTILES."""
WORDS = ("skipped", "failed", "serialization", "deadlock", "other")
_COLUMNS = ("client", "number", "latency_us", "script", "epoch_s", "epoch_us", "seventh", "eighth")
_DENSE_US = 1 << 20
_LONGEST = 19
"""Longest field with its separator: more digits may exceed 64 bits."""
CLOCK_US = 1_000_000
"""Longest step of the clock backwards that is taken for its usual correction."""
LONGEST_RUN_S = 31 * 86400
MOST_SCRIPTS = 16
"""Scripts of a mix whose percentiles are known: each takes a histogram of 8 MiB. Later ones share one."""

Latencies = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.int64]


@dataclass
class Histogram:
    """Exact counts of whole microseconds: an array for latencies below about a second, a table above."""

    dense: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_DENSE_US, dtype=np.int64))
    tail: dict[int, int] = field(default_factory=dict)

    def add(self, latencies_us: Latencies) -> None:
        low = latencies_us[latencies_us < _DENSE_US]
        if low.size:
            counts = np.bincount(low)
            self.dense[: counts.size] += counts
        if low.size < latencies_us.size:
            values, counts = np.unique(latencies_us[latencies_us >= _DENSE_US], return_counts=True)
            for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                self.tail[value] = self.tail.get(value, 0) + count

    def merge(self, other: Histogram, sign: int = 1) -> None:
        """Adds the counts of another run or stack; with -1 takes them out again."""
        self.dense += sign * other.dense
        for value, count in other.tail.items():
            self.tail[value] = self.tail.get(value, 0) + sign * count

    @property
    def count(self) -> int:
        return int(self.dense.sum()) + sum(self.tail.values())

    @property
    def mean_us(self) -> float:
        """NaN for an empty histogram."""
        total = float(np.dot(self.dense, np.arange(_DENSE_US))) + sum(v * n for v, n in self.tail.items())
        return total / self.count if self.count else float("nan")

    def quantiles_us(self, quantiles: Sequence[float]) -> tuple[float, ...]:
        """Quantiles in microseconds (`percentile_cont`); NaN for an empty histogram."""
        dense_values = np.flatnonzero(self.dense)
        tail_values = np.array(sorted(self.tail), dtype=np.int64)
        values = np.concatenate([dense_values, tail_values])
        if values.size == 0:
            return tuple(float("nan") for _ in quantiles)
        tail_counts = np.array([self.tail[v] for v in tail_values.tolist()], dtype=np.int64)
        cumulated = np.cumsum(np.concatenate([self.dense[dense_values], tail_counts]))
        ranks = np.asarray(quantiles) * (cumulated[-1] - 1)
        below = values[np.searchsorted(cumulated, np.floor(ranks), side="right")]
        above = values[np.searchsorted(cumulated, np.ceil(ranks), side="right")]
        return tuple((below + (above - below) * (ranks - np.floor(ranks))).tolist())


@dataclass(frozen=True)
class LogSummary:
    """Logs or parts of them, reduced. `words` counts the transactions without a latency, `torn_lines` what was cut off,
    `seconds` the transactions of each second that has some, by the clock of the client or from `origin_us` on."""

    words: Mapping[str, int]
    torn_lines: int
    histogram: Histogram
    seconds: Mapping[int, int]
    maximum_lag_us: int | None
    origin_us: int = 0
    """Unix time of the run's begin; 0 where seconds are those of the clock."""
    last_us: int = 0
    """When the last transaction ended, from `origin_us` on; 0 without one."""
    numbers: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """First and last number of each client's transactions, where there is an `origin_us`."""
    later_scripts: Mapping[int, Histogram] = field(default_factory=dict)
    """Latencies of each script of a mix by its number, from 1 on; the first script has the rest of `histogram`."""

    @property
    def transactions(self) -> int:
        return self.histogram.count

    @property
    def sampled_share(self) -> float:
        """Share of the transactions that the log holds (`--sampling-rate`), by their numbers; 1 where it is unknown.
        Above 1 where numbers of a client come again: the log holds several runs."""
        made = sum(last - first + 1 for first, last in self.numbers.values())
        logged = self.transactions + sum(self.words.values())
        return logged / made if made else 1.0

    @property
    def percentiles_ms(self) -> dict[str, float]:
        """PERCENTILES of the run."""
        return _percentiles_ms(self.histogram)

    @property
    def percentiles_ms_by_script(self) -> dict[int, dict[str, float]]:
        """PERCENTILES of each script of a mix by its number; empty for a log with one script."""
        if not self.later_scripts:
            return {}
        first = Histogram(self.histogram.dense.copy(), dict(self.histogram.tail))
        for histogram in self.later_scripts.values():
            first.merge(histogram, -1)
        every = {0: first, **self.later_scripts}
        return {number: _percentiles_ms(every[number]) for number in sorted(every) if number < MOST_SCRIPTS}


def _percentiles_ms(histogram: Histogram) -> dict[str, float]:
    return {n: v / 1000 for n, v in zip(PERCENTILES, histogram.quantiles_us(QUANTILES), strict=True)}


@dataclass(frozen=True)
class LogPart:
    """Whole lines of a log: the bytes from `begin` to before `end`. The last part of a log may end with a torn line."""

    path: Path
    begin: int
    end: int


def cut_log(path: Path, part_bytes: int = PART_BYTES) -> tuple[LogPart, ...]:
    """Return the parts of a log, each of about that number of bytes."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        ends: list[int] = []
        for place in range(part_bytes, size_bytes, part_bytes):
            file.seek(place)
            line = file.readline(BLOCK_BYTES)
            end = place + len(line)
            if line.endswith(b"\n") and end < size_bytes and ends[-1:] != [end]:
                ends.append(end)
    return tuple(LogPart(path, begin, end) for begin, end in pairwise((0, *ends, size_bytes)))


def summarise_part(part: LogPart, *, open_loop: bool = False, origin_us: int | None = None) -> LogSummary:
    """Summarise a part. `open_loop` marks a run with `--rate`, whose seventh column is the schedule lag; `origin_us` is
    the start of the run (`begin_of`), from which its seconds count."""
    return merged(_blocks(part, open_loop, origin_us))


def begin_of(paths: Iterable[Path]) -> int:
    """Return the start of a run in microseconds of Unix time: the first transaction of its logs, less its latency."""
    return min(_first_begin(path) for path in paths)


def _first_begin(path: Path) -> int:
    _columns(path)  # refuses what is no such log
    with path.open("rb") as file:
        fields = file.readline(BLOCK_BYTES).split()
    latency_us = int(fields[2]) if fields[2].isdigit() else 0
    return int(fields[4]) * 1_000_000 + int(fields[5]) - latency_us


def merged(summaries: Iterable[LogSummary]) -> LogSummary:
    """Merge what all of them hold, in whatever order. UsageError where they span more than a run can take."""
    words, seconds, histogram, torn_lines = Counter[str](), Counter[int](), Histogram(), 0
    lag_us: int | None = None
    last_us = origin_us = 0
    numbers: dict[int, tuple[int, int]] = {}
    scripts: dict[int, Histogram] = {}
    for one in summaries:
        last_us, origin_us = max(last_us, one.last_us), one.origin_us or origin_us
        for client, (low, high) in one.numbers.items():
            known = numbers.get(client, (low, high))
            numbers[client] = (min(low, known[0]), max(high, known[1]))
        words.update(one.words)
        seconds.update(one.seconds)
        histogram.merge(one.histogram)
        for script, latencies in one.later_scripts.items():
            scripts.setdefault(script, Histogram()).merge(latencies)
        torn_lines += one.torn_lines
        if one.maximum_lag_us is not None:
            lag_us = max(lag_us or 0, one.maximum_lag_us)
    _require_one_run(seconds)
    return LogSummary(dict(words), torn_lines, histogram, dict(seconds), lag_us, origin_us, last_us, numbers, scripts)


def render_summary(summary: LogSummary) -> str:
    """In JSON, for whoever merges it: pairs of a latency or a second and its count."""
    return json.dumps(
        {
            "words": dict(summary.words),
            "torn_lines": summary.torn_lines,
            "histogram": _pairs(summary.histogram),
            "seconds": list(summary.seconds.items()),
            "maximum_lag_us": summary.maximum_lag_us,
            "origin_us": summary.origin_us,
            "last_us": summary.last_us,
            "numbers": list(summary.numbers.items()),
            "later_scripts": [(number, _pairs(one)) for number, one in summary.later_scripts.items()],
        }
    )


def _pairs(histogram: Histogram) -> list[Any]:
    """The latencies below about a second, their counts, and pairs of the others."""
    dense = np.flatnonzero(histogram.dense)
    return [dense.tolist(), histogram.dense[dense].tolist(), list(histogram.tail.items())]


def _histogram(pairs: list[Any]) -> Histogram:
    latencies_us, counts, tail = pairs
    histogram = Histogram(tail=dict(tail))
    histogram.dense[np.array(latencies_us, dtype=np.int64)] = counts
    return histogram


def parse_summary(text: str) -> LogSummary:
    """Parse what `render_summary` said of a part."""
    told = json.loads(text)
    numbers = {int(client): (int(low), int(high)) for client, (low, high) in told["numbers"]}
    return LogSummary(
        told["words"],
        told["torn_lines"],
        _histogram(told["histogram"]),
        dict(told["seconds"]),
        told["maximum_lag_us"],
        told["origin_us"],
        told["last_us"],
        numbers,
        {int(number): _histogram(pairs) for number, pairs in told["later_scripts"]},
    )


def summarise_logs(paths: Sequence[str | Path], *, open_loop: bool = False) -> LogSummary:
    """Read all files of one run: pgbench writes one per thread."""
    parts = (part for path in paths for part in cut_log(Path(path)))
    return merged(summarise_part(part, open_loop=open_loop) for part in parts)


def _require_one_run(seconds: Mapping[int, int]) -> None:
    first, last = (min(seconds), max(seconds)) if seconds else (0, 0)
    if last - first > LONGEST_RUN_S:
        raise UsageError(
            f"the log spans {last - first} s, from second {first} to {last}",
            hint="no run takes more than 31 days: a line has another time than the rest; remove it",
        )


def _blocks(part: LogPart, open_loop: bool, origin_us: int | None) -> Iterator[LogSummary]:
    """Yield blocks of whole lines; a last line without a newline is torn, and is counted instead of read."""
    path, offset_bytes = part.path, part.begin
    columns: tuple[str, ...] | None = None
    with path.open("rb", buffering=0) as file:
        while offset_bytes < part.end:
            file.seek(offset_bytes)
            # What follows the last line end is read again with the next block: cheaper than copying blocks.
            data = file.read(min(BLOCK_BYTES, part.end - offset_bytes))
            cut = data.rfind(b"\n") + 1
            if cut == 0 and len(data) == BLOCK_BYTES:
                raise UsageError(
                    f"{path}: no line ends within {BLOCK_BYTES} bytes: this is not a pgbench log",
                    hint="name the files that `pgbench --log` wrote: pgbench_log.PID and pgbench_log.PID.N",
                )
            if cut == 0:
                yield LogSummary({}, 1, Histogram(), {}, None)
                return
            columns = columns or _columns(path)
            yield _parse_block(path, data, cut, columns, open_loop, offset_bytes, origin_us)
            offset_bytes += cut


def _columns(path: Path) -> tuple[str, ...]:
    """Return the columns of the log, by its first line, for all of its parts."""
    with path.open("rb") as file:
        fields = file.readline(BLOCK_BYTES).split()
    if len(fields) >= 5 and fields[0].isdigit() and int(fields[0]) > 100_000_000:
        raise UsageError(
            f"{path}: this is an aggregated pgbench log (--aggregate-interval): it holds no single latencies",
            hint="run pgbench with -l and without --aggregate-interval; --sampling-rate keeps the log small",
        )
    if not 6 <= len(fields) <= 8:
        raise UsageError(
            f"{path}: line 1 has {len(fields)} columns, a per-transaction log of pgbench has 6 to 8",
            hint="give the files that pgbench -l wrote (pgbench_log.PID, pgbench_log.PID.N)",
        )
    return _COLUMNS[: len(fields)]


def _parse_block(
    path: Path,
    data: bytes,
    cut: int,
    columns: tuple[str, ...],
    open_loop: bool,
    offset_bytes: int,
    origin_us: int | None,
) -> LogSummary:
    lag = "seventh" if len(columns) == 8 or (open_loop and len(columns) == 7) else None
    fields = _fields(data[:cut], len(columns))
    if fields is None:
        raise _damaged(path, data[:cut], columns, offset_bytes)
    table = dict(zip(columns, fields, strict=True))
    epoch_s, latency_us = table["epoch_s"], table["latency_us"]
    if latency_us.min() < -len(WORDS):
        raise _damaged(path, data[:cut], columns, offset_bytes)
    lag_us = int(table[lag].max(initial=0)) if lag else None
    script = np.minimum(table["script"], MOST_SCRIPTS)
    last_us, numbers = 0, dict[int, tuple[int, int]]()
    if origin_us is not None:
        origin_s = origin_us // 1_000_000
        _require_one_run({origin_s: 1, int(epoch_s.min(initial=origin_s)): 1, int(epoch_s.max(initial=origin_s)): 1})
        since_us = epoch_s * 1_000_000 + table["epoch_us"] - origin_us
        last_us = int(since_us.max(initial=0))
        epoch_s = since_us // 1_000_000
        client, number = table["client"], table["number"]
        _require_one_clock(path, client, number, since_us)
        numbers = _numbers_of(client, number)
    counted = {}
    if latency_us.min() < 0:
        counts = [int((latency_us == -number).sum()) for number in range(1, len(WORDS) + 1)]
        counted = {word: count for word, count in zip(WORDS, counts, strict=True) if count}
        has_latency = latency_us >= 0
        epoch_s, latency_us, script = epoch_s[has_latency], latency_us[has_latency], script[has_latency]
    histogram = Histogram()
    histogram.add(latency_us)
    later = {int(number): Histogram() for number in (np.unique(script[script > 0]) if script.any() else ())}
    for one, latencies in later.items():
        latencies.add(latency_us[script == one])
    seconds = _count_seconds(epoch_s)
    return LogSummary(counted, 0, histogram, seconds, lag_us, origin_us or 0, last_us, numbers, later)


def _fields(text: bytes, columns: int) -> Iterable[Seconds] | None:
    """Return the columns of whole lines, with -1, -2, ... as the latencies of WORDS; None if a line is another one."""
    content = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero(content <= ord(" "))
    is_end = content[ends] == ord("\n")
    lines = int(is_end.sum())
    if ends.size != lines * columns or not is_end[columns - 1 :: columns].all() or np.diff(ends).max() > _LONGEST:
        return None
    rest = text.translate(None, b"0123456789 \n")
    for number, word in enumerate(WORDS if rest else (), 1):
        text = text.replace(f" {word} ".encode(), f" -{number} ".encode())
    if rest and text.translate(None, b"0123456789 \n").strip(b"-"):
        return None
    with warnings.catch_warnings():  # of text that is no number
        warnings.simplefilter("ignore", DeprecationWarning)
        numbers = np.fromstring(text, dtype=np.int64, sep=" ")
    table = numbers.reshape(lines, columns) if numbers.size == lines * columns else None
    # Only a latency is a word.
    return None if table is None or (rest and np.delete(table, 2, axis=1).min() < 0) else table.T


def _damaged(path: Path, data: bytes, columns: tuple[str, ...], offset_bytes: int) -> UsageError:
    """The error for the first line of `data` that is none of a log."""
    number, why = _first_bad_line(data, len(columns))
    line = _lines_before(path, offset_bytes) + number
    return UsageError(
        f"{path}: line {line} is not a line of a pgbench log: {why}",
        hint="remove the damaged lines, or give the log of one run only",
    )


def _require_one_clock(path: Path, client: Seconds, number: Seconds, since_us: Seconds) -> None:
    """Refuses a log in which a transaction of a client ends before those that the client ran earlier."""
    order = np.argsort(client, kind="stable")
    later = (np.diff(client[order]) == 0) & (np.diff(number[order]) > 0)
    back_us = np.where(later, -np.diff(since_us[order]), 0)
    if back_us.max(initial=0) > CLOCK_US:
        raise UsageError(
            f"{path}: the clock was set back by {back_us.max() / 1e6:.0f} s during the run: its length is unknown",
            hint="give the part of the log before or after that moment, or measure again",
        )


def _numbers_of(client: Seconds, number: Seconds) -> dict[int, tuple[int, int]]:
    """Return the first and last transaction number of each client."""
    if client.size == 0:
        return {}
    clients, place = np.unique(client, return_inverse=True)
    low, high = np.full(clients.size, np.iinfo(np.int64).max), np.zeros(clients.size, dtype=np.int64)
    np.minimum.at(low, place, number)
    np.maximum.at(high, place, number)
    return dict(zip(clients.tolist(), zip(low.tolist(), high.tolist(), strict=True), strict=True))


def _count_seconds(epoch_s: Seconds) -> dict[int, int]:
    """Return the number of rows of each second; those of a block of a real log lie close together, even if unsorted."""
    if epoch_s.size == 0:
        return {}
    first = int(epoch_s.min())
    if int(epoch_s.max()) - first > LONGEST_RUN_S:
        found, counts = np.unique(epoch_s, return_counts=True)
        return dict(zip(found.tolist(), counts.tolist(), strict=True))
    counts = np.bincount(epoch_s - first)
    found = np.flatnonzero(counts)
    return dict(zip((found + first).tolist(), counts[found].tolist(), strict=True))


def _lines_before(path: Path, offset_bytes: int) -> int:
    """Counted only for the message about a damaged line: reading twice is cheaper than counting always."""
    lines = 0
    with path.open("rb") as file:
        while offset_bytes > 0 and (data := file.read(min(BLOCK_BYTES, offset_bytes))):
            lines += data.count(b"\n")
            offset_bytes -= len(data)
    return lines


def _first_bad_line(text: bytes, columns: int) -> tuple[int, str]:
    for number, line in enumerate(io.BytesIO(text), start=1):
        fields = line.decode(errors="replace").split()
        if len(fields) != columns:
            return number, f"{len(fields)} columns instead of {columns}"
        wrong = [f for i, f in enumerate(fields) if not f.isdigit() and not (i == 2 and f in WORDS)]
        if wrong:
            return number, f"{wrong[0]!r} is not a number"
    return 1, ""
