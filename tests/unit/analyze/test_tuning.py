"""From the record of a screening to its answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.tuning import chosen_levels
from pgstrata.cli.forecasting import expected_trials, forecast
from pgstrata.cli.verbs.tune import _filesystem_commands
from pgstrata.errors import UsageError
from pgstrata.record.reader import read
from pgstrata.report.html import html_text
from pgstrata.report.markdown import render_markdown
from pgstrata.report.sentences.tuning import paste_lines
from pgstrata.report.terminal import render_terminal
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.tune import LEAST_BLOCKS, confirming_campaign, plan_screening, tune_campaign
from pgstrata_fake.campaigns import write_runs

OVER = """factors:
  synchronous_commit: [on, off]
  wal_compression: ["off", pglz]
  checkpoint_timeout: {levels: [5min, 30min], source: a book, cost: recovery takes longer}
  random_page_cost: ["4", "1.1"]
"""


def _screened(tmp_path: Path, blocks: int, gains: tuple[float, ...]) -> Campaign:
    """A screening whose factors multiply the throughput by those gains."""
    over = tmp_path / "over.yaml"
    over.write_text(OVER, encoding="utf-8")
    campaign = tune_campaign("ext4", str(over), minutes=30, scale=1)
    assert campaign.tuning is not None
    means = {}
    for name, row in campaign.tuning.rows.items():
        means[name] = 2000.0
        for gain, level in zip(gains, row, strict=True):
            means[name] *= gain if level else 1
    write_runs(tmp_path / "out", campaign, means, blocks)
    return campaign


def test_what_matters_is_found_and_what_loses_commits_is_not_chosen(tmp_path: Path) -> None:
    campaign = _screened(tmp_path, 4, (1.5, 1.2, 0.8, 1.0))
    data = read(tmp_path / "out")
    findings = judge(data)
    assert findings.tuning is not None
    sync, compression, checkpoints, planner = findings.tuning.factors
    assert [f.verdict for f in (sync, compression, checkpoints)] == ["matters"] * 3
    assert planner.verdict != "matters"
    assert sync.class_ == "loses recent commits"
    assert checkpoints.source == "a book"
    assert chosen_levels(findings) == (False, True, False, False)
    assert findings.tuning.expected == pytest.approx(0.2, abs=0.05)
    text = " ".join(render_terminal(data, findings).split())
    assert "Of 4 factors 3 matter: synchronous_commit=off" in text, text
    assert "but loses recent commits" in text
    assert "Together wal_compression=pglz should gain" in text
    assert "What each factor does" in text
    page = html_text(data, findings)
    assert "What each factor does" in page
    assert page.count("<g><title>") == 4
    assert "<title>wal_compression=pglz: +" in page
    assert findings.cells[0].ranking == ()
    assert findings.chosen is None
    for shown in (text, render_markdown(data, findings), page):
        assert "row of the design" in shown
        assert "gainst best" not in shown
        assert "leads, not settled" not in shown
    confirming = confirming_campaign(campaign, chosen_levels(findings), 10, lambda *_, **__: 0.1, crash=True)
    assert [s.name for s in confirming.stacks] == ["start", "tuned"]
    assert confirming.tuning is None
    assert confirming.crash is not None
    assert list(paste_lines(*confirming.stacks)) == ["postgresql.conf: wal_compression = 'pglz'"]


def test_one_block_is_told_to_be_too_little(tmp_path: Path) -> None:
    _screened(tmp_path, 1, (1.5, 1.2, 0.8, 1.0))
    data = read(tmp_path / "out")
    findings = judge(data)
    assert not any(chosen_levels(findings))
    assert "it takes two blocks of all stacks" in render_terminal(data, findings)


def test_the_same_factors_resume_and_more_time_extends(tmp_path: Path) -> None:
    begun = _screened(tmp_path, 1, (1.0,) * 4)
    longer = tune_campaign("ext4", str(tmp_path / "over.yaml"), minutes=60, begun=begun)
    assert longer.runs.budget == pytest.approx(2 * (begun.runs.budget or 0))
    assert longer.workload == begun.workload
    assert tune_campaign("ext4:noatime", str(tmp_path / "over.yaml"), minutes=60, begun=begun).workload.scale != (1,)


def test_every_budget_has_blocks_or_is_refused_with_enough_minutes() -> None:
    with pytest.raises(UsageError) as caught:
        plan_screening(32, 5)
    enough = int(caught.value.hint.split()[1].rstrip(","))
    plan = plan_screening(32, enough)
    assert plan.blocks >= LEAST_BLOCKS
    with pytest.raises(UsageError):
        plan_screening(32, enough - 1)
    assert plan_screening(24, 120).blocks > plan_screening(24, 45).blocks


def test_a_change_that_does_not_start_is_reported_and_neither_slow_nor_chosen(tmp_path: Path) -> None:
    campaign = _screened(tmp_path, 3, (1.0, 1.3, 1.0, 1.0))
    assert campaign.tuning is not None
    for trial in read(tmp_path / "out").trials:
        if campaign.tuning.rows[trial.trial.stack][3]:
            path = tmp_path / "out" / "trials" / trial.trial.id / "verdict.json"
            verdict = json.loads(path.read_text(encoding="utf-8"))
            path.write_text(json.dumps(verdict | {"status": "failed", "reason": "the server did not start"}))
    data = read(tmp_path / "out")
    findings = judge(data)
    assert findings.tuning is not None
    assert [f.verdict for f in findings.tuning.factors] == ["undecided", "matters", "undecided", "undecided"]
    assert findings.tuning.factors[3].effect is None
    assert chosen_levels(findings) == (False, True, False, False)
    (lost,) = findings.tuning.lost
    assert "(random_page_cost=1.1): failed: the server did not start" in lost
    text = " ".join(render_terminal(data, findings).split())
    assert "Not measured: random_page_cost=1.1, because stacks with it did not run." in text


def test_a_plan_tells_the_smallest_effect_and_the_minutes_for_five_percent(tmp_path: Path) -> None:
    over = tmp_path / "over.yaml"
    over.write_text(OVER, encoding="utf-8")
    campaign = tune_campaign("ext4", str(over), minutes=30, scale=1)
    lines = list(forecast(campaign, expected_trials(campaign)))
    assert "they prove effects from about" in lines[1]
    assert "of any of 4 factors" in lines[1]
    assert "effects of 5 % take" in lines[2]
    minutes = int(lines[2].split("--minutes ")[1].rstrip(")"))
    longer = tune_campaign("ext4", str(over), minutes=minutes, begun=campaign)
    assert (longer.runs.blocks or 0) > (campaign.runs.blocks or 0)
    assert longer.workload == campaign.workload


def test_commands_to_paste_are_those_of_the_changed_filesystem() -> None:
    made, mounted = _filesystem_commands(parse_stack("ext4"), parse_stack("ext4:noatime,journal_size=256M"))
    assert made.startswith("mkfs.ext4")
    assert "-J size=256" in made
    assert mounted == "mount --types ext4 --options noatime '<data.0>' MOUNT/data"
    assert list(_filesystem_commands(parse_stack("ext4"), parse_stack("ext4@jit=off"))) == []
