"""pgbench as a driver: its tables or none, its scripts, its progress, result and per-transaction logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, ClassVar

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command, Completed
from pgstrata.spec.drivers.kind import Driver
from pgstrata.spec.drivers.pgbench import Pgbench
from pgstrata.spec.file.scripts import commands_of
from pgstrata.spec.scripts import FIRST_MAJOR_OF
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.driver import DataRequest, LoadDriver, LoadTimes, RunOutput, RunRequest
from pgstrata.workload.pgbench import plan_init, plan_run, script_fields, with_percentiles
from pgstrata.workload.pgbench_output import PgbenchOutputError, PgbenchResult, parse_init, parse_progress, parse_result
from pgstrata.workload.tool_run import Row, ToolRun

if TYPE_CHECKING:
    from pgstrata.workload.pgbench_logs import LogSummary

LOG_PREFIX = "pgbench_log"
LOG_BYTES_PER_S = 32_000_000
"""More than any pgbench writes: half a million transactions a second."""
LOG_LINE_BYTES = 80
LOG_BYTES_AT_LEAST = 64 << 20

_COUNTED = (
    "transactions", "failed", "retried", "skipped", "late", "initial_connection_ms", "lag_avg_ms",
)  # fmt: skip
"""Fields of the result that a record has by the same name."""


class PgbenchDriver(LoadDriver):
    """The load of every pgbench."""

    model: ClassVar[type[Driver]] = Pgbench

    def refusals(self, workload: Workload, major: int) -> Iterator[PreflightError]:
        """Yield the meta commands of the user's scripts that this pgbench does not have."""
        for path, commands in commands_of(workload.script).items():
            for name in sorted(commands & FIRST_MAJOR_OF.keys()):
                if major < FIRST_MAJOR_OF[name]:
                    yield PreflightError(
                        f"pgbench {major} has no \\{name}, which {path} uses",
                        hint=f"postgresql: {{major: {FIRST_MAJOR_OF[name]}}} of the stack, or later",
                    )

    def plan_load(self, request: DataRequest) -> tuple[Command, ...]:
        return (plan_init(request.target, request.scale, tablespace=request.tablespace),)

    def parse_load(self, done: Sequence[Completed]) -> LoadTimes:
        times = parse_init(done[0].stderr)
        return LoadTimes(times.total_s, times.phases_s)

    def files(self, workload: Workload, cell: Cell) -> Mapping[str, str]:
        """Return the user's own scripts; pgbench takes FILE@WEIGHT, and a script may be called anything."""
        count = len(cell.scripts)
        names = [f"{cell.id}.sql"] if count == 1 else [f"{n}.sql" for n in range(1, count + 1)]
        return {one.name: name for one, name in zip(cell.scripts, names, strict=True) if not one.builtin}

    def plan_run(self, request: RunRequest) -> Command:
        return plan_run(
            request.target,
            request.cell,
            request.workload,
            seed=request.seed,
            duration_s=request.duration_s,
            script_paths=request.files,
            log_prefix=f"{request.folder}/{LOG_PREFIX}" if request.logged else None,
        )

    def log_names(self, workload: Workload, cell: Cell, pid: int) -> Sequence[str]:
        """Return one name for each of its threads."""
        threads = min(workload.jobs, cell.clients)
        return tuple(f"{LOG_PREFIX}.{pid}.{thread}" if thread else f"{LOG_PREFIX}.{pid}" for thread in range(threads))

    def most_log_bytes(self, workload: Workload, cell: Cell, duration_s: float | None) -> int:
        if duration_s is None:
            return LOG_BYTES_AT_LEAST + (workload.transactions or 0) * cell.clients * LOG_LINE_BYTES
        return LOG_BYTES_AT_LEAST + round(duration_s * LOG_BYTES_PER_S)

    def parse_run(self, output: RunOutput, cell: Cell) -> ToolRun:
        found, progress = parse_result(output.out), parse_progress(output.err)
        latencies = {name: getattr(found, name) for name in ("latency_avg_ms", "latency_stddev_ms")}
        own = [line for line in progress.messages if not line.startswith("pgbench: ")]
        log = _log_summary(output, cell)
        return ToolRun(
            "pgbench",
            cell.script,
            {"tps": found.tps, **{name: value for name, value in latencies.items() if value is not None}},
            result={
                **{name: getattr(found, name) for name in _COUNTED},
                "duration_s": _duration_s(found),
                "percentiles_ms": log.percentiles_ms if log else {},
                "scripts": with_percentiles(_scripts(cell, found), log.percentiles_ms_by_script if log else {}),
            },
            progress=[astuple(row) for row in progress.rows],
            messages=[*own, *[""] * (progress.messages_cut if own else 0)],
        )

    def parse_seconds(self, text: str) -> Sequence[Row]:
        lines = [line for line in text.splitlines() if line.startswith("progress:")]
        return [row for line in lines for row in _rows(line)]


def _rows(line: str) -> Iterator[Row]:
    try:
        yield from (astuple(row) for row in parse_progress(line).rows)
    except PgbenchOutputError:  # the first line of a piece is torn
        return


def _log_summary(output: RunOutput, cell: Cell) -> LogSummary | None:
    if not output.logs:
        return None
    from pgstrata.workload.pgbench_logs import summarise_logs  # takes half a second to import

    return summarise_logs(output.logs, open_loop=cell.rate_tps is not None)


def _duration_s(found: PgbenchResult) -> float:
    """Return the configured length; for a run bounded by transactions, the length that results from its rate."""
    if found.duration_s is not None:
        return float(found.duration_s)
    return found.transactions / found.tps if found.tps else 0.0


def _scripts(cell: Cell, found: PgbenchResult) -> list[dict[str, Any]]:
    return script_fields(found, [script.short_name for script in cell.scripts]) if found.scripts else []
