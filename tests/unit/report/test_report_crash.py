"""Crash trials in reports: verdicts beside the runs of their stacks, and of a folder that has nothing else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crashed import write_crash
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.policy import AdaptivePolicy
from pgstrata.analyze.campaign.statements import Choice, Price
from pgstrata.analyze.crash import broke_promise
from pgstrata.record.reader import CampaignData, read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.report.html import write_html
from pgstrata.report.markdown import render_markdown
from pgstrata.report.render import report_value
from pgstrata.report.sentences.answer import cell_answer
from pgstrata.report.sentences.statements import sentence
from pgstrata.report.tables.verdicts import verdict_tables
from pgstrata.report.terminal import render_terminal
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata.spec.durability_class import SURVIVES

LOST: dict[str, Any] = {
    "verdict": "lost",
    "states": 60,
    "lost": 12,
    "lost_acknowledged_max": 38,
    "first_counterexample": "state 1.3: x",
}


@pytest.fixture
def tested(campaign_directory: Path, tmp_path: Path) -> CampaignData:
    """A campaign of runs whose stacks were crash-tested, too."""
    shutil.copytree(campaign_directory, tmp_path / "out")
    campaign = read(campaign_directory).campaign
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign) as directory:
        write_crash(directory, "ext4", verdict="held", states=1204)
        write_crash(directory, "xfs", **LOST)
    return read(tmp_path / "out")


def crash_folder(place: Path, campaign: Campaign) -> CampaignDirectory:
    return CampaignDirectory.create_or_open(place, campaign, "crash")


def test_the_verdict_table_says_what_power_cuts_showed(tested: CampaignData) -> None:
    findings = judge(tested)
    rows = {row.name: row for row in verdict_tables(findings)[0].rows}
    assert rows["ext4"].durability == "survives power loss; held in 1,204 states"
    assert rows["ext4"].durable
    assert rows["xfs"].durability == "survives power loss; lost up to 38 acknowledged commits"
    assert not rows["xfs"].durable
    assert rows["btrfs"].durability == "survives power loss"


def test_a_promise_that_power_cuts_broke_is_a_warning_before_any_figure(tested: CampaignData) -> None:
    fell = "in power cuts xfs lost acknowledged transactions"
    warning = f"{fell}, though its configuration promises that it survives power loss"
    findings = judge(tested)
    assert warning in findings.campaign.notices
    assert not any("ext4" in notice and "power cuts" in notice for notice in findings.campaign.notices)
    assert f"! {warning}" in render_terminal(tested, findings)


def test_a_stack_that_broke_its_promise_is_not_chosen_for_it(tested: CampaignData) -> None:
    # xfs is the fastest by its runs and lost commits in power cuts.
    sound = judge(replace(tested, crashes=()))
    assert sound.ranking[0] == "xfs"
    findings = judge(tested)
    assert findings.ranking[0] == "ext4"
    (choice,) = [s for s in findings.cells[0].statements if isinstance(s, Choice)]
    assert (choice.subject, choice.class_) == ("ext4", SURVIVES)
    prices = {s.subject: sentence(s) for s in findings.cells[0].statements if isinstance(s, Price)}
    assert prices["xfs"].endswith("but it loses on power loss.")
    found = cell_answer(tested, findings, findings.cells[0])
    assert found is not None
    assert "xfs" not in found.words
    policy = AdaptivePolicy.of(tested.campaign, None, tested.crashes)
    assert policy.design.candidates is not None
    assert {"xfs"} == (AdaptivePolicy.of(tested.campaign).design.candidates or set()) - policy.design.candidates


def test_a_lying_disk_breaks_no_promise(tmp_path: Path) -> None:
    campaign = crash_campaign(named_stacks(["ext4"]))
    with crash_folder(tmp_path / "out", campaign) as directory:
        write_crash(directory, "ext4", request={"ignore_flushes": "3"}, **LOST)
    data = read(tmp_path / "out")
    findings = judge(data)
    assert not any("promises" in notice for notice in findings.campaign.notices)
    words = findings.stacks[0].durability
    assert (words.verdict, broke_promise(words)) == ("lost", False)
    assert "on a disk that ignores the last 3 flushes" in render_terminal(data, findings)


def test_what_was_made_to_fail_breaks_no_promise_and_is_told_everywhere(tmp_path: Path) -> None:
    campaign = crash_campaign(named_stacks(["ext4@data_sync_retry=on"]))
    with crash_folder(tmp_path / "out", campaign) as directory:
        write_crash(
            directory, "ext4@data_sync_retry=on", request={"fault": "write-error"}, amcheck=False, nested=2, **LOST
        )
    data = read(tmp_path / "out")
    findings = judge(data)
    assert not any("promises" in notice for notice in findings.campaign.notices)
    words = "(with fault write-error; without amcheck)"
    for shown in (render_terminal(data, findings), render_markdown(data, findings)):
        assert words in shown
        assert "promises" not in shown
    assert words in write_html(data, findings, tmp_path / "page.html").read_text()
    (stack,) = report_value(findings)["stacks"]
    told = {name: stack["durability"][name] for name in ("fault", "panicked", "amcheck", "nested")}
    assert told == {"fault": "write-error", "panicked": False, "amcheck": False, "nested": 2}


def test_that_pgbench_s_script_was_written_is_told(tmp_path: Path) -> None:
    campaign = crash_campaign(named_stacks(["ext4"]))
    with crash_folder(tmp_path / "out", campaign) as directory:
        write_crash(directory, "ext4", verdict="held", states=7, drawn=3, request={"script": "tpcb-like"})
    data = read(tmp_path / "out")
    findings = judge(data)
    for shown in (render_terminal(data, findings), render_markdown(data, findings)):
        assert "held in 7 states (of pgbench's tpcb-like; one state of 3 flush epochs by lot: at 95 %" in shown
    (stack,) = report_value(findings)["stacks"]
    assert stack["durability"]["script"] == "tpcb-like"


def test_stacks_that_differ_in_states_alone_promise_the_same(tmp_path: Path, tested: CampaignData) -> None:
    classes = {row.promise for row in verdict_tables(judge(tested))[0].rows}
    assert verdict_tables(judge(tested))[0].mixed_durability == (len(classes) > 1)


def test_a_folder_of_crash_trials_shows_them_and_no_empty_tables(tmp_path: Path) -> None:
    campaign = crash_campaign(named_stacks(["ext4", "ext4@fsync=off"]))
    with crash_folder(tmp_path / "out", campaign) as directory:
        write_crash(directory, "ext4", verdict="held", states=100)
        write_crash(directory, "ext4@fsync=off", reason="the ledger could not be written", verdict="unknown")
    data = read(tmp_path / "out")
    findings = judge(data)
    for shown in (render_terminal(data, findings), render_markdown(data, findings)):
        assert "ext4: held in 100 states" in shown
        assert "held: ext4; unknown: ext4@fsync=off (100 states)" in shown
        assert "the ledger could not be written" in shown
        assert "no valid run" not in shown
        assert "18.0" in shown


def test_json_has_what_was_found(tested: CampaignData) -> None:
    stacks = {stack["name"]: stack["durability"] for stack in report_value(judge(tested))["stacks"]}
    assert stacks["xfs"]["verdict"] == "lost"
    assert stacks["xfs"]["lost_acknowledged_max"] == 38
    assert stacks["xfs"]["first_counterexample"] == "state 1.3: x"
    assert stacks["btrfs"]["verdict"] == "not_tested"


def test_the_page_has_a_section_and_escapes_what_it_shows(tmp_path: Path) -> None:
    campaign = crash_campaign(named_stacks(["ext4"]))
    with crash_folder(tmp_path / "out", campaign) as directory:
        write_crash(directory, "ext4", **{**LOST, "first_counterexample": "<b>gone</b>"})
    data = read(tmp_path / "out")
    page = write_html(data, judge(data), tmp_path / "page.html").read_text()
    assert 'id="power-cuts"' in page
    assert "&lt;b&gt;gone&lt;/b&gt;" in page
    assert "<b>gone" not in page
    assert "No runs were measured" in page
    assert 'id="verdicts"' not in page
    assert 'href="#verdicts"' not in page


def test_a_page_without_crash_trials_has_no_such_section(data: CampaignData, tmp_path: Path) -> None:
    assert 'id="power-cuts"' not in write_html(data, judge(data), tmp_path / "page.html").read_text()


def test_a_damaged_crash_trial_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    campaign = crash_campaign(named_stacks(["ext4", "xfs"]))
    with crash_folder(tmp_path / "out", campaign) as directory:
        write_crash(directory, "ext4", verdict="held", states=5)
        write_crash(directory, "xfs", verdict="held", states=5)
    (tmp_path / "out" / "crash" / "xfs-1" / "verdict.json").write_text("{")
    data = read(tmp_path / "out")
    assert [crash.found.stack for crash in data.crashes] == ["ext4"]
    assert [lost.id for lost in data.unreadable] == ["crash/xfs-1"]


def test_a_stack_that_could_not_be_tested_says_why_and_has_no_verdict(campaign_directory: Path, tmp_path: Path) -> None:
    shutil.copytree(campaign_directory, tmp_path / "out")
    with CampaignDirectory.create_or_open(tmp_path / "out", read(campaign_directory).campaign) as directory:
        write_crash(directory, "tmpfs", status="unsupported", reason="strata-disk is not installed")
    data = read(tmp_path / "out")
    findings = judge(data)
    row = next(row for row in verdict_tables(findings)[0].rows if row.name == "tmpfs")
    assert row.durability == "loses on power loss; not tested: strata-disk is not installed"
    assert "Power cuts" not in render_terminal(data, findings)
