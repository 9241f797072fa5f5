"""A driver that is registered from outside the package is treated like those of the package everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.expand import why_whole
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.file.schema import campaign_schema
from pgstrata.spec.workload import Cell, Workload
from pgstrata.stack.sizing import content_of
from pgstrata.workload.driver import RunOutput, driver_of
from pgstrata_docs.campaign import render_reference
from statement_driver import Statement, StatementDriver, registered


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    """Known for the time of a test."""
    with registered():
        yield


def read(tmp_path: Path, workload: str) -> Campaign:
    file = tmp_path / "campaign.yaml"
    file.write_text(f"stacks:\n  a: ext4\n  b: xfs\nworkload: {workload}\n")
    return load_campaign(file)


def test_a_campaign_names_it_and_its_metric_is_what_verdicts_are_about(tmp_path: Path) -> None:
    short = read(tmp_path, "{driver: statement, script: count}")
    assert short.workload.driver == Statement()
    assert short.goal.primary == "statements_per_minute"
    long = read(tmp_path, "{driver: {kind: statement, rows: 3}, script: count, scale: 4}")
    assert long.workload.driver == Statement(rows=3)
    assert Campaign.model_validate_json(long.model_dump_json()) == long
    assert isinstance(driver_of(long.workload), StatementDriver)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ("{driver: {kind: statement, row: 3}}", "row"),
        ("{driver: statements}", "statement"),
        ("{driver: statement, rate: 100}", "rate means nothing to the driver statement"),
        ("{driver: statement, protocol: prepared}", "protocol means nothing to the driver statement"),
    ],
)
def test_what_it_cannot_do_is_refused(tmp_path: Path, workload: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read(tmp_path, workload)


def test_schema_reference_size_and_slices_know_it(tmp_path: Path) -> None:
    jsonschema.validate({"stacks": ["ext4"], "workload": {"driver": "statement"}}, campaign_schema())
    jsonschema.validate(
        {"stacks": ["ext4"], "workload": {"driver": {"kind": "statement", "rows": 2}}}, campaign_schema()
    )
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            {"stacks": ["ext4"], "workload": {"driver": {"kind": "statement", "row": 2}}}, campaign_schema()
        )
    assert "| `rows` | whole number | `10` | rows for each unit of scale |" in render_reference()
    campaign = read(tmp_path, "{driver: statement, scale: 4}")
    own = Campaign.model_validate({"name": "x", "stacks": campaign.stacks, "workload": {"scale": 4}})
    assert content_of(campaign, campaign.stacks[0]).database_bytes < content_of(own, own.stacks[0]).database_bytes
    about_tps = campaign.model_copy(update={"goal": campaign.goal.model_copy(update={"primary": "tps"})})
    assert "runs of the driver statement cannot be cut" in why_whole(about_tps)


def test_its_figures_keep_their_names() -> None:
    output = RunOutput("", "psql:<stdin>:1: NOTICE:  done 12\n")
    run = StatementDriver().parse_run(output, Workload.model_validate({"script": "count"}).cells[0])
    assert run.figures == {"statements_per_minute": 360.0}
    assert run.script == Cell(script="count", scale=1, clients=1).script
