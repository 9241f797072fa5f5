"""Per-transaction logs of pgbench (`-l`): exact percentiles per second and per run, in bounded memory.

The log is read in blocks; the latencies of a second are kept until every file of the run has passed that second,
then reduced to their percentiles and to a histogram of whole microseconds. Percentiles interpolate linearly between
order statistics, as PostgreSQL's `percentile_cont` does. They are taken from merged counts, never averaged.

Format (pgbench documentation, "Per-Transaction Logging"): `client_id transaction_no time script_no time_epoch
time_us [schedule_lag] [retries]`; `time` is in microseconds, counted from the scheduled start under `--rate`, or one
of the words `skipped`, `failed`, `serialization`, `deadlock`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from pgstrata.errors import UsageError

BLOCK_BYTES = 16 << 20
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
PERCENTILES = ("p50", "p90", "p95", "p99", "p999")
"""Names of the QUANTILES."""
WORDS = ("skipped", "failed", "serialization", "deadlock")
_COLUMNS = ("client", "number", "latency_us", "script", "epoch_s", "epoch_us", "seventh", "eighth")
_DENSE_US = 1 << 20
LONGEST_RUN_S = 31 * 86400
_LATE_S = 2
"""Seconds for which a clock stepped back (or rows out of order) still find their second open."""

Latencies = npt.NDArray[np.int64]


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

    def merge(self, other: Histogram) -> None:
        """Adds the counts of another run or stack."""
        self.dense += other.dense
        for value, count in other.tail.items():
            self.tail[value] = self.tail.get(value, 0) + count

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
class SecondSummary:
    """One second of a run, by the clock of the client; latencies in milliseconds."""

    epoch_s: int
    transactions: int
    quantiles_ms: tuple[float, ...]
    maximum_ms: float


@dataclass(frozen=True)
class LogSummary:
    """A run's log, reduced. `words` counts the transactions without a latency, `torn_lines` what was cut off."""

    transactions: int
    words: dict[str, int]
    torn_lines: int
    out_of_order: int
    histogram: Histogram
    seconds: tuple[SecondSummary, ...]
    maximum_lag_ms: float | None

    @property
    def percentiles_ms(self) -> dict[str, float]:
        """PERCENTILES of the run."""
        return {n: v / 1000 for n, v in zip(PERCENTILES, self.histogram.quantiles_us(QUANTILES), strict=True)}


@dataclass(frozen=True)
class _Block:
    epoch_s: Latencies
    latency_us: Latencies
    words: dict[str, int]
    torn_lines: int
    lag_us: int | None


def summarise_logs(paths: Sequence[str | Path], *, open_loop: bool = False) -> LogSummary:
    """Reads all files of one run (pgbench writes one a thread) side by side, in time order.

    `open_loop` says that the run had `--rate`, so that a seventh column is the schedule lag.
    """
    readers = [_blocks(Path(p), open_loop) for p in paths]
    reduction = _Reduction(len(readers))
    waiting = list(range(len(readers)))
    while waiting:
        slowest = min(waiting, key=lambda index: reduction.reached_s[index])
        block = next(readers[slowest], None)
        if block is None:
            waiting.remove(slowest)
            reduction.reached_s[slowest] = _END
        else:
            reduction.take(slowest, block)
        reduction.close_seconds()
    return reduction.summary()


_END = 1 << 62


class _Reduction:
    def __init__(self, files: int) -> None:
        self.reached_s = [-1] * files
        self.pending: dict[int, list[Latencies]] = {}
        self.closed_s = -1
        self.seconds: list[SecondSummary] = []
        self.histogram = Histogram()
        self.words = dict.fromkeys(WORDS, 0)
        self.torn_lines = 0
        self.out_of_order = 0
        self.lag_us: int | None = None

    def take(self, index: int, block: _Block) -> None:
        self.torn_lines += block.torn_lines
        for word, count in block.words.items():
            self.words[word] += count
        if block.lag_us is not None:
            self.lag_us = max(self.lag_us or 0, block.lag_us)
        if block.epoch_s.size == 0:
            return
        self.reached_s[index] = max(self.reached_s[index], int(block.epoch_s[-1]) - _LATE_S)
        for second, latencies in _by_second(block.epoch_s, block.latency_us):
            if second <= self.closed_s:
                self.out_of_order += latencies.size
                self.histogram.add(latencies)
            elif latencies.size:
                self.pending.setdefault(second, []).append(latencies)

    def close_seconds(self) -> None:
        reached = min(self.reached_s)
        for second in sorted(s for s in self.pending if s < reached):
            latencies = np.concatenate(self.pending.pop(second))
            self.histogram.add(latencies)
            quantiles = np.quantile(latencies, QUANTILES) / 1000
            self.seconds.append(
                SecondSummary(second, latencies.size, tuple(quantiles.tolist()), int(latencies.max()) / 1000)
            )
            self.closed_s = second

    def summary(self) -> LogSummary:
        span_s = self.seconds[-1].epoch_s - self.seconds[0].epoch_s if self.seconds else 0
        if span_s > LONGEST_RUN_S:
            raise UsageError(
                f"the log spans {span_s} s, from second {self.seconds[0].epoch_s} to {self.seconds[-1].epoch_s}",
                hint="no run takes more than 31 days: a line has another time than the rest; remove it",
            )
        return LogSummary(
            transactions=self.histogram.count,
            words={word: count for word, count in self.words.items() if count},
            torn_lines=self.torn_lines,
            out_of_order=self.out_of_order,
            histogram=self.histogram,
            seconds=tuple(self.seconds),
            maximum_lag_ms=None if self.lag_us is None else self.lag_us / 1000,
        )


def _by_second(epoch_s: Latencies, latency_us: Latencies) -> Iterator[tuple[int, Latencies]]:
    steps = np.diff(epoch_s)
    if (steps < 0).any():
        order = np.argsort(epoch_s, kind="stable")
        epoch_s, latency_us = epoch_s[order], latency_us[order]
        steps = np.diff(epoch_s)
    starts = np.concatenate([[0], np.flatnonzero(steps) + 1])
    for start, part in zip(starts, np.split(latency_us, starts[1:]), strict=True):
        yield int(epoch_s[start]), part[part >= 0]


def _blocks(path: Path, open_loop: bool) -> Iterator[_Block]:
    """Blocks of whole lines; a last line without newline was torn and is counted, not read."""
    columns: tuple[str, ...] | None = None
    offset_bytes = 0
    with path.open("rb", buffering=0) as file:
        size_bytes = BLOCK_BYTES
        while data := file.read(size_bytes):
            cut = data.rfind(b"\n") + 1
            if cut == 0 and len(data) == size_bytes:
                raise UsageError(
                    f"{path}: no line ends within {size_bytes} bytes: this is not a pgbench log",
                    hint="name the files that `pgbench --log` wrote: pgbench_log.PID and pgbench_log.PID.N",
                )
            # What follows the last line end is read again with the next block: cheaper than copying blocks.
            torn = len(data) > cut and len(data) < size_bytes and not file.read(1)
            if cut:
                columns = columns or _columns(path, data[: data.index(b"\n")])
                yield _parse_block(path, data, cut, columns, open_loop, offset_bytes)
                offset_bytes += cut
            if torn:
                empty = np.empty(0, dtype=np.int64)
                yield _Block(empty, empty, {}, 1, None)
                return
            file.seek(offset_bytes)


def _columns(path: Path, line: bytes) -> tuple[str, ...]:
    fields = line.split()
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
    path: Path, data: bytes, cut: int, columns: tuple[str, ...], open_loop: bool, offset_bytes: int
) -> _Block:
    lag = "seventh" if len(columns) == 8 or (open_loop and len(columns) == 7) else None
    wanted = ["latency_us", "epoch_s", *([lag] if lag else [])]
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(memoryview(data)[:cut]),
            read_options=pa.csv.ReadOptions(column_names=list(columns), block_size=1 << 20),
            parse_options=pa.csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
            convert_options=pa.csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.int64()),
                null_values=list(WORDS),
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        number, why = _first_bad_line(data[:cut], len(columns))
        raise UsageError(
            f"{path}: line {_lines_before(path, offset_bytes) + number} is not a line of a pgbench log: {why or error}",
            hint="remove the damaged lines, or give the log of one run only",
        ) from None
    latency = table.column("latency_us")
    words = {w: data.count(f" {w} ".encode(), 0, cut) for w in WORDS} if latency.null_count else {}
    lag_us = pa.compute.max(table.column(lag)).as_py() if lag else None
    return _Block(table.column("epoch_s").to_numpy(), latency.fill_null(-1).to_numpy(), words, 0, lag_us)


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
