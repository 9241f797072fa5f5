"""sysbench as a driver: prepare and run of one of its scripts, by libpq."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from pgstrata.errors import TrialError
from pgstrata.host.capabilities import Capability, everywhere, program
from pgstrata.host.protocol import Command
from pgstrata.spec.drivers import ROWS, Driver, Sysbench
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.driver import DataRequest, LoadDriver, RunOutput, RunRequest, run_timeout_s
from pgstrata.workload.program_driver import BOUNDED, PREPARE_TIMEOUT_S, excerpt
from pgstrata.workload.sysbench_output import parse_runs
from pgstrata.workload.target import Target
from pgstrata.workload.tool_run import ToolRun


class SysbenchDriver(LoadDriver):
    """Runs one of the scripts; all of them use the same tables."""

    model: ClassVar[type[Driver]] = Sysbench
    load_phases: ClassVar[tuple[str, ...]] = ("prepare", "vacuum")

    def capabilities(self, workload: Workload) -> tuple[Capability, ...]:
        return (Capability("driver.sysbench", "run sysbench", (program("sysbench", everywhere("sysbench")),)),)

    def plan_load(self, request: DataRequest) -> tuple[Command, ...]:
        prepare = _command(request.target, request.workload.script[0], request.scale, "prepare")
        return prepare, request.target.psql("VACUUM ANALYZE;\n", timeout_s=PREPARE_TIMEOUT_S)

    def plan_run(self, request: RunRequest) -> Command:
        cell = request.cell
        options = (
            f"--threads={cell.clients}",
            f"--time={math.ceil(request.duration_s or 0)}",
            f"--rand-seed={request.seed}",
            "--report-interval=1",
            "--percentile=99",
        )
        limit_s = run_timeout_s(request.duration_s, cell.clients)
        return _command(request.target, cell.script, cell.scale, "run", *options, before=BOUNDED, timeout_s=limit_s)

    def parse_run(self, output: RunOutput, cell: Cell) -> ToolRun:
        runs = parse_runs(self.name, output.out)
        if len(runs) != 1:
            raise TrialError(f"sysbench printed {len(runs)} results: {excerpt(output.out)}")
        return replace(runs[0], script=cell.script)


def _command(
    target: Target,
    script: str,
    tables: int,
    verb: str,
    *options: str,
    before: tuple[str, ...] = (),
    timeout_s: float = PREPARE_TIMEOUT_S,
) -> Command:
    argv = (
        *before,
        "sysbench",
        script,
        "--db-driver=pgsql",
        f"--pgsql-host={target.server}",
        f"--pgsql-port={target.port}",
        f"--pgsql-user={target.superuser}",
        f"--pgsql-db={target.database}",
        f"--tables={tables}",
        f"--table-size={ROWS}",
        *options,
        verb,
    )
    return target.command(argv, timeout_s=timeout_s)
