"""A host whose disk is unlike those of its kind is named before the first block of a campaign over several hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pgstrata.cli import campaign_run
from pgstrata.cli.main import app
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import MediumRecord
from pgstrata.spec.campaign import Campaign
from pgstrata.trial.events import Tell
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.scheduler import Runners
from pgstrata_fake.runner import FakeRunner

HOSTS = [f"ssh://db{number}" for number in range(8)]
FLUSHES = dict.fromkeys(HOSTS, 1000.0) | {"ssh://db7": 690.0}
FLEET = f"""\
name: fleet
hosts: {HOSTS}
stacks: [ext4, xfs]
workload: {{scale: 1, clients: 2, duration: 5}}
runs: {{blocks: 1}}
"""


@contextmanager
def simulated(
    campaign: Campaign, directory: CampaignDirectory, tell: Tell, interruption: Interruption
) -> Iterator[tuple[Runners, tuple[str, ...]]]:
    """Hosts whose media were measured, as those of a real campaign are before it goes on."""
    for host, flushes in FLUSHES.items():
        directory.record_medium(
            MediumRecord(
                at="", before_block=0, medium="disk", seconds=2.0, host=host, flushes_per_s=flushes, flushes_by="fio"
            )
        )
    yield {name: FakeRunner(campaign) for name in campaign.hosts}, tuple(s.name for s in campaign.stacks)


def test_it_is_named_before_time_is_wasted_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_run, "_runners", simulated)
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    told = done.stderr.splitlines()
    (named,) = [at for at, line in enumerate(told) if "unlike the other hosts" in line]
    assert "ssh://db7 has 31 % fewer flushes a second" in told[named]
    assert named < min(at for at, line in enumerate(told) if "block 1" in line)
    page = (tmp_path / "out" / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "31 % fewer flushes a second" in page
    assert all(host in page for host in HOSTS)
