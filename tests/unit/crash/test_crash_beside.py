"""Power cuts beside the runs of a campaign: who has them, and what is said beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashed import write_crash
from pgstrata.cli.forecasting import power_cut_lines
from pgstrata.crash.beside import cut_power, missing_trials
from pgstrata.host.local import LocalHost
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign, CrashTrials
from pgstrata.spec.crash import named_stacks
from pgstrata.spec.quick import quick_campaign
from pgstrata.trial.events import Event
from pgstrata.trial.interruption import Interruption

ASKED = CrashTrials(states=30, time=10)


def campaign(crash: CrashTrials | None = ASKED) -> Campaign:
    return named_stacks(["ext4", "xfs", "tmpfs"]).model_copy(update={"crash": crash})


@pytest.mark.parametrize("crash", [True, False])
def test_quick_cuts_power_where_it_is_asked_to(crash: bool) -> None:
    made = quick_campaign(["ext4", "xfs"], lambda stacks, blocks, duration_s: 0.1, crash=crash)
    assert (made.crash is not None) == crash


def test_each_stack_is_tested_once(tmp_path: Path) -> None:
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign()) as directory:
        assert [trial.id for trial in missing_trials(campaign(), directory)] == ["ext4-0", "xfs-1", "tmpfs-2"]
        write_crash(directory, "xfs", verdict="held", states=5)
        assert [trial.stack for trial in missing_trials(campaign(), directory)] == ["ext4", "tmpfs"]
        assert missing_trials(campaign(None), directory) == ()


def test_a_stack_without_crash_trials_is_recorded_with_the_reason(tmp_path: Path) -> None:
    asked = campaign().model_copy(update={"stacks": campaign().stacks[2:]})
    told: list[Event] = []
    with CampaignDirectory.create_or_open(tmp_path / "out", asked) as directory:
        (verdict,) = cut_power(LocalHost(), asked, directory, told.append, Interruption())
        assert (verdict.status, verdict.reason) == ("unsupported", "crash trials do not take tmpfs")
        assert missing_trials(asked, directory) == ()
    assert len(told) == 1


def test_a_campaign_may_be_gone_on_with_other_power_cuts(tmp_path: Path) -> None:
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign(None)):
        pass
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign()) as directory:
        assert directory.record.campaign.crash == ASKED


def test_what_is_tested_is_said_beforehand() -> None:
    tested, untested = power_cut_lines(campaign())
    assert tested.startswith("ext4, xfs: 30 states each, after the runs")
    assert untested == "tmpfs: not tested: crash trials do not take tmpfs"
    assert list(power_cut_lines(campaign(None))) == []


def test_clusters_lose_nodes_and_one_that_is_alone_does_not() -> None:
    made = named_stacks(["cluster(3,ANY 1)/tmpfs", "cluster(1)/ext4"]).model_copy(update={"crash": ASKED})
    lost, untested = power_cut_lines(made)
    assert lost.startswith("cluster(3,ANY 1)/tmpfs: nodes are lost, 5 failures each")
    assert untested == "cluster(1)/ext4: not tested: its primary is alone: there is nobody to go on"
