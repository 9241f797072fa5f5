"""Whole runs against slices of the same builds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pgstrata.analyze.campaign.statement_builder import whole_against_slices
from pgstrata.analyze.campaign.statements import WholeRunsApart
from pgstrata.analyze.stats.detectable_difference import expected_sigma, slices_sigma
from pgstrata.record.schema import CellResult, SliceResult
from pgstrata.report.sentences.statements import sentence
from pgstrata.spec.campaign import Slices
from pgstrata.spec.workload import Cell

CELL = Cell(script="tpcb-like", scale=1, clients=2)


def runs(slices: list[float], whole: dict[int, float]) -> Any:
    """Builds with that throughput in two turns, some with a whole run of 10 s."""
    found = []
    for block, tps in enumerate(slices):
        turns = [SliceResult(began_epoch_s=n, transactions=1, measured_s=2.0, sync_s=0.0) for n in range(2)]
        after = result(whole[block], 10.0) if block in whole else None
        data = SimpleNamespace(block=block, result=result(tps, 4.0, turns, after))
        found.append(SimpleNamespace(data=data))
    return found


def result(tps: float, seconds: float, turns: Any = (), whole: CellResult | None = None) -> CellResult:
    return CellResult(
        cell=CELL, started="", duration_s=seconds, transactions=10, tps=tps, slices=tuple(turns), whole=whole
    )


def test_a_contradiction_has_both_ratios() -> None:
    a = runs([1000.0, 1000.0, 1000.0], {0: 500.0})
    b = runs([1000.0, 1000.0, 1000.0], {0: 1000.0})
    found = whole_against_slices(a, b)
    assert found is not None
    assert [found.whole, found.slices] == pytest.approx([0.5, 1.0])
    assert found.blocks == 1
    said = sentence(WholeRunsApart(subject="a", object="b", whole=found.whole, slices=found.slices, runs=found.blocks))
    assert "0.50× in 1 whole run of each and 1.00× in slices" in said
    assert "`runs: {design: whole}`" in said


def test_runs_that_agree_say_nothing() -> None:
    a, b = runs([1000.0] * 5, {0: 950.0, 4: 1010.0}), runs([500.0] * 5, {0: 500.0, 4: 490.0})
    assert whole_against_slices(a, b) is None
    assert whole_against_slices(a, runs([500.0] * 5, {})) is None, "no whole runs of both"


def test_chance_alone_hardly_ever_contradicts() -> None:
    rng = np.random.default_rng(1)
    whole_sd, slices_sd = expected_sigma(10.0), slices_sigma(Slices(count=2))

    def build() -> Any:
        level = [1000 * math.exp(rng.normal(0, slices_sd)) for _ in range(5)]
        return runs(level, {block: 1000 * math.exp(rng.normal(0, whole_sd)) for block in (0, 4)})

    told = sum(whole_against_slices(build(), build()) is not None for _ in range(1000))
    assert told <= 12
