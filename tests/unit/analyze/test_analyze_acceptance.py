"""A small edition of benches/acceptance.py, with bounds widened for few campaigns; the full one runs by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance_table.checks import Check, campaign_checks
from acceptance_table.mutants import RULES, replaced, weaken
from acceptance_table.outcome import Job, simulate
from acceptance_table.running import run_jobs
from acceptance_table.scenarios import MODES, RARE_AND_BAD, RARER, SHOWN, scenarios
from acceptance_table.shapes import robustness_checks, shape_checks
from acceptance_table.summary import print_summary
from acceptance_table.telling import telling_checks
from acceptance_table.units import unit_checks
from acceptance_table.weakened import WEAKENED, Weakened

from pgstrata.analyze.stats import equivalence
from pgstrata.trial.scheduler import Inline

pytestmark = pytest.mark.slow

CAMPAIGNS = 12
SIGMAS = 3.5


def test_rows_of_campaigns_hold() -> None:
    names = ["A/A 2 noisy", "A/A 4 typical", "equal-5 quiet", "spread typical", "equivalent 0 quiet"]
    checks = list(campaign_checks(run_jobs(names, CAMPAIGNS, Inline())))
    assert {c.row for c in checks} >= {"1", "2", "3", "4", "5"}
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_shapes_hold() -> None:
    checks = list(shape_checks(40))
    assert len(checks) == 4
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_what_is_told_beside_verdicts_hold() -> None:
    checks = list(telling_checks(40))
    assert {c.row for c in checks} == {"20", "22", "23"}
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_hosts_sessions_nights_and_turns_hold() -> None:
    checks = list(unit_checks(12))
    assert {c.row for c in checks} == {"25", "26", "27", "28", "32", "33", "34", "35", "36", "37"}
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_robustness_hold() -> None:
    assert [c for c in robustness_checks(2) if not c.holds()] == []


def test_rows_of_choice_hold() -> None:
    names = [
        "ahead 4 scatter 4, quietest",
        "ahead 4 scatter 10, noisiest",
        "A/A 4 scatter 10",
        "A/A 2 AR(1) with steps",
    ]
    checks = list(campaign_checks(run_jobs(names, CAMPAIGNS, Inline())))
    assert [c for c in checks if c.row == "10"] != []
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_an_open_verdict_on_two_others_is_none_beside_the_chosen_one() -> None:
    """Against a baseline: the leader is (wrongly) better than all, and whether two others are equal is open."""
    name = "A/A against 4, one 20 %, others 2 %"
    found = simulate(Job(name, scenarios()[name][0], 56))
    assert found.chosen
    assert found.false_claim
    assert not found.beside_open


def test_rows_of_proof_hold() -> None:
    names = ["proof against 4, 20 % at 3 %", "proof best 4, 20 % at 3 %", "A/A against 4, baseline 20 %, others 2 %"]
    checks = list(campaign_checks(run_jobs(names, CAMPAIGNS, Inline())))
    assert len([c for c in checks if c.row == "12"]) == 4
    assert len([c for c in checks if c.row == "19"]) == 1
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_hosts_hold() -> None:
    names = ["hosts 6, interaction 10%, 12 blocks each", "hosts 12, interaction 3%, ahead 10 %"]
    checks = list(campaign_checks(run_jobs(names, CAMPAIGNS, Inline())))
    assert {c.row for c in checks} == {"13"}
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_a_declared_number_of_blocks_hold() -> None:
    names = ["A/A declared 4 blocks of 4, typical", "looks declared 10 blocks of 4, typical", *SHOWN]
    checks = list(campaign_checks(run_jobs(names, CAMPAIGNS, Inline())))
    assert len([c for c in checks if c.row == "14"]) == 2
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rare_bad_runs_are_not_called_equal() -> None:
    checks = list(campaign_checks(run_jobs([RARE_AND_BAD], CAMPAIGNS, Inline())))
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_rows_of_builds_in_two_modes_hold() -> None:
    checks = list(campaign_checks(run_jobs(list(MODES), CAMPAIGNS, Inline())))
    assert len([c for c in checks if c.row == "18"]) == 2 * len(MODES)
    assert [c for c in checks if not c.holds(SIGMAS)] == []


def test_every_rule_has_a_scenario_that_notices_it() -> None:
    assert {one.rule for one in WEAKENED} == {"3.0", *RULES}


def test_a_mutant_takes_what_the_rule_takes() -> None:
    honest = dict(vars(equivalence))
    assert [rule for rule in RULES if weaken(rule)() is not None] == []
    assert vars(equivalence) == honest
    with pytest.raises(TypeError, match="too many positional arguments"):
        replaced(equivalence, "interval", lambda estimate: estimate)
    assert vars(equivalence) == honest


@pytest.mark.parametrize("one", [one for one in WEAKENED if one.campaigns <= 30], ids=lambda one: one.rule)
def test_a_mutant_of_a_rule_fails(one: Weakened) -> None:
    """The others take longer: `benches/acceptance.py --mutants` runs all."""
    assert one.missed(Inline()) != []


def test_a_table_can_be_run_in_pieces(tmp_path: Path) -> None:
    """The campaigns that were kept are not run again, and are those of a table run at once."""
    names, kept = ["declared 4 blocks, 4 stacks, 0 -5 -10 -20 %", "proof best 4, 20 % at 3 %"], tmp_path / "kept"
    run_jobs(names[:1], 2, Inline(), kept)
    run_jobs(names, 1, Inline(), kept)
    first = kept.read_text()
    found = run_jobs(names, 3, Inline(), kept)
    assert kept.read_text().startswith(first)
    assert len(kept.read_text().splitlines()) == 6
    assert found == run_jobs(names, 3, Inline())
    assert list(campaign_checks(run_jobs(["A/A 2 quiet"], 0, Inline(), kept))) == []


def test_a_summary_has_the_least_and_the_most_of_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    found = [("A/A 2 quiet", 0.0104, 2000), ("A/A 12 t3", 0.03, 500), ("hosts 6, interaction 0%, A/A 2", 0.0, 200)]
    print_summary([Check("1", name, "false claim", figure, True, 0.05, count) for name, figure, count in found])
    first, other = capsys.readouterr().out.splitlines()[2:]
    assert first.startswith("| 1 | 2, 4 and 12 equal stacks: quiet")
    assert first.endswith("8 % outliers: false claim | <= 0.05 | 0.010 to 0.030 | 500 to 2,000 |")
    assert other.endswith("each: false claim | <= 0.05 | 0.000 | 200 |")


def test_every_scenario_has_words_in_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary([Check("1", name, "false claim", 0.0, True, 0.05, 1) for name in scenarios()])
    told = capsys.readouterr().out
    assert [name for name in scenarios() if f"| {name}: " in told] == []


def test_what_hides_a_mode_is_told() -> None:
    checks = list(campaign_checks(run_jobs(list(RARER), CAMPAIGNS, Inline())))
    assert len([c for c in checks if c.row == "24"]) == len(RARER)
    assert [c for c in checks if not c.holds(SIGMAS)] == []
