"""Small campaigns on this machine, for tests of whole trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pgstrata.host.local import LocalHost
from pgstrata.record.reader import TrialData, read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.trial.events import Tell, silent
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import performance_runner
from pgstrata.trial.scheduler import Outcome, run_campaign
from pgstrata.trial.scheduling import FixedBlocks

LOOP = {"kind": "loop", "size": "2560M"}
QUICK = {"initdb": ["--no-sync"], "settings": {"fsync": "off", "max_wal_size": "64MB"}}


def stack(name: str, kind: str = "ext4", **more: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"fs": {"kind": kind}}
    if kind not in ("tmpfs", "dir"):
        data["device"] = LOOP
    return {"name": name, "data": data, "postgresql": QUICK, **more}


def campaign(*stacks: dict[str, Any], workload: dict[str, Any] | None = None, **runs: Any) -> Campaign:
    given = workload or {}
    paced = {} if "driver" in given else {"rate": 100}  # leaves the processors to other tests
    return Campaign.model_validate(
        {
            "name": "small",
            "stacks": stacks,
            "workload": {"scale": 1, "clients": 2, "duration": 1, "warmup": 0, **paced, **given},
            "runs": {"blocks": 1, "fresh_blocks": 1, **runs},
        }
    )


def run(place: Path, asked: Campaign, tell: Tell = silent) -> Outcome:
    host = LocalHost(state_directory=str(place / "state"))
    interruption = Interruption()
    try:
        with (
            interruption.installed(),
            CampaignDirectory.create_or_open(place / "out", asked) as directory,
            performance_runner(host, asked, directory, tell, interruption) as (
                runner,
                stacks,
            ),
        ):
            policy = FixedBlocks(stacks, asked.runs.blocks or 1)
            return run_campaign(
                asked, directory, runner, policy, tell, observe=lambda trials: (), interruption=interruption
            )
    finally:
        host.close()


def only(place: Path) -> TrialData:
    (trial,) = read(place / "out").trials
    return trial
