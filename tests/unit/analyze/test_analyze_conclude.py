"""The conclusion about one metric follows the design that was run."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.campaign.policy import AdaptivePolicy
from pgstrata.analyze.campaign.simulate import CELL
from pgstrata.analyze.stats.comparison import Design
from pgstrata.record.decision import Observation, Stage
from pgstrata.spec.campaign import Goal

NAMES = ("a", "b", "c")


def unlucky_first() -> list[Observation]:
    """a is far behind in the first three of twelve blocks, and the best in all others."""
    level = {"a": 1000.0, "b": 950.0, "c": 900.0}
    return [
        Observation(name, block, CELL, (level[name] - (200 if name == "a" and block < 3 else 0)) * _noise(at, block))
        for block in range(12)
        for at, name in enumerate(NAMES)
    ]


def _noise(stack: int, block: int) -> float:
    return 1 + 0.002 * ((3 * stack + 5 * block) % 7 - 3)


@pytest.mark.parametrize(("fixed", "chosen"), [(True, "a"), (False, "b")])
def test_a_fixed_design_drops_nothing(fixed: bool, chosen: str) -> None:
    found = conclude(Design(NAMES, (CELL,), Goal(), 12, fixed=fixed), unlucky_first(), CELL)
    assert found.leader == chosen
    assert found.own["a"].level > found.own["b"].level


def runs(levels: dict[str, float], blocks: int, stage: Stage = "screen", first: int = 0) -> list[Observation]:
    return [
        Observation(name, first + block, CELL, tps * _noise(at, block), stage)
        for block in range(blocks)
        for at, (name, tps) in enumerate(levels.items())
    ]


LEVELS = {"a": 1000.0, "b": 900.0, "c": 500.0}


def test_screening_alone_leads_and_chooses_nothing() -> None:
    design = Design(tuple(LEVELS), (CELL,), Goal())
    found = conclude(design, runs({"a": 1000.0, "b": 995.0, "c": 500.0}, 4), CELL)
    assert (found.leader, found.chosen) == ("a", False)


def test_fresh_pairs_that_decide_choose_the_leader() -> None:
    design = Design(tuple(LEVELS), (CELL,), Goal())
    seen = [*runs(LEVELS, 4), *runs({"a": 1000.0, "b": 900.0}, 8, "confirm", 4)]
    found = conclude(design, seen, CELL)
    assert (found.leader, found.chosen) == ("a", True)
    undecided = [*runs(LEVELS, 4), *runs({"a": 1000.0, "b": 999.0}, 4, "confirm", 4)]
    assert not conclude(design, undecided, CELL).chosen


def test_two_runs_each_choose_nothing() -> None:
    design = Design(("a", "c"), (CELL,), Goal())
    found = conclude(design, runs({"a": 1000.0, "c": 500.0}, 2), CELL, imported=True)
    assert (found.leader, found.chosen) == ("a", False)


def test_the_leader_is_the_best_that_can_be_chosen() -> None:
    levels = {"memory": 1500.0, "a": 1000.0, "b": 900.0, "c": 500.0}
    design = Design(tuple(levels), (CELL,), Goal(), candidates=frozenset({"a", "b", "c"}))
    found = conclude(design, runs(levels, 6), CELL)
    assert found.leader == "a"
    assert found.ranking == ("a", "b", "c", "memory")
    none = conclude(Design(tuple(levels), (CELL,), Goal(), candidates=frozenset()), runs(levels, 6), CELL)
    assert (none.leader, none.chosen) == (None, False)


def test_what_cannot_be_chosen_is_not_run_on_once_its_side_is_clear() -> None:
    levels = {"memory": 1500.0, "a": 1000.0, "b": 998.0}
    policy = AdaptivePolicy(Design(tuple(levels), (CELL,), Goal(), candidates=frozenset({"a", "b"})))
    decision = policy.decide(runs(levels, 3), 3, 0.0)
    assert decision.run == ("a", "b")
    assert policy.decide(runs(levels, 2), 2, 0.0).run == tuple(levels)


def test_the_table_gives_a_stack_that_evidently_scatters_more_its_own_variance() -> None:
    """Three runs of h scatter twenty times as much as the others': they tell its variance, and bounds are wide."""
    levels = dict.fromkeys("abcdefgh", 1000.0)
    swings = (0.85, 1.25, 0.99)
    seen = [replace(o, value=o.value * swings[o.block]) if o.stack == "h" else o for o in runs(levels, 3)]
    found = conclude(Design(tuple(levels), (CELL,), Goal()), seen, CELL)
    nu = {p.a + p.b: p.verdict.estimate.nu for p in found.screened}
    assert nu["ah"] < 6 < nu["ab"]
    width = {p.a + p.b: p.verdict.interval.high - p.verdict.interval.low for p in found.screened}
    others = max(width[a + b] for a, b in combinations("abcdefg", 2))
    assert 10 * others < min(width[a + "h"] for a in "abcdefg") < math.inf


def lossy(share: int, blocks: int = 24) -> list[Observation]:
    """a is 5 % ahead of b; one of `share` of its runs loses half."""
    return [
        Observation(name, block, CELL, tps * _noise(at, block) * (0.5 if name == "a" and block % share == 3 else 1.0))
        for block in range(blocks)
        for at, (name, tps) in enumerate({"a": 1050.0, "b": 1000.0}.items())
    ]


def test_a_stack_whose_mean_is_not_ahead_is_not_better() -> None:
    """A robust estimate alone calls it better, and a user who meets the other runs does not."""
    found = conclude(Design(("a", "b"), (CELL,), Goal()), lossy(6), CELL)
    (pair,) = found.confirmed
    assert pair.verdict.verdict == "undecided"
    assert pair.verdict.interval.low < 0 < pair.verdict.estimate.value < pair.verdict.interval.high
    assert pair.needed() is None
    assert not found.chosen


def test_what_the_plain_mean_needs_is_forecast() -> None:
    """One run of twelve loses a third: the mean is ahead, and not by enough."""
    seen = [replace(o, value=o.value * (0.7 if o.stack == "a" and o.block == 5 else 1.0)) for o in lossy(100)]
    (pair,) = conclude(Design(("a", "b"), (CELL,), Goal()), [o for o in seen if 4 <= o.block < 16], CELL).confirmed
    assert pair.verdict.verdict == "undecided"
    assert pair.verdict.estimate.value > 0
    needed = pair.needed()
    assert needed is not None
    assert 1 < needed < 100


def test_a_stack_with_a_bad_mode_is_not_chosen_although_its_mean_is_ahead() -> None:
    seen = [replace(o, value=o.value * (1.4 if o.stack == "a" else 1.0)) for o in lossy(6)]
    found = conclude(Design(("a", "b"), (CELL,), Goal()), seen, CELL)
    assert found.confirmed[0].verdict.verdict == "better"
    assert (found.leader, found.chosen) == ("a", False)
    assert found.held_back is not None
    assert (found.held_back.stack, found.held_back.bad) == ("a", 4)
