"""`pgstrata import pgbench`: what pgbench printed, and its per-transaction logs.

A source is `STACK=FILE` or `FILE` (its stem is then the stack's name). A file is either the output of one run
(standard output, with or without standard error and its progress in the same file) or a log of `-l`; the logs of one
run are the files `PREFIX.PID` and `PREFIX.PID.N`. The n-th output and the n-th log of a stack belong to the same run;
a stack with logs alone gets its figures from them. Runs have no blocks, so they are unpaired. A log is cut into parts
of whole lines, each a piece of work for an executor, whose processes or machines read the same files.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers.runs import (
    ImportedCell,
    ImportedTrial,
    ImportSummary,
    imported_cell,
    imported_result,
    imported_stack,
    write_campaign,
)
from pgstrata.record.schema import PROGRESS_COLUMNS, CellResult, HostFacts
from pgstrata.spec.campaign import Goal
from pgstrata.spec.model import Model
from pgstrata.workload.pgbench_logs import (
    LogPart,
    LogSummary,
    cut_log,
    merged,
    parse_summary,
    render_summary,
    summarise_part,
)
from pgstrata.workload.pgbench_output import PgbenchOutputError, PgbenchResult, Progress, parse_output

_LOG_LINE = re.compile(rb"^\d+ \d+ (\d+|skipped|failed|serialization|deadlock) \d+ \d+ \d+( \d+){0,2}\r?\n")
_THREAD = re.compile(r"\.\d+$")
_HINT = "give pgbench's output and its logs: pgstrata import pgbench ext4=run1.out ext4=pgbench_log.4711 --out DIR"


@dataclass
class _Sources:
    """The files of one stack, in the order given."""

    outputs: list[Path] = field(default_factory=list)
    logs: dict[str, list[Path]] = field(default_factory=dict)


class PartAsked(Model):
    """A part of a log, which has so many bytes where the import began."""

    path: str
    size_bytes: int
    begin: int
    end: int
    open_loop: bool


@dataclass(frozen=True)
class _Run:
    """The files of one run, with what its output says, and its logs, which are being read."""

    stack: str
    block: int
    output: Path | None
    logs: Sequence[Path]
    printed: tuple[PgbenchResult | None, Progress | None]
    parts: Sequence[Future[str]]


def import_pgbench(sources: Sequence[str], out: Path, executor: Executor, *, margin: float = 0.02) -> ImportSummary:
    """Imports runs of pgbench into the new campaign directory `out`."""
    by_stack = _sort_sources(sources)
    rejected: Counter[str] = Counter()
    runs = [run for name, files in by_stack.items() for run in _begun(name, files, executor)]
    trials = []
    for run in runs:
        cell, version = _cell(run, rejected)
        trials.append(ImportedTrial(imported_stack(run.stack), run.block, (cell,), _facts(version)))
    fewest = min(Counter(t.stack.name for t in trials).values())
    notices = ["the runs are unpaired: nothing protects them from drift of the machine"]
    notices += ["there is one run of a stack: single runs give no verdicts"] if fewest == 1 else []
    return write_campaign(
        sorted(trials, key=lambda t: t.block),
        out,
        name="pgbench",
        origin="import pgbench",
        paired=False,
        goal=Goal(kind="all-pairs", margin=margin),
        rejected=rejected,
        notices=notices,
    )


def _sort_sources(sources: Sequence[str]) -> dict[str, _Sources]:
    by_stack: dict[str, _Sources] = {}
    for source in sources:
        name, _, file = source.rpartition("=")
        if not file:
            raise UsageError(f"{source!r} names no file", hint=_HINT)
        path = Path(file)
        files = by_stack.setdefault(name or _THREAD.sub("", path.stem), _Sources())
        try:
            with path.open("rb") as opened:
                head = opened.read(4096)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}", hint=_HINT) from None
        if _LOG_LINE.match(head):
            # PREFIX.PID and PREFIX.PID.N are threads of one run.
            run = str(path) if path.suffix == path.suffixes[0] else str(path.with_suffix(""))
            files.logs.setdefault(run, []).append(path)
        else:
            files.outputs.append(path)
    if not by_stack:
        raise UsageError("no file to import", hint=_HINT)
    return by_stack


def _begun(name: str, files: _Sources, executor: Executor) -> list[_Run]:
    """The runs of a stack; whatever the executor has for it reads their logs."""
    logs = list(files.logs.values())
    if files.outputs and logs and len(files.outputs) != len(logs):
        raise UsageError(
            f"stack {name!r} has {len(files.outputs)} outputs and the logs of {len(logs)} runs: "
            "which belong together cannot be told",
            hint="give as many logs as outputs, in the same order, or only one kind",
        )
    runs = []
    for number in range(max(len(files.outputs), len(logs))):
        output = files.outputs[number] if files.outputs else None
        own = logs[number] if logs else []
        printed = (None, None) if output is None else _parse(output)
        asked = [text for path in own for text in log_parts(path, open_loop=_is_open_loop(printed[0]))]
        parts = [executor.submit(read_part, text) for text in asked]
        runs.append(_Run(name, number, output, own, printed, parts))
    return runs


def _is_open_loop(result: PgbenchResult | None) -> bool:
    return result is not None and result.lag_avg_ms is not None


def log_parts(path: Path, *, open_loop: bool) -> list[str]:
    """The parts of a file as it is found here, and must be found wherever they are read."""
    cut, size_bytes = cut_log(path), path.stat().st_size
    whole = str(path.resolve())
    return [
        PartAsked(
            path=whole, size_bytes=size_bytes, begin=part.begin, end=part.end, open_loop=open_loop
        ).model_dump_json()
        for part in cut
    ]


def read_part(text: str) -> str:
    """What a part of a log holds, in JSON. UsageError where it is not of the file that is meant."""
    asked = PartAsked.model_validate_json(text)
    path = Path(asked.path)
    _require_same(path, asked.size_bytes)
    return render_summary(summarise_part(LogPart(path, asked.begin, asked.end), open_loop=asked.open_loop))


def _require_same(path: Path, size_bytes: int) -> None:
    try:
        there_bytes = path.stat().st_size
    except OSError as error:
        raise UsageError(
            f"{socket.gethostname()} cannot read {path}: {error.strerror}",
            hint="the machines of --on read logs in a folder that they share with this one; --workers N reads here",
        ) from None
    if there_bytes != size_bytes:
        raise UsageError(
            f"{path} has {there_bytes} bytes on {socket.gethostname()}, and {size_bytes} where the import began",
            hint="let it be written to its end, and the machines of --on see the same files",
        )


def _cell(run: _Run, rejected: Counter[str]) -> tuple[ImportedCell, str | None]:
    result, progress = run.printed
    log = merged(parse_summary(part.result()) for part in run.parts) if run.parts else None
    if log is not None and log.torn_lines:
        rejected["torn last line of a log"] += log.torn_lines
    raw = {path.name: path for path in (*([run.output] if run.output else []), *run.logs)}
    series = {"progress": _rows(progress)} if progress is not None and progress.rows else {}
    if not series and log is not None:
        series = {"progress": [(float(i + 1), float(n), *(None,) * 6) for i, n in enumerate(_by_second(log))]}
    cell = _from_output(result, log, _is_open_loop(result)) if result is not None else _from_log(log)
    return ImportedCell(cell, series=series, raw=raw), result.version if result else None


def _parse(path: Path) -> tuple[PgbenchResult, Progress]:
    try:
        return parse_output(path.read_text(errors="replace"))
    except PgbenchOutputError as error:
        raise UsageError(f"{path}: {error.message}", hint=_HINT) from None


def _rows(progress: Progress) -> list[tuple[float | None, ...]]:
    return [tuple(getattr(row, column) for column in PROGRESS_COLUMNS) for row in progress.rows]


def _by_second(log: LogSummary) -> list[int]:
    """Transactions of every second from the first to the last; a second without any counts 0."""
    counts = log.seconds
    return [counts.get(second, 0) for second in range(min(counts), max(counts) + 1)] if counts else []


def _from_output(result: PgbenchResult, log: LogSummary | None, open_loop: bool) -> CellResult:
    duration_s = float(result.duration_s) if result.duration_s else result.transactions / result.tps
    return imported_result(
        cell=imported_cell(result.script, result.scale, result.clients),
        started="" if log is None or not log.seconds else _iso(min(log.seconds)),
        duration_s=duration_s,
        transactions=result.transactions,
        tps=result.tps,
        latency_avg_ms=result.latency_avg_ms,
        latency_stddev_ms=result.latency_stddev_ms,
        initial_connection_ms=result.initial_connection_ms,
        lag_avg_ms=result.lag_avg_ms,
        failed=result.failed,
        retried=result.retried,
        skipped=result.skipped,
        late=result.late,
        percentiles_ms=log.percentiles_ms if log is not None else {},
        open_loop=open_loop,
    )


def _from_log(log: LogSummary | None) -> CellResult:
    if log is None or not log.seconds:
        raise UsageError("a log holds no whole transaction", hint=_HINT)
    first, last = min(log.seconds), max(log.seconds)
    duration_s = float(last - first + 1)
    counts = sum(log.words.values()) - log.words.get("skipped", 0)
    return imported_result(
        cell=imported_cell("imported"),
        started=_iso(first),
        duration_s=duration_s,
        transactions=log.transactions,
        tps=log.transactions / duration_s,
        latency_avg_ms=log.histogram.mean_us / 1000,
        failed=counts,
        skipped=log.words.get("skipped", 0),
        percentiles_ms=log.percentiles_ms,
    )


def _iso(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).isoformat()


def _facts(version: str | None) -> HostFacts:
    checked = {"pgbench_version": version} if version else {}
    return HostFacts(name="imported", checked=checked, medium="imported, medium not known")
