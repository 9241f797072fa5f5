"""What is said before a campaign begins."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pgstrata.analyze.gate import parse_condition
from pgstrata.analyze.reach import least_blocks, smallest_shown, width_in_sigmas
from pgstrata.cli.forecasting import Foretelling, expected_trials, forecast, foresee, gate_warnings
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
    assert after.trial_s == pytest.approx(74.0)
    assert after.known == "measured here"
    assert before.known == "assumed: a quiet server, runs of 1 min"


def test_widths_are_those_of_the_production_intervals() -> None:
    """Narrower with more blocks; the same as what the policy's own forecast of pairs says."""
    from pgstrata.analyze.forecast import smallest_difference

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
    policy = Foretelling(Always(), campaign, tmp_path / "out dir", events.append)
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
