"""Cost of transactions: from the prices of a campaign to the table."""

from __future__ import annotations

import json

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.statements import Capacity, CapacityBracket
from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import read
from pgstrata.report.tables.further import FurtherTable, further_tables
from pgstrata.spec.campaign import Prices, cost_of_million
from pgstrata_fake.campaigns import Shape, write_campaign

PRICES = Prices(currency="EUR", host=0.5, stacks={"ext4": 0.1, "xfs": 0.3}, rate=900)


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    place = tmp_path_factory.mktemp("costs") / "campaign"
    data = read(write_campaign(place, Shape(stacks=("ext4", "xfs", "btrfs"), blocks=4, duration_s=45)))
    campaign = data.campaign.model_copy(update={"price": PRICES})
    record = data.record.model_copy(update={"campaign": campaign})
    return judge(data.__class__(**{**vars(data), "record": record}))


def table_of(findings: Findings) -> FurtherTable:
    (table,) = (one for one in further_tables(findings, findings.cells[0]) if one.name == "costs")
    return table


def test_a_million_transactions_at_1000_a_second_take_1000_s() -> None:
    assert cost_of_million(3.6, 1000) == pytest.approx(1.0)
    assert cost_of_million(3.6, 0) is None
    assert cost_of_million(3.6, None) is None


def test_the_interval_is_that_of_the_throughput_turned_round(priced: Findings) -> None:
    for stack in (s for s in priced.stacks if s.name == "xfs"):
        tps = stack.metrics["tps"]
        assert stack.cost is not None
        assert stack.cost.per_hour == pytest.approx(0.8)
        assert (stack.cost.low, stack.cost.high) == (cost_of_million(0.8, tps.high), cost_of_million(0.8, tps.low))
        assert stack.cost.low is not None
        assert stack.cost.high is not None
        assert stack.cost.low < stack.cost.million < stack.cost.high


def test_stacks_without_a_price_have_no_cost(priced: Findings) -> None:
    assert {s.name for s in priced.stacks if s.cost is not None} == {"ext4", "xfs"}
    assert {row[0] for row in table_of(priced).rows} == {"ext4", "xfs"}
    assert all(row[3].endswith(" EUR") for row in table_of(priced).rows)


@pytest.mark.parametrize(
    ("shown_tps", "words"),
    [
        ({"ext4": 850.0, "xfs": 950.0, "btrfs": 2000.0}, "`xfs`, for 0.800 EUR an hour."),
        ({"ext4": 900.0, "xfs": 950.0}, "`ext4`, for 0.600 EUR an hour."),
        ({"ext4": 899.0, "btrfs": 2000.0}, "No stack with a price was shown to keep p99 within 20 ms at 900/s."),
    ],
)
def test_the_cheapest_stack_has_shown_the_rate(priced: Findings, shown_tps: dict[str, float], words: str) -> None:
    brackets = tuple(
        CapacityBracket(name=n, low_tps=t, high_tps=None, runs=2, unfinished=False) for n, t in shown_tps.items()
    )
    capacity = Capacity(percentile="p99", objective_ms=20, brackets=brackets)
    cell = priced.cells[0].model_copy(update={"statements": (capacity,)})
    (said,) = table_of(priced.model_copy(update={"cells": (cell,)})).words
    assert said.endswith(words)


def test_the_report_in_json_has_the_cost(priced: Findings) -> None:
    told = json.loads(priced.model_dump_json())
    assert {s["name"]: s["cost"] and s["cost"]["currency"] for s in told["stacks"]}["ext4"] == "EUR"
