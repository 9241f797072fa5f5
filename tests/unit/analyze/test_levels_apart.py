"""Where the levels of a table and the verdict on fresh pairs differ, readers are told, and which run that is due to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.statement_builder import far_run, is_notable
from pgstrata.analyze.campaign.statements import LevelsApart
from pgstrata.analyze.findings import Findings
from pgstrata.analyze.stats.comparison import Table
from pgstrata.record.reader import CampaignData, TrialData, read
from pgstrata.spec.campaign import Trial
from pgstrata_fake.campaigns import Shape, write_campaign

BLOCKS = tuple(range(10, 20))
FRESH = frozenset(range(15, 20))


def table() -> Table:
    return Table(np.random.default_rng(1).normal(7.6, 0.02, (2, 10)), BLOCKS)


@pytest.mark.parametrize(
    ("row", "column", "off", "gap"),
    [
        (1, 3, -0.6, 0.2),  # b was slow while screening: its level is too low
        (0, 3, 0.6, 0.2),  # or a was fast
        (0, 7, -0.6, 0.2),  # or a slow among the fresh pairs
    ],
)
def test_the_run_that_widens_the_gap_is_named(row: int, column: int, off: float, gap: float) -> None:
    found = table()
    found.y[row, column] += off
    far = far_run(found, 0, 1, FRESH, gap)
    assert far is not None
    assert (far.first, far.block) == (row == 0, BLOCKS[column])
    assert far.off == pytest.approx(off, abs=0.06)
    assert far_run(found, 0, 1, FRESH, -gap) is None


def test_ordinary_scatter_a_slow_machine_and_few_blocks_name_no_run() -> None:
    found = table()
    assert far_run(found, 0, 1, FRESH, 0.2) is None
    found.y[:, 3] -= 0.6
    assert far_run(found, 0, 1, FRESH, 0.2) is None
    found.y[1, 3] -= 0.6
    assert far_run(Table(found.y[:, :4], BLOCKS[:4]), 0, 1, FRESH, 0.2) is None


def test_small_gaps_are_not_told() -> None:
    assert not is_notable(math.log(1.04), math.log(1.02))
    assert is_notable(-math.log(1.06), math.log(1.02))
    assert not is_notable(math.log(1.06), math.log(1.1))


def test_what_is_far_off_is_told_by_the_judge(tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "xfs", "btrfs"), blocks=5, duration_s=5, incidents=False,
                  confirm=("ext4", "xfs"), confirm_blocks=6)  # fmt: skip
    data = read(write_campaign(tmp_path / "c", shape))
    steady = judge(with_rates(data, lambda _: 1.0))
    assert steady.cells[0].screened
    assert apart(steady) == []
    (told,) = apart(judge(with_rates(data, lambda t: 0.7 if t.stack == "ext4" and t.stage == "screen" else 1.0)))
    assert (told.subject, told.far_run) == ("xfs", None)
    assert told.of_levels / told.of_pairs == pytest.approx(1 / 0.7, rel=0.05)
    slow = judge(with_rates(data, lambda t: 0.3 if t.stack == "ext4" and t.block in (0, 2) else 1.0))
    (told,) = apart(slow)
    assert told.far_run is not None
    assert (told.far_run.stack, told.far_run.fresh, told.far_run.block in (0, 2)) == ("ext4", False, True)
    assert told.far_run.amount == pytest.approx(0.3, rel=0.05)


def apart(findings: Findings) -> list[LevelsApart]:
    return [s for s in findings.cells[0].statements if isinstance(s, LevelsApart)]


RATES = {"ext4": 1000.0, "xfs": 1080.0, "btrfs": 500.0}


def with_rates(data: CampaignData, factor: Callable[[Trial], float]) -> CampaignData:
    """Rates that scatter by a percent and differ by `factor` besides."""
    rng = np.random.default_rng(1)
    rates = [RATES[t.trial.stack] * factor(t.trial) * math.exp(rng.normal(0, 0.01)) for t in data.trials]
    return replace(data, trials=tuple(map(_at, data.trials, rates)))


def _at(trial: TrialData, tps: float) -> TrialData:
    return replace(trial, cells=tuple(replace(c, result=c.result.model_copy(update={"tps": tps})) for c in trial.cells))
