"""What is said before a campaign begins."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pgstrata.analyze.campaign.gate import parse_condition
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.stats.detectable_difference import (
    least_blocks,
    pair_width_in_sigmas,
    smallest_shown,
    width_in_sigmas,
)
from pgstrata.analyze.stats.forecast import pairs_needed
from pgstrata.analyze.stats.interval import ALPHA, EQUIVALENCE_ALPHA
from pgstrata.cli.forecasting import (
    WarningPolicy,
    after_first_block,
    expected_trials,
    forecast,
    foresee,
    gate_warnings,
)
from pgstrata.record.decision import Decision, Observation
from pgstrata.record.reader import read
from pgstrata.spec.campaign import Campaign, Goal, Runs
from pgstrata.spec.quick import quick_campaign
from pgstrata.spec.units import render_duration
from pgstrata.trial.events import Event, Notice
from pgstrata_fake.campaigns import Shape, write_campaign


def quick(*stacks: str, **options: Any) -> Campaign:
    return quick_campaign(stacks, smallest_shown, **options)


def told(campaign: Campaign) -> list[str]:
    return list(forecast(campaign, expected_trials(campaign)))


@pytest.mark.parametrize("minutes", [3, 10, 30])
@pytest.mark.parametrize("stacks", [("ext4", "xfs"), ("ext4", "xfs", "btrfs", "tmpfs", "ext4:noatime", "xfs:noatime")])
def test_what_quick_takes_on_has_bounds_and_says_so(stacks: Sequence[str], minutes: float) -> None:
    campaign = quick(*stacks, minutes=minutes)
    found = foresee(campaign, expected_trials(campaign))
    assert math.isfinite(found.difference)
    assert "differences from about" in told(campaign)[1]
    assert not any("no bounds" in line or "none" in line for line in told(campaign))


@pytest.mark.parametrize(("minutes", "said"), [(4, True), (3, False)])
def test_two_fresh_pairs_can_prove_with_the_scatter_of_screening(minutes: float, said: bool) -> None:
    campaign = quick("ext4", "xfs", "btrfs", "tmpfs", "ext4:noatime", "xfs:noatime", minutes=3)
    campaign = campaign.model_copy(update={"runs": campaign.runs.model_copy(update={"budget": 60 * minutes})})
    found = foresee(campaign, expected_trials(campaign))
    assert (found.pairs >= 2) == said
    assert (
        any("fresh pairs of the two best: they prove differences from about" in line for line in told(campaign)) == said
    )


def test_what_shows_only_in_multiples_is_told_as_a_factor() -> None:
    line = told(quick("ext4", "xfs", minutes=1))[1]
    assert re.fullmatch(r"3 blocks of 2 runs: they prove differences from about \d+(\.\d)?-fold on", line), line


SIX = ("ext4", "xfs", "btrfs", "tmpfs", "ext4:noatime", "xfs:noatime")


def offered(lines: Sequence[str]) -> list[int]:
    """Minutes for differences of 25 %."""
    offers = [line for line in lines if line.startswith("differences of 25 %")]
    return [int(line.split("--minutes ")[1].rstrip(")")) for line in offers]


@pytest.mark.parametrize(("stacks", "minutes"), [(SIX[:2], 1), (SIX[:4], 3), (SIX, 3)])
def test_what_proves_nothing_of_use_names_the_minutes_that_do(stacks: Sequence[str], minutes: float) -> None:
    """And those do, also with the length and scale that quick chooses for them."""
    (needed,) = offered(told(quick(*stacks, minutes=minutes)))
    assert minutes < needed <= 10
    longer = quick(*stacks, minutes=needed)
    assert foresee(longer, expected_trials(longer)).proven <= 1.3 * math.log(1.25)
    assert offered(told(longer)) == []


def test_only_a_budget_that_proves_nothing_of_use_has_another_one_beside_it() -> None:
    assert offered(told(quick(*SIX[:2], minutes=10))) == []
    assert offered(told(quick(*SIX[:2], minutes=1, scale=1, blocks=3))) == []  # a declared number stays as it is
    campaign = quick(*SIX[:2], minutes=1)
    assert len(offered(told(campaign))) == 1
    boundless = campaign.model_copy(update={"runs": campaign.runs.model_copy(update={"budget": None})})
    assert offered(told(boundless)) == []


def test_what_has_no_bounds_says_what_would_have_them() -> None:
    campaign = quick("ext4", "xfs", minutes=3)
    short = campaign.model_copy(update={"runs": campaign.runs.model_copy(update={"budget": 40.0})})
    line = told(short)[1]
    assert "no bounds" in line
    minutes = float(line.split("--minutes ")[1].rstrip(")"))
    longer = campaign.model_copy(update={"runs": campaign.runs.model_copy(update={"budget": 60 * minutes})})
    assert "prove differences" in told(longer)[1]


def test_equality_of_pairs_to_a_baseline_costs_blocks_of_all_stacks() -> None:
    campaign = quick("ext4", "xfs", minutes=10)
    three = quick("ext4", "xfs", "btrfs", minutes=10).model_copy(
        update={"workload": campaign.workload, "goal": Goal(kind="against", against="ext4"), "runs": Runs()}
    )
    estimates = expected_trials(three)
    found = foresee(three, estimates)
    line = next(line for line in forecast(three, estimates) if line.startswith("equality"))
    pairs = int(line.split("takes about ")[1].split(" ")[0])
    assert f"({render_duration(pairs * found.block_s)})" in line


def scaled(scales: tuple[int, ...], *, clients: tuple[int, ...] = (8,), **goal: Any) -> Campaign:
    """Two stacks at those scales, for half an hour."""
    campaign = quick("ext4", "xfs", minutes=10, scale=10, duration_s=20.0)
    workload = campaign.workload.model_copy(update={"scale": scales, "clients": clients})
    runs = Runs(budget=1800.0, design="whole")
    return campaign.model_copy(update={"workload": workload, "runs": runs, "goal": Goal(margin=0.05, **goal)})


def test_a_block_has_a_trial_at_each_scale() -> None:
    one, three = scaled((10,)), scaled((1, 10, 20))
    for campaign in (one, three):
        estimates = expected_trials(campaign)
        found = foresee(campaign, estimates)
        block_s = sum(e.duration_s for e in estimates) / 6  # of as many blocks
        assert found.block_s == pytest.approx(block_s)
        assert found.blocks == int(1800 / block_s)
    assert foresee(three, expected_trials(three)).blocks < foresee(one, expected_trials(one)).blocks / 2
    assert re.match(r"\d+ blocks of 6 runs: ", told(three)[1])


def test_fresh_pairs_and_equality_cost_a_trial_at_each_scale() -> None:
    workload = scaled((1, 10, 20)).workload
    campaign = quick("ext4", "xfs", "btrfs", minutes=60).model_copy(update={"workload": workload})
    found = foresee(campaign, expected_trials(campaign))
    assert found.pairs == int((3600 - 3 * found.block_s) / (2 * found.block_s / 3))
    line = next(line for line in told(campaign) if line.startswith("equality"))
    pairs = int(re.findall(r"takes about (\d+) pairs", line)[0])
    assert f"({render_duration(pairs * 2 * found.block_s / 3)})" in line


def test_the_first_block_is_the_measure_of_those_that_follow(tmp_path: Path) -> None:
    """Also where a block has trials at three scales."""
    campaign = scaled((1, 10, 20))
    assert after_first_block(campaign, 30.0, tmp_path) == ""
    said = after_first_block(campaign, 600.0, tmp_path)
    assert "the first block took 10 min, so 30 min have room for 3 blocks; bounds take 4: " in said
    assert said.endswith(" --minutes 40")


def test_what_was_recorded_is_a_block_of_all_scales(tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "xfs"), blocks=3, scales=(1, 10, 20), incidents=False, soak_s=600)
    data = read(write_campaign(tmp_path / "c", shape))
    found = foresee(data.campaign, expected_trials(data.campaign), data)
    spent_s = sum(t.verdict.duration_s for t in data.trials if t.trial.stage == "screen")
    assert found.block_s == pytest.approx(spent_s / 3)


@pytest.mark.parametrize("stacks", [("ext4", "xfs"), ("ext4", "xfs", "btrfs")])
def test_the_width_of_several_cells_is_that_of_the_judge(tmp_path: Path, stacks: tuple[str, ...]) -> None:
    """Which divides the error rates by their number."""
    shape = Shape(stacks=stacks, blocks=8, scales=(10, 20), clients=(1, 8), incidents=False)
    findings = judge(read(write_campaign(tmp_path / "c", shape)))
    kind = findings.campaign.primary
    multiples = [
        math.log(c.high / c.low) / 2 / c.sigma
        for c in findings.comparisons
        if c.metric == kind and c.sigma and c.low and c.high
    ]
    expected = width_in_sigmas("best", len(stacks), 8, cells=4) / math.sqrt(2)
    assert median(multiples) == pytest.approx(expected, rel=0.1 if len(stacks) > 2 else 0.001)
    assert expected > 1.1 * width_in_sigmas("best", len(stacks), 8) / math.sqrt(2)


def test_several_cells_take_more_for_bounds_for_equality_and_for_fresh_pairs() -> None:
    assert least_blocks("best", 2, cells=4) > least_blocks("best", 2)
    assert pair_width_in_sigmas(4, 6, cells=4) > 1.1 * pair_width_in_sigmas(4, 6)
    said = {}
    for clients in ((8,), (1, 2, 4, 8)):
        campaign = scaled((10,), clients=clients)
        line = next(line for line in told(campaign) if line.startswith("equality"))
        said[clients] = int(re.findall(r"takes about (\d+) pairs", line)[0])
    sigma = math.sqrt(2) * foresee(scaled((10,)), ()).sigma
    assert said[8,] == pairs_needed(0.0, sigma, math.log1p(0.05))
    assert said[1, 2, 4, 8] == pairs_needed(0.0, sigma, math.log1p(0.05), ALPHA / 4, EQUIVALENCE_ALPHA / 4)
    assert said[1, 2, 4, 8] > said[8,]


def test_a_declared_number_of_blocks_without_bounds_names_the_number_that_has_them() -> None:
    one = quick("ext4", "xfs", minutes=10, blocks=1)
    least = least_blocks("best", 2, fixed=True)
    assert f"no bounds; it takes {least} blocks (--blocks {least})" in told(one)[1]
    assert "prove differences" in told(quick("ext4", "xfs", minutes=10, blocks=least))[1]


def test_gates_that_can_hardly_be_decided_are_told_beforehand() -> None:
    campaign = quick("ext4", "xfs", minutes=3)
    near, far = parse_condition("tps(xfs) < 0.95*tps(ext4)"), parse_condition("tps(xfs) < 0.2*tps(ext4)")
    said = list(gate_warnings(campaign, [near, far]))
    assert len(said) == 1
    assert said[0].startswith("tps(xfs) < 0.95*tps(ext4): differences from about ")
    assert list(gate_warnings(quick("ext4", "xfs", minutes=3000), [parse_condition("tps(xfs) < 0.8*tps(ext4)")])) == []
    none = list(gate_warnings(quick("ext4", "xfs", blocks=1), [near, far]))
    assert len(none) == 1
    assert none[0].startswith("no condition can be decided: 1 block of 2 runs: no bounds")
    assert list(gate_warnings(quick("ext4", "xfs", blocks=1), [])) == []


def test_what_was_measured_replaces_what_was_assumed(tmp_path: Path) -> None:
    data = read(write_campaign(tmp_path / "c", Shape(stacks=("ext4", "xfs"), blocks=3, incidents=False)))
    campaign = data.campaign
    before, after = (foresee(campaign, expected_trials(campaign), d) for d in (None, data))
    assert after.stack_s == pytest.approx(74.0)
    assert after.known == "measured here"
    assert before.known == "assumed: a quiet server, runs of 1 min"


def test_widths_are_those_of_the_production_intervals() -> None:
    """Narrower with more blocks; the same as what the policy's own forecast of pairs says."""
    from pgstrata.analyze.stats.forecast import smallest_difference

    widths = [width_in_sigmas("best", 2, blocks) for blocks in range(1, 30)]
    assert widths == sorted(widths, reverse=True)
    bounded = [n for n in range(1, 30) if math.isfinite(smallest_difference(1.0, n))]
    assert least_blocks("best", 2) == bounded[0]
    assert width_in_sigmas("best", 2, 20) == pytest.approx(smallest_difference(math.sqrt(2), 20), rel=0.02)
    assert math.isfinite(width_in_sigmas("against", 4, 10))
    assert math.isfinite(width_in_sigmas("all-pairs", 4, 12))


class Always:
    """A policy that goes on."""

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        return Decision("confirm", ("ext4", "xfs"))


def test_a_first_block_that_takes_too_long_is_told_with_the_command_that_would_do(tmp_path: Path) -> None:
    events: list[Event] = []
    campaign = quick("ext4", "xfs", minutes=3)
    policy = WarningPolicy(Always(), campaign, tmp_path / "out dir", events.append)
    policy.decide([], 0, 0.0)
    policy.decide([], 1, 10.0)
    assert events == []
    policy.decide([], 1, 90.0)
    (notice,) = events
    assert isinstance(notice, Notice)
    least = least_blocks("best", 2)
    assert f"room for 2 blocks; bounds take {least}: " in notice.text
    assert notice.text.endswith(f"run '{tmp_path}/out dir' --minutes {math.ceil(90 * least / 60)}")
    policy.decide([], 2, 180.0)
    assert len(events) == 1
