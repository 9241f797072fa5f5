"""How long it would take to settle what is open: by blocks of the comparison, as each open pair tells it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import Findings
from pgstrata.analyze.stats.detectable_difference import least_blocks
from pgstrata.record.reader import CampaignData, read
from pgstrata.report.sentences.answer import CellAnswer, answer, cell_answer, generic_command
from pgstrata.spec.campaign import Runs
from pgstrata_fake.campaigns import Shape, write_campaign

SHAPE = Shape(
    stacks=("ext4", "xfs"),
    blocks=8,
    scales=(10, 20),
    base_tps={"ext4": 2000.0, "xfs": 2050.0},
    incidents=False,
    soak_s=300,
)


def recorded(directory: Path, shape: Shape) -> CampaignData:
    return read(write_campaign(directory / "c", shape))


def answers(data: CampaignData, findings: Findings) -> list[CellAnswer]:
    return [a for cell in findings.cells if (a := cell_answer(data, findings, cell)) is not None]


@pytest.mark.parametrize("declared", [None, SHAPE.blocks])
def test_the_answer_takes_as_long_as_its_open_pair(tmp_path: Path, declared: int | None) -> None:
    """Whose blocks have a trial at each scale; a soak run is no measure of them, nor is one that failed."""
    data = recorded(tmp_path, SHAPE)
    failed = replace(
        data.trials[0], verdict=data.trials[0].verdict.model_copy(update={"status": "failed", "duration_s": 1.0})
    )
    campaign = data.campaign.model_copy(update={"runs": Runs(blocks=declared)})
    record = data.record.model_copy(update={"campaign": campaign})
    data = replace(data, record=record, trials=(failed, *data.trials[1:]))
    findings = judge(data)
    open_ = [c for c in findings.comparisons if c.metric == "tps" and c.verdict == "undecided" and c.needed_s]
    assert open_
    told = sorted(a.settling.more_s or 0.0 for a in answers(data, findings) if a.settling is not None)
    assert told == pytest.approx(sorted(c.needed_s or 0.0 for c in open_))
    longest_s = max(c.needed_s or 0.0 for c in open_)
    spent_s = sum(t.verdict.duration_s for t in data.trials)
    said = answer(data, findings, generic_command)
    if declared is None:
        assert int(re.findall(r"--minutes (\d+)", said)[0]) * 60 >= spent_s + longest_s
    else:
        most = max(c.needed_pairs or 0 for c in open_)
        assert f"--blocks {declared + most}" in said


def test_room_for_bounds_is_counted_in_blocks_of_all_scales(tmp_path: Path) -> None:
    data = recorded(tmp_path, replace(SHAPE, blocks=1, soak_s=0))
    findings = judge(data)
    (first, *_) = answers(data, findings)
    block_s = sum(t.verdict.duration_s for t in data.trials)
    assert first.settling is not None
    least = least_blocks("best", 2, cells=2)
    assert first.settling.more_s == pytest.approx((least - 1) * block_s)
