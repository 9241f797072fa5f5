"""`status` of a folder that has nothing but crash trials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crashed import write_crash
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.crash import crash_campaign, named_stacks
from typed import typed


def crashed(place: Path, *tested: str) -> None:
    campaign = crash_campaign(named_stacks(["ext4", "xfs"]))
    with CampaignDirectory.create_or_open(place, campaign, "crash") as directory:
        for stack in tested:
            write_crash(directory, stack, verdict="held", states=12)


@pytest.mark.parametrize(
    ("tested", "state"), [(("ext4", "xfs"), "finished"), (("ext4",), "ended early, not resumable")]
)
def test_crash_trials_that_all_ended_are_finished(tmp_path: Path, tested: tuple[str, ...], state: str) -> None:
    crashed(tmp_path / "out", *tested)
    text = typed("status", "out", cwd=tmp_path).stdout
    assert text.splitlines()[0].endswith(f": {state}")
    assert "ext4  power cuts: held, 12 states" in text
    assert "blocks begun" not in text


def test_json_has_the_crash_trials(tmp_path: Path) -> None:
    crashed(tmp_path / "out", "ext4", "xfs")
    value = json.loads(typed("status", "out", "--json", cwd=tmp_path).stdout)
    assert value["crash_trials"]["xfs"] == {"status": "ok", "verdict": "held", "states": 12}
    assert (value["finished"], value["machine_time_s"]) == (True, 6.0)
