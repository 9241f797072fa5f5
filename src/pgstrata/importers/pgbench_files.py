"""`pgstrata import pgbench`: pgbench's output and logs.

A source is `STACK=FILE` or `FILE` (its stem is then the stack's name). A file is the output of one or several runs
(standard output, with or without standard error, progress and other lines around it), a log of `-l`, or one of
`--aggregate-interval`; the logs of one run are the files `PREFIX.PID` and `PREFIX.PID.N`. The n-th output and the n-th
log of a stack belong to the same run; a stack with logs alone gets its figures from them. Runs have no blocks, so they
are unpaired. A log is split into parts of whole lines, each a task for an executor.

Runs with different measurements (protocol, partitions, connections, rate limit) are separate cells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers.pgbench_text import PgbenchRun, PgbenchText, printed_run, read_pgbench_text
from pgstrata.importers.registry import hint_for
from pgstrata.importers.runs import UNPAIRED, ImportSummary
from pgstrata.importers.source import read_text
from pgstrata.importers.tool_runs import write_runs
from pgstrata.workload.pgbench import with_percentiles
from pgstrata.workload.pgbench_aggregates import is_aggregate_line, read_aggregates
from pgstrata.workload.pgbench_logs import (
    LogPart,
    LogSummary,
    begin_of,
    cut_log,
    merged,
    parse_summary,
    render_summary,
    summarise_part,
)
from pgstrata.workload.pgbench_output import PgbenchOutputError
from pgstrata.workload.tool_run import Row, ToolRun

_LOG_LINE = re.compile(rb"^\d+ \d+ (\d+|skipped|failed|serialization|deadlock|other) \d+ \d+ \d+( \d+){0,2}\r?\n")
_THREAD = re.compile(r"\.\d+$")
_SOURCES_HINT = "give STACK=FILE for each run, for example ext4=run1.out"
SAMPLED_BELOW = 0.9
"""A log with a smaller share of the transactions is a sample: other causes lose far fewer lines."""
FULL_SECOND = 0.98


@dataclass
class _Sources:
    """The files of one stack, in the given order; logs by the run in their names."""

    outputs: list[tuple[Path, PgbenchRun]] = field(default_factory=list)
    logs: dict[str, list[Path]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Run:
    """One run by its output, if it has one, and its logs, which are being read."""

    printed: ToolRun
    logs: Sequence[Path] = ()
    parts: Sequence[Future[str]] = ()


def import_pgbench(sources: Sequence[str], out: Path, executor: Executor, *, margin: float = 0.02) -> ImportSummary:
    """Import runs of pgbench into the new campaign directory `out`."""
    rejected: Counter[str] = Counter()
    notices = [UNPAIRED]
    by_stack = _sort_sources(sources, rejected)
    begun = [run for name, files in by_stack.items() for run in _begun(name, files, executor)]
    runs = [_with_logs(run, rejected, notices) for run in begun]
    return write_runs("pgbench", "pgbench", runs, out, rejected, notices, margin=margin)


# ---------------------------------------------------------------- files


def _sort_sources(sources: Sequence[str], rejected: Counter[str]) -> dict[str, _Sources]:
    by_stack: dict[str, _Sources] = {}
    given = {file for source in sources for file in [source.rpartition("=")[2]]}
    for source in sources:
        name, _, file = source.rpartition("=")
        if not file:
            raise UsageError(f"{source!r} names no file", hint=_SOURCES_HINT)
        path = Path(file)
        files = by_stack.setdefault(name or _THREAD.sub("", path.stem), _Sources())
        if _is_log(path):
            files.logs.setdefault(_run_of(file, given), []).append(path)
            continue
        text = _read_output(path)
        files.outputs += [(path, run) for run in text.runs]
        if text.left_out:
            rejected["lines around the results of pgbench"] += len(text.left_out)
    if not by_stack:
        raise UsageError("no file to import", hint=_SOURCES_HINT)
    return by_stack


def _is_log(path: Path) -> bool:
    try:
        head = _head(path)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="name files that exist and that you may read"
        ) from None
    return _LOG_LINE.match(head) is not None or is_aggregate_line(head)


def _run_of(file: str, given: set[str]) -> str:
    """Return the run of a log: PREFIX.PID and PREFIX.PID.N are threads of one run; without the first, a number is part
    of the name."""
    first = _THREAD.sub("", file)
    return first if first in given else file


def _read_output(path: Path) -> PgbenchText:
    text = read_text(path)
    try:
        return read_pgbench_text(text)
    except PgbenchOutputError as error:
        own = "a file holds whole results of pgbench, or a log of pgbench -l; leave out those that do not"
        raise UsageError(
            f"{path}: {error.message}", hint=own if "transaction type: " in text else hint_for(text, own)
        ) from None


def _begun(name: str, files: _Sources, executor: Executor) -> Iterator[_Run]:
    """Yield the runs of a stack; the workers of the executor read their logs."""
    logs = list(files.logs.values())
    if files.outputs and logs and len(files.outputs) != len(logs):
        raise UsageError(
            f"stack {name!r} has {len(files.outputs)} outputs and the logs of {len(logs)} runs: "
            "which belong together cannot be told",
            hint="give as many logs as outputs, in the same order, or only one kind",
        )
    printed = [printed_run(path, run, name, {}) for path, run in files.outputs]
    for number in range(max(len(printed), len(logs))):
        own = logs[number] if logs else []
        run = printed[number] if printed else ToolRun(str(own[0]), "imported", stack=name)
        asked = log_parts(own, open_loop=run.rate_tps is not None)
        parts = [executor.submit(read_part, *part) for part in asked]
        yield _Run(replace(run, raw=(*run.raw, *own)), own, parts)


def _head(path: Path) -> bytes:
    with path.open("rb") as opened:
        return opened.read(4096)


def log_parts(paths: Sequence[Path], *, open_loop: bool) -> list[tuple[str, int, int, int, bool, int]]:
    """Return the parts of the logs of a run as they are here, as `read_part` takes them; a worker must find the same
    files."""
    single = [path for path in paths if not is_aggregate_line(_head(path))]
    origin_us = begin_of(single) if single else 0
    return [
        (str(path.resolve()), path.stat().st_size, part.begin, part.end, open_loop, origin_us)
        for path in single
        for part in cut_log(path)
    ]


def read_part(path: str, size_bytes: int, begin: int, end: int, open_loop: bool, origin_us: int) -> str:
    """Read a part of a log of that size and return its data as JSON. UsageError if the file is not the expected one."""
    _require_same(Path(path), size_bytes)
    part = LogPart(Path(path), begin, end)
    return render_summary(summarise_part(part, open_loop=open_loop, origin_us=origin_us))


def _require_same(path: Path, size_bytes: int) -> None:
    try:
        now_bytes = path.stat().st_size
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=_SOURCES_HINT) from None
    if now_bytes != size_bytes:
        raise UsageError(
            f"{path} has {now_bytes} bytes, and had {size_bytes} when the import began",
            hint="import it when its run has ended",
        )


# ---------------------------------------------------------------- runs


def _with_logs(run: _Run, rejected: Counter[str], notices: list[str]) -> ToolRun:
    """Return the run with what its logs show; one without an output has its figures from them."""
    printed = run.printed
    if printed.incomplete or not run.logs:
        return printed
    if not run.parts:
        return _with_aggregates(printed, run.logs)
    log = merged(parse_summary(part.result()) for part in run.parts)
    if log.torn_lines:
        rejected["torn last line of a log"] += log.torn_lines
    sampled = log.sampled_share < SAMPLED_BELOW
    if log.sampled_share > 1:
        raise UsageError(
            f"{run.logs[0]}: a client's transactions of the same number come more than once: several runs in one log",
            hint="cut it where the numbers in the second column begin again, and give each part as a run",
        )
    if sampled:
        share = f"{100 * log.sampled_share:.2g} %"
        notices.append(f"{printed.where} holds {share} of the transactions: a sample, whose seconds are not known")
    progress = printed.progress or ([] if sampled else _by_second(log))
    if not printed.figures:
        return replace(_from_log(printed, log), progress=progress)
    # Without progress or rate pgbench divides time by transactions instead of measuring latency.
    latency = {"latency_avg_ms": log.histogram.mean_us / 1000} if log.transactions else {}
    known = {
        "started": _iso(log.origin_us) if log.seconds else "",
        "percentiles_ms": log.percentiles_ms,
        "scripts": with_percentiles(printed.result.get("scripts", ()), log.percentiles_ms_by_script),
    }
    figures, result = {**printed.figures, **latency}, {**printed.result, **known}
    return replace(printed, figures=figures, result=result, progress=progress)


def _by_second(log: LogSummary) -> list[Row]:
    """Return the transactions of every whole second of the run; a second without any counts 0."""
    whole = int(log.last_us / 1e6 + 1 - FULL_SECOND)
    return [(float(second + 1), float(log.seconds.get(second, 0)), *(None,) * 6) for second in range(whole)]


def _from_log(run: ToolRun, log: LogSummary) -> ToolRun:
    if not log.transactions or not log.last_us:
        raise UsageError(f"{run.where} holds no whole transaction", hint="leave it out, or give the output of that run")
    duration_s = log.last_us / 1e6
    share = log.sampled_share if log.sampled_share < SAMPLED_BELOW else 1.0
    skipped = log.words.get("skipped", 0)
    return replace(
        run,
        figures={"tps": log.transactions / share / duration_s, "latency_avg_ms": log.histogram.mean_us / 1000},
        result={
            "started": _iso(log.origin_us),
            "duration_s": duration_s,
            "transactions": round(log.transactions / share),
            "failed": round((sum(log.words.values()) - skipped) / share),
            "skipped": round(skipped / share),
            "percentiles_ms": log.percentiles_ms,
        },
    )


def _with_aggregates(run: ToolRun, logs: Sequence[Path]) -> ToolRun:
    found = read_aggregates(logs)
    if run.figures:
        return replace(run, progress=found.rows)
    return replace(
        run,
        figures={
            "tps": found.transactions / found.duration_s,
            "latency_avg_ms": found.latency_avg_ms,
            "latency_stddev_ms": found.latency_stddev_ms,
        },
        result={
            "started": _iso(found.intervals[0].start_s * 1_000_000),
            "duration_s": found.duration_s,
            "transactions": found.transactions,
        },
        progress=found.rows,
    )


def _iso(epoch_us: int) -> str:
    return datetime.fromtimestamp(epoch_us / 1e6, UTC).isoformat()
