"""Slices as they were measured on real filesystems, judged by the production code (tests/fixtures/slices)."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.campaign.simulate import CELL
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.slice_effects import (
    AGE_LEVEL,
    OTHER_LEVEL,
    Turns,
    age_effects,
    block_memory,
    build_scatter,
    place_effect,
    predecessor_effects,
)
from pgstrata.record.decision import Observation, Stage
from pgstrata.spec.campaign import Goal

NAMES = ("ext4", "xfs", "btrfs")
SLICE_S = 2.0
LINES = [
    (int(build), int(number), stack, float(tps), float(sync_s))
    for build, number, stack, tps, sync_s in map(
        str.split, (Path(__file__).parents[2] / "fixtures" / "slices" / "six-builds.txt").read_text().splitlines()
    )
]


def observations(builds: int, slices: int, stage: Stage) -> list[Observation]:
    """All transactions of a stack and build over all its seconds, sync included."""
    sums: dict[tuple[int, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for build, number, stack, tps, sync_s in LINES:
        if build <= builds and number <= slices:
            transactions, seconds = sums[build, stack]
            sums[build, stack] = transactions + tps * SLICE_S, seconds + SLICE_S + sync_s
    return [Observation(name, build, CELL, done / seconds, stage) for (build, name), (done, seconds) in sums.items()]


@pytest.mark.parametrize("slices", [2, 4, 8])
@pytest.mark.parametrize(("goal", "stage"), [("best", "screen"), ("all-pairs", "confirm")])
def test_btrfs_is_worse_than_both_after_three_builds(slices: int, goal: str, stage: Stage) -> None:
    design = Design(NAMES, (CELL,), Goal.model_validate({"kind": goal}))
    found = conclude(design, observations(3, slices, stage), CELL)
    pairs = {(p.a, p.b): p.verdict.verdict for p in found.confirmed or found.screened}
    assert pairs == {("ext4", "xfs"): "undecided", ("ext4", "btrfs"): "better", ("xfs", "btrfs"): "better"}
    assert (found.leader, found.ranking[-1]) == ("ext4", "btrfs")
    assert not found.chosen, "ext4 and xfs are not told apart"


def test_four_slices_bound_the_difference() -> None:
    found = conclude(Design(NAMES, (CELL,), Goal()), observations(3, 4, "screen"), CELL)
    behind = {
        pair.a: [math.exp(-x) - 1 for x in (pair.verdict.estimate.value, interval.high, interval.low)]
        for pair in found.screened
        if pair.b == "btrfs"
        for interval in (pair.verdict.interval,)
    }
    assert behind["ext4"] == pytest.approx([-0.541, -0.572, -0.508], abs=0.001)
    assert behind["xfs"] == pytest.approx([-0.524, -0.555, -0.491], abs=0.001)


def turns(slices: int) -> list[Turns]:
    found = []
    for build in range(1, 7):
        own = [line for line in LINES if line[0] == build and line[1] <= slices]
        stack = np.array([NAMES.index(line[2]) for line in own]).reshape(slices, len(NAMES))
        y = np.array([math.log(line[3] * SLICE_S / (SLICE_S + line[4])) for line in own]).reshape(stack.shape)
        found.append(Turns(stack, y))
    return found


def test_btrfs_gains_on_the_others_while_its_builds_age() -> None:
    ext4, xfs, btrfs = age_effects(turns(8), 3)
    assert btrfs.value == pytest.approx(0.031, abs=0.002)
    assert btrfs.is_told(AGE_LEVEL)
    assert max(abs(ext4.value), abs(xfs.value)) < 0.02


def test_neither_place_nor_predecessor_nor_memory_is_told() -> None:
    blocks = turns(8)
    effects = [place_effect(blocks, 3), *predecessor_effects(blocks, 3), *block_memory(blocks, 3)]
    assert not any(one.is_told(OTHER_LEVEL) for one in effects)
    assert max(abs(one.value) for one in effects) < 0.03


def test_the_scatter_between_builds_is_small() -> None:
    builds = build_scatter(turns(8), 3)
    assert builds is not None
    assert builds.low == 0.0
    assert 0.02 < builds.high < 0.06
    assert builds.within == pytest.approx(0.1, abs=0.02)
    assert builds.p is not None
    assert builds.p > OTHER_LEVEL
