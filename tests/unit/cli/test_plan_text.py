"""`pgstrata plan`: what it says about a machine that is not there yet, and about the whole host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgstrata.cli import plan
from pgstrata.spec.load import load_campaign
from pgstrata.trial.survey import survey

CAMPAIGN = """\
host: HOST
scratch: /var/tmp
stacks:
  zfs: zfs:module.zfs_txg_timeout=1
  nfs: nfs(xfs)
  dir: dir:/var/tmp
workload: {scale: 1}
runs: {blocks: 1}
"""


@pytest.fixture
def described(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """A plan for the host that the test names."""
    file = tmp_path / "c.yaml"
    file.write_text(CAMPAIGN.replace("HOST", request.param), encoding="utf-8")
    campaign = load_campaign(file)
    with plan._looked_at(campaign) as host:
        return plan._describe(campaign, survey(host, campaign, tmp_path / "out"))


@pytest.mark.parametrize("described", ["local", "lab"], indirect=True)
def test_host_wide_changes_are_listed(described: dict[str, Any]) -> None:
    changes = [line for line in described["host_wide"] if line.startswith("during trials of ")]
    assert changes == [
        "during trials of zfs: zfs_txg_timeout = 1 (put back afterwards)",
        "during trials of zfs: load the zfs module",
        "during trials of nfs: NFS server, NFS export for data",
    ]


@pytest.mark.parametrize("described", ["lab"], indirect=True)
def test_a_lab_machine_is_not_judged_by_this_host(described: dict[str, Any]) -> None:
    assert described["refused"] is None
    assert described["unsupported"] == []
    assert described["medium"] == ""
    assert any("without its lab machine" in note for note in described["notes"])
