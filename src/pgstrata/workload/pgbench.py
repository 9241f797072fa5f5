"""pgbench 13 to 18 as a driver: its arguments, its tables or none, its scripts, progress, result and logs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command, Completed
from pgstrata.spec.drivers import Driver, Pgbench
from pgstrata.spec.file.files import commands_of
from pgstrata.spec.printable import LONGEST_NAME
from pgstrata.spec.scripts import FIRST_MAJOR_OF, Script, render_scripts
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.driver import DataRequest, LoadDriver, LoadTimes, RunOutput, RunRequest, run_timeout_s
from pgstrata.workload.pgbench_output import (
    PgbenchOutputError,
    PgbenchResult,
    ScriptResult,
    parse_init,
    parse_progress,
    parse_result,
)
from pgstrata.workload.target import Target
from pgstrata.workload.tool_run import Row, ToolRun, known

if TYPE_CHECKING:
    from pgstrata.workload.pgbench_logs import LogSummary

LOAD_TIMEOUT_S = 24 * 3600.0
_PRINTED = {
    "TPC-B (sort of)": "tpcb-like",
    "simple update": "simple-update",
    "Update only pgbench_accounts": "simple-update",
    "select only": "select-only",
    "SELECT only": "select-only",
}
"""Names of the builtin scripts in the output of pgbench, also of versions before 9.6."""


def script_of(printed: str) -> str:
    """The name by which pgbench takes the script that its output names; that of a file stays as it is."""
    return _PRINTED.get(printed.removeprefix("<builtin: ").removesuffix(">"), printed)


def workload_of(result: PgbenchResult) -> str:
    """The script of a run as a cell names it; of several scripts the mix, if that is short enough for a name."""
    mix = render_scripts(tuple(Script(name, one.weight) for one, name in _named(result)))
    return mix if result.scripts and len(mix) <= LONGEST_NAME else script_of(result.script)


def script_fields(result: PgbenchResult, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The result of each of several scripts, as fields of a record; by these names instead of the printed ones."""
    given = names or [name for _, name in _named(result)]
    return [asdict(one) | {"name": name} for one, name in zip(result.scripts, given, strict=True)]


def with_percentiles(
    scripts: Sequence[dict[str, Any]], percentiles_ms: Mapping[int, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Add the percentiles of each script to its fields, by the number of the script in its mix."""
    return [one | {"percentiles_ms": percentiles_ms.get(number, {})} for number, one in enumerate(scripts)]


def _named(result: PgbenchResult) -> list[tuple[ScriptResult, str]]:
    return [(one, Script(script_of(one.name)).short_name) for one in result.scripts]


def plan_init(
    target: Target,
    scale: int,
    *,
    tablespace: str | None = None,
) -> Command:
    """Return the command that loads pgbench's tables; `parse_init` reads the times of its phases from standard error.

    `tablespace` takes tables and indexes. The rows generated do not depend on a seed.
    """
    places = ("--tablespace", tablespace, "--index-tablespace", tablespace) if tablespace else ()
    options = ("--initialize", "--init-steps=dtgvp", "--quiet", "--scale", str(scale), *places)
    return target.client("pgbench", *options, timeout_s=LOAD_TIMEOUT_S)


def plan_run(
    target: Target,
    cell: Cell,
    workload: Workload,
    *,
    seed: int,
    duration_s: float | None = None,
    script_paths: Mapping[str, str] | None = None,
    log_prefix: str | None = None,
) -> Command:
    """Return one run of a cell, with a progress line each second on standard error.

    `duration_s` overrides the workload's bound (warm-up). `script_paths` are those of custom scripts on the host.
    `log_prefix` turns the per-transaction log on, sampled as the workload says. No vacuum by pgbench: it would
    rewrite what the trial has just prepared.
    """
    limit_s = workload.cell_duration_s(cell) if duration_s is None else duration_s
    options = [*_scripts(cell, script_paths or {}), *_variables(workload), "--no-vacuum"]
    options += ["--client", str(cell.clients), "--jobs", str(min(workload.jobs, cell.clients))]
    options += ["--protocol", workload.protocol, "--random-seed", str(seed), "--progress", "1"]
    options += _bound(workload, limit_s)
    if cell.rate_tps is not None:
        options += ["--rate", f"{cell.rate_tps:.6g}"]
    if workload.latency_limit_ms is not None:
        options += ["--latency-limit", f"{workload.latency_limit_ms:g}"]
    if log_prefix is not None:
        options += ["--log", f"--log-prefix={log_prefix}"]
        options += [f"--sampling-rate={workload.sampling_rate:g}"] * _samples(workload)
    return target.client("pgbench", *options, timeout_s=run_timeout_s(limit_s, cell.clients))


def _scripts(cell: Cell, paths: Mapping[str, str]) -> Iterator[str]:
    for script in cell.scripts:
        placed = replace(script, name=paths.get(script.name, script.name))
        yield from ("--builtin" if script.builtin else "--file", placed.weighted)
    if not any(script.builtin for script in cell.scripts):
        # Builtin scripts count the branches themselves; custom ones get :scale from here.
        yield from ("--scale", str(cell.scale))


def _variables(workload: Workload) -> Iterator[str]:
    for name, value in workload.variables.items():
        yield from ("--define", f"{name}={value}")


def _bound(workload: Workload, limit_s: float | None) -> tuple[str, ...]:
    if limit_s is None:
        return ("--transactions", str(workload.transactions))
    return ("--time", str(max(1, math.ceil(limit_s))))


def _samples(workload: Workload) -> bool:
    return workload.log == "sampled" and workload.sampling_rate < 1


# ---------------------------------------------------------------- the driver

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
        own = [line for line in progress.messages if not line.startswith("pgbench: ")]
        log = _log_summary(output, cell)
        scripts = script_fields(found, [one.short_name for one in cell.scripts]) if found.scripts else []
        return ToolRun(
            "pgbench",
            cell.script,
            known(tps=found.tps, latency_avg_ms=found.latency_avg_ms, latency_stddev_ms=found.latency_stddev_ms),
            result={
                **{name: getattr(found, name) for name in _COUNTED},
                "duration_s": _duration_s(found),
                "percentiles_ms": log.percentiles_ms if log else {},
                "scripts": with_percentiles(scripts, log.percentiles_ms_by_script if log else {}),
            },
            progress=[astuple(row) for row in progress.rows],
            messages=[*own, *[""] * (progress.messages_cut if own else 0)],
        )

    def parse_seconds(self, text: str) -> Sequence[Row]:
        lines = [line for line in text.splitlines() if line.startswith("progress:")]
        return [row for line in lines for row in _seconds(line)]


def _seconds(line: str) -> Iterator[Row]:
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
