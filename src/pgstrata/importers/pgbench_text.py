"""Results of pgbench in saved texts, with a prompt, the lines of `time` or a server's log around them.

A result begins at the line `transaction type:` and ends at its throughput, with the statements and scripts that follow.
Progress before and within it belongs to it, and so does the last `pgbench (VERSION)` before it. Lines outside of
results are counted, never interpreted; an unknown line within a result is an error with its number. Tools whose
results hold pgbench's own output have its runs from here, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers.source import COLOUR, read_text
from pgstrata.workload.pgbench_output import (
    PgbenchOutputError,
    PgbenchResult,
    Progress,
    is_result_line,
    parse_progress,
    parse_result,
)
from pgstrata.workload.tool_run import ToolRun, known

_START = re.compile(r"transaction type: ")
_VERSION = re.compile(r"pgbench \((.+)\)$")
_PROGRESS = re.compile(r"progress: [\d.]+ s, .*$")
_THROUGHPUT = re.compile(r"tps = .*\((?:without|excluding|including reconnection)", re.IGNORECASE)
_NOTHING_DONE = re.compile(r"number of transactions actually processed: 0\b")
_MESSAGE = re.compile(
    r"(?:pgbench: |starting vacuum|end\.|vacuuming|NOTICE: |WARNING: |ERROR: |DETAIL: |HINT: |CONTEXT: |LINE \d+:|"
    r"client \d+ |Password:|setting random seed)"
)
_INCOMPLETE = re.compile(r"Run was aborted|results are incomplete|client \d+ (?:script \d+ )?aborted")


@dataclass(frozen=True)
class PgbenchRun:
    """One result of a text; `incomplete` is pgbench's own note that clients were lost or the run was aborted."""

    result: PgbenchResult
    progress: Progress
    line: int
    incomplete: str = ""


@dataclass(frozen=True)
class PgbenchText:
    """The results of a text in their order, and the lines outside of them."""

    runs: tuple[PgbenchRun, ...]
    left_out: tuple[int, ...]
    """Numbers of lines that are not pgbench's and not empty."""


@dataclass
class _Block:
    """The lines of one result, without their common prefix."""

    line: int
    version: str = ""
    body: list[str] = field(default_factory=list)
    progress: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def take(self, line: str) -> bool:
        """Consume progress and messages; return False for any other line."""
        if found := _PROGRESS.search(line):
            self.progress.append(found[0])
        elif _MESSAGE.match(line.strip()):
            self.messages.append(line.strip())
        else:
            return False
        return True


def read_pgbench_text(text: str) -> PgbenchText:
    """Return the results in a text.

    Raises PgbenchOutputError for a text without a result, for an incomplete result, and for an unknown line within a
    result; the message has the number of the line.
    """
    lines = [(number, COLOUR.sub("", line).rstrip()) for number, line in enumerate(text.splitlines(), 1)]
    blocks, left_out = _cut([(number, line) for number, line in lines if line.strip()])
    if not blocks:
        raise PgbenchOutputError("no result of pgbench: no line has 'transaction type:'")
    return PgbenchText(tuple(_run(block) for block in blocks), tuple(left_out))


def _cut(lines: Sequence[tuple[int, str]]) -> tuple[list[_Block], list[int]]:
    """Return blocks, and the numbers of the lines outside of them."""
    blocks: list[_Block] = []
    between = [_Block(0)]
    left_out: list[int] = []
    position = 0
    while position < len(lines):
        number, line = lines[position]
        start = _START.search(line)
        if start is not None:
            block = _Block(number, version=between[-1].version)
            position += _fill(block, lines[position:], line[: start.start()])
            blocks.append(block)
            between.append(_Block(0))
            continue
        if found := _VERSION.search(line):
            between[-1].version = found[1]
        elif not between[-1].take(line):
            left_out.append(number)
        position += 1
    _share_out(blocks, between)
    return blocks, left_out


def _share_out(blocks: Sequence[_Block], between: Sequence[_Block]) -> None:
    """Assign progress to the result that follows it. If the first result has none and progress follows the last one
    (`cat run.out run.err`), assign it to the result before it."""
    follows = bool(between[-1].progress) and not between[0].progress and not blocks[0].progress if blocks else False
    for block, outside in zip(blocks, between[1:] if follows else between, strict=False):
        block.progress = [*outside.progress, *block.progress]
        block.messages = [*outside.messages, *block.messages]


def _fill(block: _Block, lines: Sequence[tuple[int, str]], prefix: str) -> int:
    """Consume the lines of a result; return their number in `lines`."""
    complete = False
    for count, (number, whole) in enumerate(lines):
        line = _without(prefix, whole)
        if count and _START.match(line):
            return count
        if is_result_line(line) and not (complete and _VERSION.match(line)):
            block.body.append(line)
            complete = complete or bool(_THROUGHPUT.match(line) or _NOTHING_DONE.match(line))
        elif complete and not _PROGRESS.search(line) and not _INCOMPLETE.search(line):
            return count
        elif complete and _PROGRESS.search(line):
            return count  # of the next run
        elif not block.take(line):
            raise PgbenchOutputError(f"line {number} is within a result of pgbench and not understood: {line[:200]!r}")
    return len(lines)


def _without(prefix: str, line: str) -> str:
    """Return a line without the prefix of its block; digits of the prefix (times, counts) may differ from line to
    line."""
    if line.startswith(prefix):
        return line[len(prefix) :]
    shape = re.sub(r"\d", "0", line[: len(prefix)])
    return line[len(prefix) :] if shape == re.sub(r"\d", "0", prefix) else line


def _run(block: _Block) -> PgbenchRun:
    version = [f"pgbench ({block.version})"] if block.version else []
    try:
        result = parse_result("\n".join([*version, *block.body]))
        progress = parse_progress("\n".join(block.progress))
    except PgbenchOutputError as error:
        raise PgbenchOutputError(f"the result at line {block.line}: {error.message}") from None
    return PgbenchRun(
        result,
        Progress(progress.rows, tuple(block.messages), progress.started_epoch_s),
        block.line,
        next(_incomplete(block.messages), ""),
    )


def _incomplete(messages: Sequence[str]) -> Iterator[str]:
    yield from (message.strip() for message in messages if _INCOMPLETE.search(message))


# ---------------------------------------------------------------- runs


def _traits_of(result: PgbenchResult) -> dict[str, str]:
    """Return the traits that make runs of one script different measurements."""
    return {
        "protocol": result.protocol,
        "partitions": f"{result.partitions} partitions" if result.partitions else "no partitions",
        "connections": "a connection for each transaction" if result.reconnects else "kept connections",
    }


def _rate_tps(result: PgbenchResult) -> float | None:
    """Return the rate of an open loop as it was achieved; None for a closed one."""
    if result.lag_avg_ms is None or not result.tps:
        return None
    return float(f"{result.tps:.2g}")


def pgbench_runs(path: Path, *, stack: str, traits: Mapping[str, str]) -> list[ToolRun]:
    """Return the runs in an output of pgbench; one without a result is incomplete. UsageError for a damaged output."""
    text = read_text(path)
    if "transaction type: " not in text:
        return [ToolRun(str(path), "pgbench", stack=stack, incomplete="pgbench printed no result")]
    try:
        found = read_pgbench_text(text)
    except PgbenchOutputError as error:
        raise UsageError(f"{path}: {error.message}", hint="leave out the runs that were cut or damaged") from None
    return [printed_run(path, run, stack, traits) for run in found.runs]


def printed_run(path: Path, run: PgbenchRun, stack: str, traits: Mapping[str, str]) -> ToolRun:
    """Return a result of an output as the run of a tool."""
    from pgstrata.workload.pgbench import script_fields, workload_of  # loads the models of campaigns

    result = run.result
    timed_s = float(result.duration_s) if result.duration_s else result.transactions / (result.tps or 1.0)
    return ToolRun(
        f"{path} (line {run.line})",
        workload_of(result),
        known(tps=result.tps, latency_avg_ms=result.latency_avg_ms, latency_stddev_ms=result.latency_stddev_ms),
        scale=result.scale,
        clients=result.clients,
        rate_tps=_rate_tps(result),
        result={
            "duration_s": timed_s,
            "transactions": result.transactions,
            "failed": result.failed,
            "retried": result.retried,
            "skipped": result.skipped,
            "late": result.late,
            "initial_connection_ms": result.initial_connection_ms,
            "lag_avg_ms": result.lag_avg_ms,
            "scripts": script_fields(result),
        },
        progress=[astuple(row) for row in run.progress.rows],
        traits={**_traits_of(result), **traits},
        told={
            "threads": str(result.jobs),
            "duration": f"{result.duration_s} s"
            if result.duration_s
            else f"{result.transactions_per_client} transactions",
            "number of tries": str(result.max_tries),
            "version of pgbench": result.version or "before 14",
        },
        stack=stack,
        raw=(path,),
        incomplete=f"pgbench says {run.incomplete[:120]!r}" if run.incomplete else "",
    )
