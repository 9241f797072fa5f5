"""Two modes of the differences of a pair, and the claims that they keep back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgstrata.analyze.campaign.conclude import PairConclusion, conclude
from pgstrata.analyze.campaign.pair_findings import PairFindings, pair_statement
from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.campaign.simulate import CELL
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.confirm import paired_location
from pgstrata.analyze.stats.interval import Estimate
from pgstrata.analyze.stats.two_modes import two_modes
from pgstrata.record.decision import Observation
from pgstrata.report.sentences.statements import sentence
from pgstrata.spec.campaign import Goal

QUIET = (0.004, -0.003, 0.002, -0.002, 0.003, -0.004, 0.001, -0.001)
DESIGN = Design(("a", "b"), (CELL,), Goal())


def concluded(differences: list[float]) -> PairConclusion:
    runs = [
        Observation(name, block, CELL, 1000 * float(np.exp(d if name == "a" else 0.0)), "confirm")
        for block, d in enumerate(differences)
        for name in ("a", "b")
    ]
    (found,) = conclude(DESIGN, runs, CELL).confirmed
    return found


def test_the_split_with_the_least_squares_within() -> None:
    d = np.array([0.08, -0.08, 0.09, 0.07, 0.08, -0.07])
    found = two_modes(d, paired_location(d))
    assert found is not None
    assert found.low == pytest.approx(-0.075)
    assert found.high == pytest.approx(0.08)
    assert (found.below, found.above) == (2, 4)
    assert found.distance == pytest.approx(0.155)


def test_the_scatter_of_other_stacks_counts() -> None:
    d = np.array([0.08, -0.08, 0.09, 0.07, 0.08, -0.07])
    se = 0.06 / np.sqrt(6)
    assert two_modes(d, Estimate(0.03, se, 40, 6)) is None
    assert two_modes(d, Estimate(0.03, se / 3, 40, 6)) is not None


def test_few_differences_and_a_lost_run_among_many_are_no_modes() -> None:
    few = np.array([0.08, 0.08, -0.08])
    assert two_modes(few, paired_location(few)) is None
    lost = np.array([*QUIET, -0.2])
    assert two_modes(lost, paired_location(lost)) is None
    assert two_modes(lost[1:], paired_location(lost[1:])) is not None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=4, max_size=30).map(np.array), st.floats(-2, 2))
def test_modes_are_mirrored_with_the_pair(d: np.ndarray, shift: float) -> None:
    found = two_modes(d, paired_location(d))
    if found is None or found.distance < 1e-6:
        return
    assert found.below + found.above == d.size
    assert d.min() - 1e-9 <= found.low < found.high <= d.max() + 1e-9
    # By Euclid's rule each mean is nearer to its own differences.
    middle = (found.low + found.high) / 2
    assert (d < middle - 1e-9).sum() <= found.below <= (d < middle + 1e-9).sum()


def test_a_difference_below_twice_the_distance_is_kept_back_and_told() -> None:
    found = concluded([0.08 + e for e in QUIET[:6]] + [-0.08])
    assert found.verdict.modes is not None
    assert (found.verdict.modes.below, found.verdict.modes.above) == (1, 6)
    assert found.verdict.verdict == "undecided"
    assert found.verdict.interval.low < 0 < found.verdict.interval.high
    needed = found.needed()
    assert needed is not None
    assert needed > 1
    told = PairFindings(CELL, imported=False, seconds={}).comparison(found, metric_of("tps"), declared=True)
    assert told.modes is not None
    assert (told.modes.below, told.modes.above) == (1, 6)
    words = sentence(pair_statement(told))
    assert "The rounds fall into two modes that are 17 % apart (1 and 6 rounds)" in words


def test_a_larger_difference_is_proven_beside_two_modes() -> None:
    found = concluded([0.5 + e for e in QUIET[:6]] + [0.34])
    assert (found.verdict.verdict, found.verdict.modes) == ("better", None)


def test_the_mean_of_many_rounds_of_both_proves_a_smaller_one() -> None:
    modes = [0.06 + (0.08 if k % 3 else -0.08) + QUIET[k % 8] for k in range(60)]
    found = concluded(modes)
    assert two_modes(np.array(modes), paired_location(np.array(modes))) is not None
    assert (found.verdict.verdict, found.verdict.modes) == ("better", None)
