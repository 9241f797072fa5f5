"""Output of pgbench 9.4 to 19 as numbers. A line of a result that no rule knows is an error.

Standard output carries the result, standard error the progress (`-P`) and the phases of `-i`. `importers.pgbench_text`
finds both in files that people keep.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pgstrata.errors import PgstrataError


class PgbenchOutputError(PgstrataError):
    """pgbench's output is not complete or not understood."""


@dataclass(frozen=True)
class ScriptResult:
    """One of several scripts of a run."""

    name: str
    weight: int | None = None
    transactions: int = 0
    tps: float = 0.0
    failed: int = 0
    skipped: int = 0
    latency_avg_ms: float | None = None
    latency_stddev_ms: float | None = None


@dataclass(frozen=True)
class PgbenchResult:
    """A run's result. `tps` leaves out the time to connect, as pgbench's headline does in every major."""

    script: str
    scale: int
    protocol: str
    clients: int
    jobs: int
    transactions: int
    tps: float
    version: str | None = None
    """Absent before PostgreSQL 14."""
    duration_s: int | None = None
    transactions_per_client: int | None = None
    transactions_planned: int | None = None
    max_tries: int = 1
    failed: int = 0
    retried: int = 0
    retries: int = 0
    skipped: int = 0
    late: int = 0
    latency_limit_ms: float | None = None
    latency_avg_ms: float | None = None
    latency_stddev_ms: float | None = None
    lag_avg_ms: float | None = None
    lag_max_ms: float | None = None
    initial_connection_ms: float | None = None
    average_connection_ms: float | None = None
    tps_with_connections: float | None = None
    partitions: int = 0
    """0: `pgbench_accounts` is one table."""
    reconnects: bool = False
    """`--connect`: the throughput includes a connection for each transaction. Not known before PostgreSQL 14."""
    scripts: tuple[ScriptResult, ...] = ()


@dataclass(frozen=True)
class ProgressRow:
    """One progress line; `t_s` counts from the start of the run. Field names as in record.schema."""

    t_s: float
    tps: float
    latency_ms: float
    latency_stddev_ms: float
    lag_ms: float | None = None
    failed: int | None = None
    retried: int | None = None
    skipped: int | None = None


@dataclass(frozen=True)
class Progress:
    """The progress lines of a run, and everything else that pgbench said on standard error."""

    rows: tuple[ProgressRow, ...]
    messages: tuple[str, ...] = ()
    started_epoch_s: float | None = None
    """Known only with --progress-timestamp."""
    messages_cut: int = 0
    """Lines beyond those in `messages`."""


@dataclass(frozen=True)
class InitTimes:
    """Time that loading took, and its phases under pgbench's own names, in the order they ran."""

    total_s: float
    phases_s: dict[str, float] = field(default_factory=dict)


# ---------------------------------------------------------------- result

_DECIMAL = r"\d{1,18}(?:\.\d{1,18})?"
_NUMBER = rf"(-?{_DECIMAL}|-?nan|-?inf)"
_SHARE = r"(?: \([^)]*\))?"


def _rules(*rules: tuple[str, dict[str, Any]]) -> tuple[tuple[re.Pattern[str], dict[str, Any]], ...]:
    return tuple((re.compile(f"^{pattern}$", re.IGNORECASE), fields) for pattern, fields in rules)


_RESULT_RULES = _rules(
    (r"pgbench \((.+)\)", {"version": str}),
    (r"transaction type: (.*)", {"script": str}),
    (r"scaling factor: (\d+)", {"scale": int}),
    (r"partition method: .*", {}),
    (r"partitions: (\d+)", {"partitions": int}),
    (r"query mode: (\w+)", {"protocol": str}),
    (r"number of clients: (\d+)", {"clients": int}),
    (r"number of threads: (\d+)", {"jobs": int}),
    (r"maximum number of tries: (\d+)", {"max_tries": int}),
    (r"duration: (\d+) s", {"duration_s": int}),
    (r"number of transactions per client: (\d+)", {"transactions_per_client": int}),
    (r"number of transactions actually processed: (\d+)", {"transactions": int}),
    (
        r"number of transactions actually processed: (\d+)/(-?\d+)",
        {"transactions": int, "transactions_planned": int},
    ),
    (rf"number of failed transactions: (\d+){_SHARE}", {"failed": int}),
    (rf"number of (?:serialization|deadlock|other) failures: \d+{_SHARE}", {}),
    (rf"number of transactions retried: (\d+){_SHARE}", {"retried": int}),
    (r"total number of retries: (\d+)", {"retries": int}),
    (rf"number of transactions skipped: (\d+){_SHARE}", {"skipped": int}),
    (
        rf"number of transactions above the {_NUMBER} ms latency limit: (\d+)(?:/\d+)?{_SHARE}",
        {"latency_limit_ms": float, "late": int},
    ),
    (rf"latency average(?: =|:) {_NUMBER} ms{_SHARE}", {"latency_avg_ms": float}),
    (rf"latency stddev(?: =|:) {_NUMBER} ms", {"latency_stddev_ms": float}),
    (
        rf"rate limit schedule lag: avg {_NUMBER} \(max {_NUMBER}\) ms",
        {"lag_avg_ms": float, "lag_max_ms": float},
    ),
    (rf"initial connection time = {_NUMBER} ms", {"initial_connection_ms": float}),
    (rf"average connection time = {_NUMBER} ms", {"average_connection_ms": float}),
    (rf"tps = {_NUMBER} \(without initial connection time\)", {"tps": float}),
    (rf"tps = {_NUMBER} \((including) reconnection times\)", {"tps": float, "reconnects": bool}),
    (rf"tps = {_NUMBER} \(including connections establishing\)", {"tps_with_connections": float}),
    (rf"tps = {_NUMBER} \(excluding connections establishing\)", {"tps": float}),
    (r"statement latencies in milliseconds.*:", {}),
    (r"\s+[\d.]+(?:\s+\d+){0,2}\s{1,2}\S.*", {}),  # one statement
    (r"\s+[\d.]+\t\S.*", {}),  # one statement, before PostgreSQL 10
    (r"script statistics:", {}),
)

_SCRIPT_START = re.compile(r"^SQL script \d+: (.*)$")

_SCRIPT_RULES = _rules(
    (r" - weight: (\d+) \(targets .*\)", {"weight": int}),
    (rf" - (\d+) transactions \([^,]*, tps = {_NUMBER}\)", {"transactions": int, "tps": float}),
    (r" - \d+ transactions \([^,]*\)", {}),
    (rf" - number of transactions actually processed: (\d+) \(tps = {_NUMBER}\)", {"transactions": int, "tps": float}),
    (rf" - number of failed transactions: (\d+){_SHARE}", {"failed": int}),
    (rf" - number of (?:serialization|deadlock|other) failures: \d+{_SHARE}", {}),
    (rf" - number of transactions retried: \d+{_SHARE}", {}),
    (r" - total number of retries: \d+", {}),
    (rf" - number of transactions skipped: (\d+){_SHARE}", {"skipped": int}),
    (rf" - number of transactions above the .*{_SHARE}", {}),
    (rf" - latency average = {_NUMBER} ms", {"latency_avg_ms": float}),
    (rf" - latency stddev = {_NUMBER} ms", {"latency_stddev_ms": float}),
    (r" - statement latencies in milliseconds.*:", {}),
)

LONGEST_LINE = 4000
"""Characters; Python reads numbers of 4300 digits at most."""

_NEEDED = ("script", "scale", "protocol", "clients", "jobs", "transactions")


def parse_result(stdout: str) -> PgbenchResult:
    """The result that pgbench prints at the end of a run.

    Raises PgbenchOutputError for a line that no rule knows and for a result without its main lines. A run that
    processed nothing has no latency and a tps of 0.
    """
    found: dict[str, Any] = {}
    scripts: list[ScriptResult] = []
    for line in _lines(stdout):
        start = _SCRIPT_START.match(line)
        if start:
            scripts.append(ScriptResult(start[1]))
        elif scripts and line.startswith(" - "):
            scripts[-1] = replace(scripts[-1], **_apply(_SCRIPT_RULES, line))
        else:
            more = _apply(_RESULT_RULES, line)
            if more.keys() & found.keys():
                raise PgbenchOutputError(f"two results of pgbench in one text: {line!r} comes twice")
            found.update(more)
    if found.get("transactions") == 0:
        found.setdefault("tps", 0.0)
    missing = [name for name in (*_NEEDED, "tps") if name not in found]
    if missing:
        raise PgbenchOutputError(f"pgbench's result is not complete: no {', '.join(missing)} in {_excerpt(stdout)}")
    return PgbenchResult(**found, scripts=tuple(_processed(scripts, found)))


def _processed(scripts: Sequence[ScriptResult], total: Mapping[str, int]) -> Iterator[ScriptResult]:
    """Yield the scripts with the number of their processed transactions: before PostgreSQL 15 pgbench counts skipped
    ones too, though not in the total."""
    beyond = sum(one.transactions for one in scripts) - total["transactions"]
    # Threads count scripts without a lock, so that the sum misses a few.
    counted_too = abs(beyond - total.get("skipped", 0)) < abs(beyond)
    for one in scripts:
        yield replace(one, transactions=max(0, one.transactions - one.skipped)) if counted_too else one


def is_result_line(line: str) -> bool:
    """True for a line that pgbench prints in its result."""
    known = (rule for rules in (_RESULT_RULES, _SCRIPT_RULES) for rule, _ in rules)
    return bool(_SCRIPT_START.match(line)) or any(rule.match(line) for rule in known)


def _apply(rules: Iterable[tuple[re.Pattern[str], dict[str, Any]]], line: str) -> dict[str, Any]:
    for pattern, fields in rules:
        match = pattern.match(line)
        if match:
            return {name: kind(match[n]) for n, (name, kind) in enumerate(fields.items(), 1)}
    raise PgbenchOutputError(f"line of pgbench's output is not understood: {line!r}")


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if len(line) > LONGEST_LINE:
            raise PgbenchOutputError(f"a line of {len(line)} characters is none of pgbench's: {line[:80]!r}")
        if line.strip():
            yield line.rstrip()


def _excerpt(text: str) -> str:
    return repr(text[:200]) if text.strip() else "an empty output"


# ---------------------------------------------------------------- progress

_PROGRESS = re.compile(
    rf"^progress: ({_DECIMAL}) s, {_NUMBER} tps, lat {_NUMBER} ms stddev {_NUMBER}"
    rf"(?:, (\d+) failed)?(?:, lag {_NUMBER} ms)?(?:, (\d+) skipped)?(?:, (\d+) retried, \d+ retries)?$",
    re.IGNORECASE,
)

_MOST_MESSAGES = 200
_LONGEST_MESSAGE = 400
"""Characters."""

_EARLIEST_EPOCH_S = 1e9
"""Progress stamps above this are Unix times: no run lasts for 30 years."""


def parse_progress(stderr: str) -> Progress:
    """The progress lines of a run; seconds that pgbench did not report are simply not there.

    Every other line is a message of pgbench, the server or the script. Raises PgbenchOutputError for a line that
    begins as progress and is not understood.
    """
    rows: list[ProgressRow] = []
    said: list[str] = []
    for line in filter(str.strip, stderr.splitlines()):
        match = _PROGRESS.match(line.rstrip()) if len(line) <= LONGEST_LINE else None
        if match:
            rows.append(_progress_row(match))
        elif line.startswith("progress: "):
            raise PgbenchOutputError(f"line of pgbench's progress is not understood: {line[:_LONGEST_MESSAGE]!r}")
        else:
            said.append(line.rstrip()[:_LONGEST_MESSAGE])
    messages, cut = tuple(said[:_MOST_MESSAGES]), max(0, len(said) - _MOST_MESSAGES)
    if rows and rows[0].t_s > _EARLIEST_EPOCH_S:
        interval_s = round(min((b.t_s - a.t_s for a, b in itertools.pairwise(rows)), default=1.0)) or 1
        started_s = rows[0].t_s - interval_s
        shifted = tuple(replace(row, t_s=round(row.t_s - started_s, 3)) for row in rows)
        return Progress(shifted, messages, started_s, cut)
    return Progress(tuple(rows), messages, messages_cut=cut)


def _progress_row(match: re.Match[str]) -> ProgressRow:
    failed, skipped, retried = (None if match[n] is None else int(match[n]) for n in (5, 7, 8))
    lag_ms = None if match[6] is None else float(match[6])
    t_s, tps, latency_ms, stddev_ms = map(float, match.group(1, 2, 3, 4))
    return ProgressRow(t_s, tps, latency_ms, stddev_ms, lag_ms, failed, retried, skipped)


# ---------------------------------------------------------------- loading

_INIT_DONE = re.compile(rf"^done in ({_DECIMAL}) s \((.*)\)\.$")
_INIT_PHASE = re.compile(rf"^([a-z -]+?) ({_DECIMAL}) s$")
_INIT_KNOWN = re.compile(
    r"^(?:dropping old tables\.\.\.|creating (?:tables|primary keys|foreign keys|\d+ partitions)\.\.\.|"
    r"generating data \((?:client|server)-side\)\.\.\.|vacuuming\.\.\.|"
    r"\d+ of \d+ tuples \(\d+%\)(?: of \S+)? done \(elapsed [\d.]+ s, remaining [\d.]+ s\)\s*|"
    r"NOTICE: .*|WARNING: .*|pgbench: .*|Password:\s*)$"
)


def parse_init(stderr: str) -> InitTimes:
    """The phases of `pgbench -i`, in seconds.

    Raises PgbenchOutputError for an unknown line and when pgbench did not say that it was done.
    """
    times: InitTimes | None = None
    for line in _lines(stderr.replace("\r", "\n")):
        done = _INIT_DONE.match(line)
        if done:
            times = InitTimes(float(done[1]), dict(_phase(part) for part in done[2].split(", ")))
        elif not _INIT_KNOWN.match(line):
            raise PgbenchOutputError(f"line of pgbench -i is not understood: {line!r}")
    if times is None:
        raise PgbenchOutputError(f"pgbench -i did not say that it was done: {_excerpt(stderr)}")
    return times


def _phase(part: str) -> tuple[str, float]:
    match = _INIT_PHASE.match(part)
    if match is None:
        raise PgbenchOutputError(f"phase of pgbench -i is not understood: {part!r}")
    return match[1], float(match[2])
