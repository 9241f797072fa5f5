"""Looking a host over: paths as the kernel shows them."""

from __future__ import annotations

from pathlib import Path

from pgstrata.host.local import LocalHost
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.stack import Existing, Stack, Volume
from pgstrata.trial.survey import survey


def test_scratch_and_mounts_are_named_without_links(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    campaign = Campaign(
        name="x",
        stacks=(Stack(name="here", data=Volume(fs=Existing(path=str(tmp_path)))),),
        scratch=str(tmp_path / "link" / "loops"),
    )
    host = LocalHost(state_directory=str(tmp_path / "link" / "state"))
    site = survey(host, campaign, tmp_path / "out")
    assert site.scratch == str(real / "loops")
    assert site.mount_root in (None, str(real / "state" / "mount"))
