"""go-tpc as a driver. It ends with exit code 0 whatever happens to its workers, so only what it prints counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pgstrata.errors import PgstrataError, TrialError
from pgstrata.host.capabilities import Capability, Need, always
from pgstrata.host.protocol import Command, Completed
from pgstrata.spec.drivers import Driver, GoTpc
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.driver import DataRequest, LoadDriver, RunOutput, RunRequest, run_timeout_s
from pgstrata.workload.go_tpc_output import parse_runs, parse_seconds
from pgstrata.workload.program_driver import BOUNDED, PREPARE_TIMEOUT_S, excerpt, executable
from pgstrata.workload.target import Target
from pgstrata.workload.tool_run import ToolRun

INSTALLED_BY = "go install github.com/pingcap/go-tpc/cmd/go-tpc@v1.0.12, then copy it to /usr/local/bin"
CONDITIONS = 11
"""Conditions of clause 3.3.2 that hold at any time; condition 11 holds for new data alone."""
_CHECKED = re.compile(r"^begin to check warehouse \d+ at condition ([\d.]+)$", re.MULTILINE)
_BROKEN = re.compile(r"^(?:execute check|check prepare) failed, err (.*)$", re.MULTILINE)


class GoTpcDriver(LoadDriver):
    """Runs `go-tpc tpcc`; its password is in the file that PGPASSFILE names."""

    model: ClassVar[type[Driver]] = GoTpc
    load_phases: ClassVar[tuple[str, ...]] = ("prepare", "vacuum")

    def capabilities(self, workload: Workload) -> tuple[Capability, ...]:
        need = Need(executable(_asked(workload).program).problem, advice=always(INSTALLED_BY))
        return (Capability("driver.go-tpc", "run go-tpc", (need,)),)

    def plan_load(self, request: DataRequest) -> tuple[Command, ...]:
        prepare = _command(request.target, request.workload, request.scale, "prepare", "--no-check")
        return prepare, request.target.psql("VACUUM ANALYZE;\n", timeout_s=PREPARE_TIMEOUT_S)

    def plan_check(self, request: DataRequest, *, fresh: bool) -> tuple[Command, ...]:
        if not fresh and _asked(request.workload).check == "load":
            return ()
        every = ("--check-all",) if fresh else ()
        return (_command(request.target, request.workload, request.scale, "check", *every),)

    def broken_conditions(self, done: Sequence[Completed]) -> Sequence[str]:
        """Return the errors of its check; PgstrataError if it did not reach every condition."""
        text = done[0].stdout
        if broken := _BROKEN.findall(text):
            return broken
        if len(set(_CHECKED.findall(text))) < CONDITIONS or not text.rstrip().endswith("Finished"):
            raise PgstrataError(f"go-tpc did not check the conditions of TPC-C: {excerpt(text[-200:])}")
        return ()

    def plan_run(self, request: RunRequest) -> Command:
        cell = request.cell
        seconds = () if request.duration_s is None else ("--time", f"{request.duration_s:g}s")
        options = ("--threads", str(cell.clients), *seconds, "--interval", "1s", "--output", "json")
        limit_s = run_timeout_s(request.duration_s, cell.clients)
        return _command(
            request.target, request.workload, cell.scale, "run", *options, before=BOUNDED, timeout_s=limit_s
        )

    def parse_run(self, output: RunOutput, cell: Cell) -> ToolRun:
        runs = parse_runs(self.name, output.out)
        if len(runs) != 1:
            raise TrialError(f"go-tpc printed {len(runs)} results: {excerpt(output.out)}")
        return replace(runs[0], script=cell.script, progress=list(parse_seconds(output.out)))


def _asked(workload: Workload) -> GoTpc:
    assert isinstance(workload.driver, GoTpc)
    return workload.driver


def _command(
    target: Target,
    workload: Workload,
    warehouses: int,
    verb: str,
    *options: str,
    before: tuple[str, ...] = (),
    timeout_s: float = PREPARE_TIMEOUT_S,
) -> Command:
    argv = (
        *before, _asked(workload).program, "tpcc", verb,
        "--driver", "postgres",
        "--host", target.server,
        "--port", str(target.port),
        "--user", target.superuser,
        "--db", target.database,
        "--conn-params", "sslmode=disable",
        "--warehouses", str(warehouses),
        *options,
    )  # fmt: skip
    return target.command(argv, timeout_s=timeout_s)
