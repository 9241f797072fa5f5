"""A campaign that repeats a study carries its published figures into every report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.cli.campaign_run import with_published
from pgstrata.record.reader import read
from pgstrata.report.render import render
from pgstrata_fake.campaigns import Shape, write_campaign


def test_published_ratios_stand_beside_measured_ones(tmp_path: Path) -> None:
    shape = Shape(("xfs", "ext4"), blocks=3, duration_s=10, incidents=False)
    directory = write_campaign(tmp_path / "campaign", shape)
    path = directory / "campaign.json"
    record = json.loads(path.read_text())
    record["campaign"]["study"] = "filesystems-hdd"
    path.write_text(json.dumps(record))
    data = read(directory)
    findings = with_published(judge(data), data)
    rows = {row.stack: row for row in findings.published}
    assert rows.keys() == {"xfs", "ext4"}
    figures = (rows["ext4"].value, rows["xfs"].value)
    assert figures == (342.44, 294.16)
    other = "ext4" if rows["xfs"].baseline == "xfs" else "xfs"
    assert rows[other].ratio == pytest.approx(rows[other].value / rows[rows[other].baseline].value)  # type: ignore[operator]
    assert rows[other].measured_ratio is not None
    page = render(data, findings, ["html"], directory).paths[0].read_text()
    assert "Beside the published figures" in page


def test_other_campaigns_carry_none(tmp_path: Path) -> None:
    data = read(write_campaign(tmp_path / "campaign", Shape(("xfs", "ext4"), blocks=2, duration_s=10)))
    assert with_published(judge(data), data).published == ()
