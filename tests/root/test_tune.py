"""`pgstrata tune`: what a screening chooses is run anew beside the start, and both lose power."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pgstrata.cli.main import app
from pgstrata.record.reader import read
from pgstrata.spec.tune import tune_campaign
from pgstrata_fake.campaigns import write_runs

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]

OVER = """factors:
  commit_delay: ["20000", "0"]
  full_page_writes: ["on", "off"]
  random_page_cost: ["4", "1.1"]
"""
SLOW = "ext4@commit_siblings=0"
"""Every commit waits for the delay."""


def test_the_chosen_combination_is_run_anew_and_loses_power(tmp_path: Path) -> None:
    over, out = tmp_path / "over.yaml", tmp_path / "out"
    over.write_text(OVER, encoding="utf-8")
    campaign = tune_campaign(SLOW, str(over), minutes=20, scale=1, clients=2)
    assert campaign.tuning is not None
    gains = (4.0, 1.5, 1.0)
    means = dict.fromkeys(campaign.tuning.rows, 100.0)
    for name, row in campaign.tuning.rows.items():
        for gain, level in zip(gains, row, strict=True):
            means[name] *= gain if level else 1
    write_runs(out / "screening", campaign, means, campaign.runs.blocks or 0)
    asked = ["tune", SLOW, "--over", str(over), "--minutes", "20", "--scale", "1", "--clients", "2"]
    done = CliRunner().invoke(app, [*asked, "--out", str(out), "--scratch", str(tmp_path)])
    assert done.exit_code == 0, done.output
    (folder,) = out.glob("confirmation-*")
    confirmed = read(folder)
    assert [s.name for s in confirmed.campaign.stacks] == ["start", "tuned"]
    assert {t.verdict.status for t in confirmed.trials} == {"ok"}
    assert {c.trial.stack: c.found.verdict for c in confirmed.crashes if c.found} == {"start": "held", "tuned": "held"}
    words = " ".join(done.output.split())
    assert "Together commit_delay=0 gain" in words, words
    assert "in fresh runs: confirmed. Durability: survives power loss; held in 40 states" in words, words
    assert done.output.rstrip().endswith("to paste:\n  postgresql.conf: commit_delay = '0'")
