"""Real trials whose load is not pgbench."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgstrata.analyze.campaign.metrics import primary_value
from pgstrata.record.reader import read
from pgstrata.spec.drivers.kind import Driver
from pgstrata.workload.driver import DRIVERS, register
from small_campaigns import campaign, run, stack
from statement_driver import StatementDriver


@pytest.fixture
def outside() -> Iterator[None]:
    """A driver from outside the package, known for the time of a test."""
    tables: tuple[dict[str, Any], ...] = (DRIVERS, Driver.kinds)
    before = [dict(table) for table in tables]
    register(StatementDriver())
    yield
    for table, held in zip(tables, before, strict=True):
        table.clear()
        table.update(held)


@pytest.mark.usefixtures("outside")
def test_a_driver_from_outside_loads_runs_and_is_recorded_by_its_own_metric(place: Path) -> None:
    workload = {"driver": {"kind": "statement", "rows": 7}, "script": "count", "scale": 2, "duration": 2}
    asked = campaign(stack("memory", "tmpfs"), workload=workload, blocks=2)
    assert run(place, asked).counts == {"ok": 2}
    data = read(place / "out")
    first, second = data.trials
    assert first.load is not None
    assert list(first.load.phases_s) == ["fill"]
    assert second.load is not None
    assert second.load.how == "copy"
    for trial in data.trials:
        (cell,) = trial.cells
        assert cell.result.transactions > 10
        assert cell.result.tps is None
        assert primary_value(trial, cell, data.campaign.goal.primary) == cell.result.transactions * 30.0
        assert (place / "out" / cell.folder / "raw" / "statement.err").read_text().startswith("psql:<stdin>:1: NOTICE:")
