"""One small made-up campaign, judged, for every test of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData, read
from pgstrata_fake.campaigns import NASTY, Shape, write_campaign


@pytest.fixture(scope="session")
def campaign_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape(stacks=("ext4", "xfs", "btrfs", "tmpfs", NASTY), blocks=4, duration_s=45)
    return write_campaign(tmp_path_factory.mktemp("report") / "campaign", shape)


@pytest.fixture(scope="session")
def data(campaign_directory: Path) -> CampaignData:
    return read(campaign_directory)


@pytest.fixture(scope="session")
def findings(data: CampaignData) -> Findings:
    return judge(data)
