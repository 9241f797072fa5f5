"""Stage 1 as a campaign grows: what is remembered changes no state, and a further block costs one fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.stats import comparison
from pgstrata.analyze.stats.comparison import Design, Replay, StageOne, Table
from pgstrata.analyze.stats.fit import NONE_EVIDENT, BlockFit, Evident, fit_blocks
from pgstrata.record.reader import read
from pgstrata.spec.campaign import Goal
from pgstrata_fake.campaigns import Shape, write_campaign

STACKS = ("a", "b", "c", "d")
CELLS = ("small", "large")


def design(*, fixed: bool = False) -> Design:
    return Design(STACKS, CELLS, Goal(), fixed=fixed)


def campaign(seed: int, blocks: int) -> dict[str, np.ndarray]:
    """Stacks of different speed, so that some are dropped; a few runs are missing."""
    rng = np.random.default_rng(seed)
    effects = rng.choice([0.0, -0.02, -0.2], len(STACKS))
    found = {cell: effects[:, None] + rng.normal(0, 0.02, (len(STACKS), blocks)) for cell in CELLS}
    for y in found.values():
        y[rng.random(y.shape) < 0.1] = np.nan
    return found


def tables(runs: Mapping[str, np.ndarray], ends: tuple[int, int]) -> dict[str, Table]:
    return {c: Table(y[:, :end], tuple(range(end))) for (c, y), end in zip(runs.items(), ends, strict=True)}


def told(states: Mapping[str, StageOne]) -> dict[str, object]:
    return {c: (s.survivors, s.screening, s.settled, repr(s.fit.effect)) for c, s in states.items()}


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_replay_that_remembers_tells_what_a_new_one_tells(looks: list[tuple[int, int, int]], fixed: bool) -> None:
    """Blocks come, go and change from look to look; the cells need not have as many."""
    remembering = Replay(design(fixed=fixed))
    for seed, *ends in looks:
        seen = tables(campaign(seed, 9), (ends[0], ends[1]))
        assert told(remembering.stage_one(seen)) == told(Replay(design(fixed=fixed)).stage_one(seen))


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of blocks of every fit that was made; a drop takes one more, of what the table claims."""
    counted: list[int] = []

    def counting(y: np.ndarray, *, evident: Evident = NONE_EVIDENT) -> BlockFit:
        if evident is NONE_EVIDENT:
            counted.append(y.shape[1])
        return fit_blocks(y, evident=evident)

    monkeypatch.setattr(comparison, "fit_blocks", counting)
    return counted


@pytest.mark.parametrize("fixed", [False, True])
def test_a_further_block_costs_one_fit_of_each_cell(fitted: list[int], fixed: bool) -> None:
    runs, replay = campaign(1, 12), Replay(design(fixed=fixed))
    replay.stage_one(tables(runs, (3, 3)))
    for blocks in range(4, 13):
        fitted.clear()
        replay.stage_one(tables(runs, (blocks, blocks)))
        assert fitted == [blocks] * len(CELLS)
        replay.stage_one(tables(runs, (blocks, blocks)))
        assert fitted == [blocks] * len(CELLS), "the same tables were fitted again"


def test_of_a_fixed_design_only_the_last_block_is_fitted(fitted: list[int]) -> None:
    Replay(design(fixed=True)).stage_one(tables(campaign(1, 30), (30, 30)))
    assert fitted == [30] * len(CELLS)


def test_the_cells_of_a_grid_are_replayed_together(fitted: list[int], tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "xfs", "btrfs"), clients=(4, 8), blocks=5, duration_s=5, incidents=False)
    judge(read(write_campaign(tmp_path / "c", shape)))
    assert fitted == [3, 3, 4, 4, 5, 5]
