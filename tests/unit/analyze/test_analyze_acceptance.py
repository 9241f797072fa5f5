"""A small edition of benches/acceptance.py, with bounds widened for few campaigns; the full one runs by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[3] / "benches" / "acceptance.py"
CAMPAIGNS = 12
SIGMAS = 3.5
MUTANT_CAMPAIGNS = 30


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("acceptance_bench", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["acceptance_bench"] = module
    spec.loader.exec_module(module)
    return module


def test_rows_of_campaigns_hold(bench: ModuleType) -> None:
    names = ["A/A 2 noisy", "A/A 4 typical", "equal-5 quiet", "spread typical", "equivalent 0 quiet"]
    checks = list(bench.campaign_checks(bench.run_jobs(names, CAMPAIGNS, 1)))
    assert {c.row for c in checks} >= {"1", "2", "3", "4", "5"}
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_shapes_hold(bench: ModuleType) -> None:
    checks = list(bench.shape_checks(40))
    assert len(checks) == 4
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_robustness_hold(bench: ModuleType) -> None:
    assert [c for c in bench.robustness_checks(2) if not c.holds()] == []


def test_rows_of_choice_hold(bench: ModuleType) -> None:
    names = [
        "ahead 4 scatter 4, quietest",
        "ahead 4 scatter 10, noisiest",
        "A/A 4 scatter 10",
        "A/A 2 AR(1) with steps",
    ]
    checks = list(bench.campaign_checks(bench.run_jobs(names, CAMPAIGNS, 1)))
    assert [c for c in checks if c.row == "10"] != []
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_proof_hold(bench: ModuleType) -> None:
    names = ["proof against 4, 20 % at 3 %", "proof best 4, 20 % at 3 %", "A/A against 4, baseline 20 %, others 2 %"]
    checks = list(bench.campaign_checks(bench.run_jobs(names, CAMPAIGNS, 1)))
    assert len([c for c in checks if c.row == "12"]) == 4
    assert [c for c in checks if not c.holds(SIGMAS)] == []


HOSTS = "hosts 6, interaction 10%, 12 blocks each"


def test_rows_of_hosts_hold(bench: ModuleType) -> None:
    names = [HOSTS, "hosts 12, interaction 3%, ahead 10 %"]
    checks = list(bench.campaign_checks(bench.run_jobs(names, CAMPAIGNS, 1)))
    assert {c.row for c in checks} == {"13"}
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_a_declared_number_of_blocks_hold(bench: ModuleType) -> None:
    names = ["A/A declared 4 blocks of 4, typical", "looks declared 10 blocks of 4, typical", *bench.SHOWN]
    checks = list(bench.campaign_checks(bench.run_jobs(names, CAMPAIGNS, 1)))
    assert len([c for c in checks if c.row == "14"]) == 2
    assert [c for c in checks if not c.holds(SIGMAS)] == []


RARE = "rare 15% x -50% margin 5%"


def test_rare_bad_runs_are_not_called_equal(bench: ModuleType) -> None:
    checks = list(bench.campaign_checks(bench.run_jobs([RARE], CAMPAIGNS, 1)))
    assert [c for c in checks if not c.holds(SIGMAS)] == []


@pytest.mark.parametrize(
    ("rule", "scenario", "row"),
    [
        ("plain-mean", RARE, "11"),
        ("least-runs", RARE, "11"),
        ("chosen", "ahead 4 scatter 10, quietest", "10"),
        ("hosts", HOSTS, "13"),
    ],
)
def test_a_mutant_of_a_rule_fails(bench: ModuleType, rule: str, scenario: str, row: str) -> None:
    undo = bench.weaken(rule)
    try:
        checks = list(bench.campaign_checks(bench.run_jobs([scenario], MUTANT_CAMPAIGNS, 1)))
    finally:
        undo()
    assert [c for c in checks if c.row == row and not c.holds(1.0)] != []


def test_a_mutant_with_narrow_intervals_fails(bench: ModuleType) -> None:
    undo = bench.narrow_intervals(3.0)
    try:
        checks = list(bench.campaign_checks(bench.run_jobs(["A/A 4 typical"], CAMPAIGNS, 1)))
    finally:
        undo()
    assert [c for c in checks if c.row == "1" and not c.holds(SIGMAS)] != []
