"""Whole trials on layers that only the lab has: each does what its plan says, to the last command."""

from __future__ import annotations

from pathlib import Path

from following import differences, executed_steps, not_followed, planned_steps
from pgstrata.cli.verbs.plan import _describe
from pgstrata.host.protocol import Host
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.trial.events import silent
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import performance_runner
from pgstrata.trial.scheduler import run_campaign
from pgstrata.trial.scheduling import FixedBlocks
from pgstrata.trial.survey.survey import survey

LOOP = {"kind": "loop", "size": "1536M"}
STACKS = {
    "lvm": {"fs": {"kind": "xfs"}, "device": {**LOOP, "count": 2}, "layers": [{"kind": "lvm", "layout": "striped"}]},
    "md": {"fs": {"kind": "ext4"}, "device": {**LOOP, "count": 2}, "layers": [{"kind": "md", "level": "raid1"}]},
    "zfs": {"fs": {"kind": "zfs", "recordsize": "8k"}, "device": LOOP},
    "nfs": {"fs": {"kind": "nfs", "export": {"kind": "ext4"}}, "device": LOOP},
}


def test_what_is_planned_is_done(host: Host, tmp_path: Path) -> None:
    quick = {"initdb": ["--no-sync"], "settings": {"fsync": "off", "max_wal_size": "64MB"}}
    campaign = Campaign.model_validate(
        {
            "name": "followed",
            "scratch": "/var/tmp",
            "stacks": [{"name": name, "data": data, "postgresql": quick} for name, data in STACKS.items()],
            "workload": {"scale": 1, "clients": 2, "duration": 1, "warmup": 0},
            "runs": {"blocks": 1, "fresh_blocks": 1},
        }
    )
    out = tmp_path / "out"
    planned = {
        trial["id"]: planned_steps(trial["steps"])
        for trial in _describe(campaign, survey(host, campaign, out))["trials"]
    }
    interruption = Interruption()
    with (
        CampaignDirectory.create_or_open(out, campaign) as directory,
        performance_runner(host, campaign, directory, silent, interruption) as (runner, _),
    ):
        policy = FixedBlocks(tuple(STACKS), 1)
        run_campaign(campaign, directory, runner, policy, silent, observe=lambda trials: (), interruption=interruption)
    assert {t.trial.stack: (t.verdict.status, t.verdict.reason) for t in read(out).trials} == dict.fromkeys(
        STACKS, ("ok", "")
    )
    for trial in (out / "trials").iterdir():
        assert differences(planned[trial.name], executed_steps(trial)) == []
        assert not_followed(trial) == []
