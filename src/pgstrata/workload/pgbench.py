"""Arguments of pgbench 13 to 18: loading its tables, and runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command
from pgstrata.spec.printable import LONGEST_NAME
from pgstrata.spec.scripts import Script, render_scripts
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.driver import run_timeout_s
from pgstrata.workload.pgbench_output import PgbenchResult, ScriptResult
from pgstrata.workload.target import Target

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


FIRST_MAJOR_WITH_TRIES = 15


def plan_init(
    target: Target,
    scale: int,
    *,
    tablespace: str | None = None,
    fillfactor: int | None = None,
    steps: str = "dtgvp",
    timeout_s: float = 24 * 3600.0,
) -> Command:
    """Loads pgbench's tables; `parse_init` reads the times of its phases from standard error.

    `tablespace` takes tables and indexes. The rows generated do not depend on a seed.
    """
    places = ("--tablespace", tablespace, "--index-tablespace", tablespace) if tablespace else ()
    fill = ("--fillfactor", str(fillfactor)) if fillfactor else ()
    return target.client(
        "pgbench",
        "--initialize",
        f"--init-steps={steps}",
        "--quiet",
        "--scale",
        str(scale),
        *places,
        *fill,
        timeout_s=timeout_s,
    )


def plan_run(
    target: Target,
    cell: Cell,
    workload: Workload,
    *,
    seed: int,
    duration_s: float | None = None,
    script_paths: Mapping[str, str] | None = None,
    log_prefix: str | None = None,
    aggregate_interval_s: int | None = None,
    max_tries: int = 1,
) -> Command:
    """One run of a cell, with a progress line each second on standard error.

    `duration_s` overrides the workload's bound (warm-up). `script_paths` are those of custom scripts on the host.
    `log_prefix` turns the per-transaction log on, sampled as the workload says. No vacuum by pgbench: it would
    rewrite what the trial has just prepared. Raises PreflightError for options that this major does not have.
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
        options += ["--log", f"--log-prefix={log_prefix}", *_log_options(workload, aggregate_interval_s)]
    options += _tries(target, max_tries)
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


def _log_options(workload: Workload, aggregate_interval_s: int | None) -> tuple[str, ...]:
    if aggregate_interval_s is not None:
        return (f"--aggregate-interval={aggregate_interval_s}",)  # excludes sampling
    if workload.log == "sampled" and workload.sampling_rate < 1:
        return (f"--sampling-rate={workload.sampling_rate:g}",)
    return ()


def _tries(target: Target, max_tries: int) -> tuple[str, ...]:
    if max_tries == 1:
        return ()
    if target.major < FIRST_MAJOR_WITH_TRIES:
        raise PreflightError(
            f"pgbench {target.major} does not try failed transactions again (max_tries = {max_tries})",
            hint=f"use pgbench of PostgreSQL {FIRST_MAJOR_WITH_TRIES} or later",
        )
    return (f"--max-tries={max_tries}",)
