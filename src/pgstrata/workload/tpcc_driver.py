"""TPC-C as a driver: pgbench with the scripts of `workload/tpcc`, NOPM, and the consistency conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.protocol import Command, Completed
from pgstrata.spec.drivers import Driver, Tpcc
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.driver import DataRequest, LoadDriver, LoadTimes, RunOutput, RunRequest
from pgstrata.workload.pgbench import PgbenchDriver
from pgstrata.workload.tool_run import ToolRun

FOLDER = Path(__file__).parent / "tpcc"
WEIGHTS = {"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4}
"""The least shares of clause 5.2.3, with the rest for new orders."""
CONDITIONS = 12
LOAD_TIMEOUT_S = 24 * 3600.0


class TpccDriver(PgbenchDriver):
    """Five scripts as one mix, on the data of the specification."""

    model: ClassVar[type[Driver]] = Tpcc
    load_phases: ClassVar[tuple[str, ...]] = ("tables and keys", "vacuum")

    def refusals(self, workload: Workload, major: int) -> Iterator[PreflightError]:
        """Yield nothing: every supported pgbench runs these scripts."""
        yield from ()

    def plan_load(self, request: DataRequest) -> tuple[Command, ...]:
        place = f"SET default_tablespace = '{request.tablespace}';\n" if request.tablespace else ""
        text = f"{place}{_sql('load')}"
        fill = request.target.psql(
            text, "--single-transaction", f"--set=scale={request.scale}", timeout_s=LOAD_TIMEOUT_S
        )
        return fill, request.target.psql("VACUUM ANALYZE;\n", timeout_s=LOAD_TIMEOUT_S)

    def parse_load(self, done: Sequence[Completed]) -> LoadTimes:
        return LoadDriver.parse_load(self, done)

    def plan_check(self, request: DataRequest, *, fresh: bool) -> tuple[Command, ...]:
        return (request.target.psql(_sql("check"), f"--set=fresh={str(fresh).lower()}", timeout_s=LOAD_TIMEOUT_S),)

    def broken_conditions(self, done: Sequence[Completed]) -> Sequence[str]:
        counts = dict(line.split("|") for line in done[0].stdout.split())
        if len(counts) != CONDITIONS:
            raise PgstrataError(f"{len(counts)} of {CONDITIONS} conditions of TPC-C were checked")
        return [f"condition {number} of TPC-C 3.3.2 ({n} rows)" for number, n in counts.items() if n != "0"]

    @property
    def state_conditions(self) -> str:
        lines = (line for line in _sql("check").splitlines() if not line.startswith("--"))
        return "\n".join(lines).replace(":fresh", "false").strip().removesuffix(";")

    def files(self, workload: Workload, cell: Cell) -> Mapping[str, str]:
        return {f"{FOLDER}/{name}.sql": f"{name}.sql" for name in WEIGHTS}

    def plan_run(self, request: RunRequest) -> Command:
        return super().plan_run(replace(request, cell=_mix(request.cell)))

    def parse_run(self, output: RunOutput, cell: Cell) -> ToolRun:
        """Return the run with NOPM: new orders a minute, of which the specification rolls back one in a hundred."""
        run = super().parse_run(output, _mix(cell))
        orders = next(one for one in run.result["scripts"] if one["name"] == "new_order")
        nopm = 60.0 * orders["tps"]
        return replace(run, script=cell.script, figures={"nopm": nopm, **run.figures})


def _mix(cell: Cell) -> Cell:
    mix = "+".join(f"{FOLDER}/{name}.sql@{weight}" for name, weight in WEIGHTS.items())
    return cell.model_copy(update={"script": mix})


def _sql(name: str) -> str:
    return (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
