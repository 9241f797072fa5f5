"""`pgstrata import pgbench`: what pgbench printed, and its per-transaction logs.

A source is `STACK=FILE` or `FILE` (its stem is then the stack's name). A file is either the output of one run
(standard output, with or without standard error and its progress in the same file) or a log of `-l`; the logs of one
run are the files `PREFIX.PID` and `PREFIX.PID.N`. The n-th output and the n-th log of a stack belong to the same run;
a stack with logs alone gets its figures from them. Runs have no blocks, so they are unpaired.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
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
from pgstrata.workload.pgbench_logs import LogSummary, summarise_logs
from pgstrata.workload.pgbench_output import PgbenchOutputError, PgbenchResult, Progress, parse_output

_LOG_LINE = re.compile(rb"^\d+ \d+ (\d+|skipped|failed|serialization|deadlock) \d+ \d+ \d+( \d+){0,2}\r?\n")
_THREAD = re.compile(r"\.\d+$")
_HINT = "give pgbench's output and its logs: pgstrata import pgbench ext4=run1.out ext4=pgbench_log.4711 --out DIR"


@dataclass
class _Sources:
    """The files of one stack, in the order given."""

    outputs: list[Path] = field(default_factory=list)
    logs: dict[str, list[Path]] = field(default_factory=dict)


def import_pgbench(sources: Sequence[str], out: Path, *, margin: float = 0.02) -> ImportSummary:
    """Imports runs of pgbench into the new campaign directory `out`."""
    by_stack = _sort_sources(sources)
    rejected: Counter[str] = Counter()
    trials = [
        ImportedTrial(imported_stack(name), block, (cell,), _facts(version))
        for name, files in by_stack.items()
        for block, (cell, version) in enumerate(_cells(name, files, rejected))
    ]
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


def _cells(name: str, files: _Sources, rejected: Counter[str]) -> list[tuple[ImportedCell, str | None]]:
    logs = list(files.logs.values())
    if files.outputs and logs and len(files.outputs) != len(logs):
        raise UsageError(
            f"stack {name!r} has {len(files.outputs)} outputs and the logs of {len(logs)} runs: "
            "which belong together cannot be told",
            hint="give as many logs as outputs, in the same order, or only one kind",
        )
    cells = []
    for number in range(max(len(files.outputs), len(logs))):
        output = files.outputs[number] if files.outputs else None
        cells.append(_cell(output, logs[number] if logs else [], rejected))
    return cells


def _cell(output: Path | None, logs: Sequence[Path], rejected: Counter[str]) -> tuple[ImportedCell, str | None]:
    result, progress = (None, None) if output is None else _parse(output)
    open_loop = result is not None and result.lag_avg_ms is not None
    log = summarise_logs(logs, open_loop=open_loop) if logs else None
    if log is not None and log.torn_lines:
        rejected["torn last line of a log"] += log.torn_lines
    raw = {path.name: path for path in (*([output] if output else []), *logs)}
    series = {"progress": _rows(progress)} if progress is not None and progress.rows else {}
    if not series and log is not None:
        series = {"progress": [(float(i + 1), float(n), *(None,) * 6) for i, n in enumerate(_by_second(log))]}
    cell = _from_output(result, log, open_loop) if result is not None else _from_log(log)
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
    counts = {s.epoch_s: s.transactions for s in log.seconds}
    return [counts.get(second, 0) for second in range(min(counts), max(counts) + 1)] if counts else []


def _from_output(result: PgbenchResult, log: LogSummary | None, open_loop: bool) -> CellResult:
    duration_s = float(result.duration_s) if result.duration_s else result.transactions / result.tps
    return imported_result(
        cell=imported_cell(result.script, result.scale, result.clients),
        started="" if log is None or not log.seconds else _iso(log.seconds[0].epoch_s),
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
    seconds = log.seconds if log is not None else ()
    if log is None or not seconds:
        raise UsageError("a log holds no whole transaction", hint=_HINT)
    duration_s = float(seconds[-1].epoch_s - seconds[0].epoch_s + 1)
    counts = sum(log.words.values()) - log.words.get("skipped", 0)
    return imported_result(
        cell=imported_cell("imported"),
        started=_iso(seconds[0].epoch_s),
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
