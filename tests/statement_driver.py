"""A driver that is no part of pgstrata: this file, and `register(StatementDriver())`. It runs psql."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from pydantic import Field

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Command, Completed
from pgstrata.spec.drivers import Driver
from pgstrata.spec.workload import Cell
from pgstrata.workload.driver import (
    DRIVERS,
    DataRequest,
    LoadDriver,
    LoadTimes,
    RunOutput,
    RunRequest,
    register,
    run_timeout_s,
)
from pgstrata.workload.tool_run import ToolRun


class Statement(Driver):
    """One statement, again and again, which stands for a load."""

    kind: Literal["statement"] = "statement"
    bytes_per_scale: ClassVar[int] = 2**20
    rows: int = Field(10, ge=1, description="rows for each unit of scale")

    @property
    def primary(self) -> str:
        return "statements_per_minute"


class StatementDriver(LoadDriver):
    """Runs the statement for the time of a run."""

    model: ClassVar[type[Driver]] = Statement

    def plan_load(self, request: DataRequest) -> tuple[Command, ...]:
        driver = request.workload.driver
        assert isinstance(driver, Statement)
        rows = driver.rows * request.scale
        fill = f"CREATE TABLE said AS SELECT n FROM generate_series(1, {rows}) n;\n"
        return (request.target.client("psql", "--no-psqlrc", "--file=-", timeout_s=60, stdin=fill),)

    def parse_load(self, done: Sequence[Completed]) -> LoadTimes:
        return LoadTimes(phases_s={"fill": done[0].duration_s})

    def plan_run(self, request: RunRequest) -> Command:
        assert request.duration_s is not None
        loop = (
            "DO $$ DECLARE done bigint := 0; BEGIN "
            f"WHILE clock_timestamp() < now() + interval '{request.duration_s} s' "
            "LOOP UPDATE said SET n = n + 1; done := done + 1; END LOOP; RAISE NOTICE 'done %', done; END $$;\n"
        )
        timeout_s = run_timeout_s(request.duration_s, 1)
        return request.target.client("psql", "--no-psqlrc", "--file=-", timeout_s=timeout_s, stdin=loop)

    def parse_run(self, output: RunOutput, cell: Cell) -> ToolRun:
        if "done " not in output.err:
            raise TrialError("psql said nothing of its statements")
        done = int(output.err.rpartition("done ")[2])
        return ToolRun(
            "psql",
            cell.script,
            {"statements_per_minute": done * 30.0},
            result={"duration_s": 2.0, "transactions": done},
        )


@contextmanager
def registered() -> Iterator[None]:
    """The driver is known for the time of a test."""
    tables: tuple[dict[str, Any], ...] = (DRIVERS, Driver.kinds)
    before = [dict(table) for table in tables]
    register(StatementDriver())
    try:
        yield
    finally:
        for table, held in zip(tables, before, strict=True):
            table.clear()
            table.update(held)
