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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers.pgbench_runs import rate_tps, traits_of
from pgstrata.importers.pgbench_text import PgbenchRun, PgbenchText, decode_text, read_pgbench_text
from pgstrata.importers.registry import hint_for
from pgstrata.importers.runs import (
    SINGLE_RUNS,
    UNPAIRED,
    ImportedCell,
    ImportedTrial,
    ImportSummary,
    imported_cell,
    imported_facts,
    imported_result,
    imported_stack,
    run_notices,
    write_campaign,
)
from pgstrata.record.run_columns import report_interval_s
from pgstrata.record.schema import PROGRESS_COLUMNS, CellResult, HostFacts
from pgstrata.spec.campaign import Goal
from pgstrata.spec.model import Model
from pgstrata.spec.workload import Cell
from pgstrata.workload.pgbench import script_fields, workload_of
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
from pgstrata.workload.pgbench_output import PgbenchOutputError, PgbenchResult, Progress

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


class PartAsked(Model):
    """A part of a log, with the size of the log in bytes at the start of the import."""

    path: str
    size_bytes: int
    begin: int
    end: int
    open_loop: bool
    origin_us: int


@dataclass(frozen=True)
class _Run:
    """One run: its output, and its logs, which are being read."""

    stack: str
    block: int
    output: Path | None = None
    printed: PgbenchRun | None = None
    logs: Sequence[Path] = ()
    parts: Sequence[Future[str]] = ()

    @property
    def result(self) -> PgbenchResult | None:
        return self.printed.result if self.printed is not None else None

    @property
    def where(self) -> str:
        """File and line for messages."""
        if self.output is not None and self.printed is not None:
            return f"{self.output} (line {self.printed.line})"
        return str(self.logs[0])


def import_pgbench(sources: Sequence[str], out: Path, executor: Executor, *, margin: float = 0.02) -> ImportSummary:
    """Import runs of pgbench into the new campaign directory `out`."""
    rejected: Counter[str] = Counter()
    notices = [UNPAIRED]
    by_stack = _sort_sources(sources, rejected)
    runs = [run for name, files in by_stack.items() for run in _begun(name, files, executor)]
    runs = list(_complete(runs, rejected))
    names = _cell_names([run.result for run in runs])
    trials = [
        ImportedTrial(imported_stack(run.stack), run.block, (_cell(run, name, rejected, notices),), _facts(run.result))
        for run, name in zip(runs, names, strict=True)
    ]
    fewest = min(Counter(t.stack.name for t in trials).values())
    notices += _notices(runs)
    notices += [SINGLE_RUNS] if fewest == 1 else []
    limited = [run.result for run in runs if _is_open_loop(run.result)]
    return write_campaign(
        sorted(trials, key=lambda t: t.block),
        out,
        name="pgbench",
        origin="import pgbench",
        paired=False,
        goal=Goal(kind="all-pairs", margin=margin, primary="latency_avg_ms" if len(limited) == len(runs) else "tps"),
        rejected=rejected,
        notices=notices,
    )


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
        try:
            with path.open("rb") as opened:
                head = opened.read(4096)
            if _LOG_LINE.match(head) or is_aggregate_line(head):
                files.logs.setdefault(_run_of(file, given), []).append(path)
            else:
                text = _read_output(path)
                files.outputs += [(path, run) for run in text.runs]
                if text.left_out:
                    rejected["lines around the results of pgbench"] += len(text.left_out)
        except OSError as error:
            raise UsageError(
                f"cannot read {path}: {error.strerror}", hint="name files that exist and that you may read"
            ) from None
    if not by_stack:
        raise UsageError("no file to import", hint=_SOURCES_HINT)
    return by_stack


def _run_of(file: str, given: set[str]) -> str:
    """Return the run of a log: PREFIX.PID and PREFIX.PID.N are threads of one run; without the first, a number is part
    of the name."""
    first = _THREAD.sub("", file)
    return first if first in given else file


def _read_output(path: Path) -> PgbenchText:
    text = decode_text(path.read_bytes())
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
    for number in range(max(len(files.outputs), len(logs))):
        output, printed = files.outputs[number] if files.outputs else (None, None)
        own = logs[number] if logs else []
        open_loop = printed is not None and _is_open_loop(printed.result)
        parts = [executor.submit(read_part, text) for text in log_parts(own, open_loop=open_loop)]
        yield _Run(name, number, output, printed, own, parts)


def _is_open_loop(result: PgbenchResult | None) -> bool:
    return result is not None and result.lag_avg_ms is not None


def _is_aggregated(path: Path) -> bool:
    with path.open("rb") as opened:
        return is_aggregate_line(opened.read(4096))


def log_parts(paths: Sequence[Path], *, open_loop: bool) -> list[str]:
    """Return the parts of the logs of a run as they are here; a worker must find the same files."""
    single = [path for path in paths if not _is_aggregated(path)]
    origin_us = begin_of(single) if single else 0
    return [
        PartAsked(
            path=str(path.resolve()),
            size_bytes=path.stat().st_size,
            begin=part.begin,
            end=part.end,
            open_loop=open_loop,
            origin_us=origin_us,
        ).model_dump_json()
        for path in single
        for part in cut_log(path)
    ]


def read_part(text: str) -> str:
    """Read a part of a log and return its data as JSON. UsageError if the file is not the expected one."""
    asked = PartAsked.model_validate_json(text)
    path = Path(asked.path)
    _require_same(path, asked.size_bytes)
    part = LogPart(path, asked.begin, asked.end)
    return render_summary(summarise_part(part, open_loop=asked.open_loop, origin_us=asked.origin_us))


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


def _complete(runs: Sequence[_Run], rejected: Counter[str]) -> Iterator[_Run]:
    """Yield the runs that pgbench does not report as incomplete; UsageError if a stack has none left."""
    bad = [run for run in runs if run.printed is not None and run.printed.incomplete]
    good = [run for run in runs if run not in bad]
    for run in bad:
        assert run.printed is not None
        rejected[f"run that pgbench calls incomplete: {run.printed.incomplete[:120]!r}"] += 1
        if all(other.stack != run.stack for other in good):
            raise UsageError(
                f"{run.where}: pgbench says {run.printed.incomplete[:200]!r}, and stack {run.stack!r} has no other run",
                hint="measure again: what an aborted run or lost clients did is no throughput of the stack",
            )
    yield from good


def _cell_names(results: Sequence[PgbenchResult | None]) -> list[str]:
    """Return the name of each run's cell: its script, and the other traits in which the measurements differ."""
    traits = [traits_of(result) if result is not None else {} for result in results]
    differing = {key for one in traits for key in one if len({other.get(key) for other in traits if other}) > 1}
    return [
        ", ".join([workload_of(result) if result is not None else "imported", *(own[k] for k in own if k in differing)])
        for result, own in zip(results, traits, strict=True)
    ]


def _notices(runs: Sequence[_Run]) -> Iterator[str]:
    """Yield differences between the runs that do not prevent a comparison, and unknown facts about them."""
    results = [run.result for run in runs if run.result is not None]
    told = {
        "threads": {str(r.jobs) for r in results},
        "duration": {
            f"{r.duration_s} s" if r.duration_s else f"{r.transactions_per_client} transactions" for r in results
        },
        "number of tries": {str(r.max_tries) for r in results},
        "version of pgbench": {r.version or "before 14" for r in results},
    }
    limited = sum(_is_open_loop(result) for result in results)
    yield from run_notices(told, len(runs), limited, map(_interval_s, runs))


def _interval_s(run: _Run) -> int:
    rows = run.printed.progress.rows if run.printed is not None else ()
    return report_interval_s([row.t_s for row in rows])


def _cell(run: _Run, script: str, rejected: Counter[str], notices: list[str]) -> ImportedCell:
    raw = {path.name: path for path in (*([run.output] if run.output else []), *run.logs)}
    log = merged(parse_summary(part.result()) for part in run.parts) if run.parts else None
    if log is not None and log.torn_lines:
        rejected["torn last line of a log"] += log.torn_lines
    if run.logs and log is None:
        return _from_aggregates(run, script, raw)
    sampled = log is not None and log.sampled_share < SAMPLED_BELOW
    if log is not None and sampled:
        share = f"{100 * log.sampled_share:.2g} %"
        notices.append(f"{run.where} holds {share} of the transactions: a sample, whose seconds are not known")
    progress = run.printed.progress if run.printed is not None else None
    rows = _rows(progress) if progress is not None and progress.rows else _by_second(log) if log and not sampled else []
    cell = _from_output(run.result, script, log) if run.result is not None else _from_log(run, script, log)
    return ImportedCell(cell, series={"progress": rows} if rows else {}, raw=raw)


def _rows(progress: Progress) -> list[tuple[float | None, ...]]:
    return [tuple(getattr(row, column) for column in PROGRESS_COLUMNS) for row in progress.rows]


def _by_second(log: LogSummary) -> list[tuple[float | None, ...]]:
    """Return the transactions of every whole second of the run; a second without any counts 0."""
    whole = int(log.last_us / 1e6 + 1 - FULL_SECOND)
    return [(float(second + 1), float(log.seconds.get(second, 0)), *(None,) * 6) for second in range(whole)]


def _imported_cell_of(result: PgbenchResult, script: str) -> Cell:
    return imported_cell(script, result.scale, result.clients).model_copy(update={"rate_tps": rate_tps(result)})


def _from_output(result: PgbenchResult, script: str, log: LogSummary | None) -> CellResult:
    duration_s = float(result.duration_s) if result.duration_s else result.transactions / (result.tps or 1.0)
    return imported_result(
        cell=_imported_cell_of(result, script),
        started="" if log is None or not log.seconds else _iso(log.origin_us),
        duration_s=duration_s,
        transactions=result.transactions,
        tps=result.tps,
        # Without progress or rate pgbench divides time by transactions instead of measuring latency.
        latency_avg_ms=log.histogram.mean_us / 1000 if log is not None and log.transactions else result.latency_avg_ms,
        latency_stddev_ms=result.latency_stddev_ms,
        initial_connection_ms=result.initial_connection_ms,
        lag_avg_ms=result.lag_avg_ms,
        failed=result.failed,
        retried=result.retried,
        skipped=result.skipped,
        late=result.late,
        percentiles_ms=log.percentiles_ms if log is not None else {},
        open_loop=_is_open_loop(result),
        scripts=script_fields(result),
    )


def _from_log(run: _Run, script: str, log: LogSummary | None) -> CellResult:
    if log is None or not log.transactions or not log.last_us:
        raise UsageError(f"{run.where} holds no whole transaction", hint="leave it out, or give the output of that run")
    duration_s = log.last_us / 1e6
    share = log.sampled_share if log.sampled_share < SAMPLED_BELOW else 1.0
    skipped = log.words.get("skipped", 0)
    return imported_result(
        cell=imported_cell(script),
        started=_iso(log.origin_us),
        duration_s=duration_s,
        transactions=round(log.transactions / share),
        tps=log.transactions / share / duration_s,
        latency_avg_ms=log.histogram.mean_us / 1000,
        failed=round((sum(log.words.values()) - skipped) / share),
        skipped=round(skipped / share),
        percentiles_ms=log.percentiles_ms,
    )


def _from_aggregates(run: _Run, script: str, raw: dict[str, Path]) -> ImportedCell:
    found = read_aggregates(run.logs)
    rows = found.rows
    if run.result is not None:
        return ImportedCell(_from_output(run.result, script, None), series={"progress": rows}, raw=raw)
    result = imported_result(
        cell=imported_cell(script),
        started=_iso(found.intervals[0].start_s * 1_000_000),
        duration_s=found.duration_s,
        transactions=found.transactions,
        tps=found.transactions / found.duration_s,
        latency_avg_ms=found.latency_avg_ms,
        latency_stddev_ms=found.latency_stddev_ms,
    )
    return ImportedCell(result, series={"progress": rows}, raw=raw)


def _iso(epoch_us: int) -> str:
    return datetime.fromtimestamp(epoch_us / 1e6, UTC).isoformat()


def _facts(result: PgbenchResult | None) -> HostFacts:
    """Return facts that are reported but not checked: packages and servers of other versions are the usual
    comparison."""
    told = {}
    if result is not None:
        told = {"protocol": result.protocol, "threads": str(result.jobs), "tries": str(result.max_tries)}
        told |= {"pgbench_version": result.version} if result.version else {}
        told |= {"partitions": str(result.partitions)} if result.partitions else {}
        told |= {"connections": "one for each transaction"} if result.reconnects else {}
    return imported_facts(told)
