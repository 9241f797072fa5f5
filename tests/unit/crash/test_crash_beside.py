"""Power cuts beside the runs of a campaign: who has them, and what is said beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crashed import write_crash
from pgstrata.cli.forecasting import RECORDING_S, power_cut_lines
from pgstrata.cli.main import app
from pgstrata.crash.reduction import REDUCTION_S
from pgstrata.crash.runner import cut_power, missing_trials, untestable
from pgstrata.host import delivery
from pgstrata.host.local import LocalHost
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.crash import named_stacks
from pgstrata.spec.crash_request import CrashRequest
from pgstrata.spec.quick import quick_campaign
from pgstrata.spec.units import render_duration
from pgstrata.trial.events import Event
from pgstrata.trial.interruption import Interruption

ASKED = CrashRequest(states=30, time=10)
IN_MEMORY = "the data directory is in memory: nothing of it is left after a power cut"


def campaign(crash: CrashRequest | None = ASKED) -> Campaign:
    return named_stacks(["ext4", "xfs", "tmpfs"]).model_copy(update={"crash": crash})


@pytest.mark.parametrize("crash", [True, False])
def test_quick_cuts_power_where_it_is_asked_to(crash: bool) -> None:
    made = quick_campaign(["ext4", "xfs"], lambda stacks, blocks, duration_s, **_: 0.1, crash=crash)
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
        assert (verdict.status, verdict.reason) == ("unsupported", IN_MEMORY)
        assert missing_trials(asked, directory) == ()
    assert len(told) == 1


def test_a_campaign_may_be_gone_on_with_other_power_cuts(tmp_path: Path) -> None:
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign(None)):
        pass
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign()) as directory:
        assert directory.record.campaign.crash == ASKED


def test_what_is_tested_is_said_beforehand() -> None:
    tested, untested = power_cut_lines(campaign(), {})
    assert tested.startswith("ext4, xfs: 30 states each, after the runs")
    assert f"in about {render_duration(2 * ((ASKED.time or 0) + RECORDING_S + REDUCTION_S))} at most" in tested
    assert tested.endswith("beside the budget")
    elsewhere, _ = power_cut_lines(campaign().model_copy(update={"host": "lab"}), {})
    assert elsewhere == f"{tested}, on lab"
    assert untested == f"tmpfs: not tested: {IN_MEMORY}"
    assert list(power_cut_lines(campaign(None), {})) == []


def test_what_is_written_instead_of_the_ledger_is_said_beforehand() -> None:
    asked = CrashRequest(states=30, script="tpcb-like")
    tested, _ = power_cut_lines(campaign(asked), {})
    assert tested.startswith("ext4, xfs: 30 states each of pgbench's tpcb-like, after the runs")


def test_clusters_lose_nodes_and_one_that_is_alone_does_not() -> None:
    made = named_stacks(["cluster(3,ANY 1)/tmpfs", "cluster(1)/ext4"]).model_copy(update={"crash": ASKED})
    lost, untested = power_cut_lines(made, {})
    assert lost.startswith("cluster(3,ANY 1)/tmpfs: nodes are lost, 5 failures each")
    assert untested == "cluster(1)/ext4: not tested: a single server: no standby to promote"


def clusters(*stacks: str, **asked: object) -> Campaign:
    crash = CrashRequest.model_validate({"states": 30, "time": 12, **asked})
    return named_stacks(stacks).model_copy(update={"crash": crash})


def test_a_lost_primary_that_follows_takes_longer() -> None:
    (lost,) = power_cut_lines(clusters("cluster(3,ANY 1)/tmpfs", rejoin="rewind"), {})
    assert lost == (
        "cluster(3,ANY 1)/tmpfs: nodes are lost, 3 failures each, after the runs and beside the budget; "
        "a lost primary follows then by pg_rewind"
    )


def test_clusters_lose_power_where_that_is_asked_for() -> None:
    stacks = ("ext4", "cluster(3,ANY 1)/ext4", "cluster(2)/tmpfs", "cluster(2)/ext4")
    one, all_of_it, no_node = power_cut_lines(clusters(*stacks, power=True, gone=["standby2"]), {})
    each = f"30 states each, after the runs, in about {render_duration(12 + RECORDING_S + REDUCTION_S)} at most"
    assert one == f"ext4: {each} beside the budget"
    assert all_of_it == (
        f"cluster(3,ANY 1)/ext4: all nodes lose power, and standby2 does not come back: {each} beside the budget"
    )
    why = "it has no node 'standby2' (there are: primary, standby1)"
    assert no_node == f"cluster(2)/tmpfs, cluster(2)/ext4: not tested: {why}"


def test_a_cluster_of_which_nothing_is_left_is_not_tested() -> None:
    (line,) = power_cut_lines(clusters("cluster(2)/tmpfs", power=True), {})
    assert line.startswith("cluster(2)/tmpfs: not tested: nothing is left")


def test_what_a_host_lacks_for_power_cuts_is_said_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded disks take a program that may be missing. Lost nodes take none."""
    monkeypatch.setattr(delivery, "PROGRAM", "a-disk-that-is-nowhere")
    monkeypatch.setattr(delivery, "OWN", Path("/nowhere"))
    lost = "cluster(2)/tmpfs"
    found = untestable(LocalHost(), clusters("ext4", "xfs", "tmpfs", lost))
    assert found.keys() - {lost} == {"ext4", "xfs"}
    assert all("a-disk-that-is-nowhere is not installed" in found[name] for name in ("ext4", "xfs"))
    assert all(delivery.BUILDING in found[name] for name in ("ext4", "xfs"))
    assert "a-disk-that-is-nowhere" not in found.get(lost, "")
    assert "cluster(2)/ext4" in untestable(LocalHost(), clusters("cluster(2)/ext4", power=True))


def test_no_power_cuts_are_promised_that_the_host_cannot_make() -> None:
    lacking = dict.fromkeys(("ext4", "xfs"), "no disk (make one)")
    lines = list(power_cut_lines(clusters("ext4", "xfs", "tmpfs"), lacking))
    assert lines == [
        "ext4, xfs: not tested: no disk (make one)",
        f"tmpfs: not tested: {IN_MEMORY}",
    ]


def test_plan_looks_at_the_host_for_power_cuts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(delivery, "PROGRAM", "a-disk-that-is-nowhere")
    monkeypatch.setattr(delivery, "OWN", Path("/nowhere"))
    done = CliRunner().invoke(app, ["quick", "ext4", "xfs", "--plan", "--json", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    (line,) = json.loads(done.stdout)["power_cuts"]
    assert line.startswith("ext4, xfs: not tested: ")
    assert "a-disk-that-is-nowhere is not installed" in line
