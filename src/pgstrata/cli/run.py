"""`pgstrata run`: runs a campaign, or goes on with it."""

from __future__ import annotations

from pathlib import Path

import typer

from pgstrata.cli.output import (
    Blocks,
    Budget,
    CampaignFile,
    FailOn,
    FailUndecided,
    JsonFlag,
    OtherHost,
    OutDirectory,
    QuietFlag,
    ScratchDirectory,
)


def run(
    file: CampaignFile,
    out: OutDirectory = None,
    blocks: Blocks = None,
    budget: Budget = None,
    scratch: ScratchDirectory = None,
    host: OtherHost = None,
    fail_on: FailOn = None,
    fail_undecided: FailUndecided = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run a campaign, or resume it: the same command goes on after any interruption."""
    from pgstrata.cli.campaigning import Shown, parse_gate, run_to_report
    from pgstrata.cli.changes import changed
    from pgstrata.spec.campaign_file import load_campaign
    from pgstrata.spec.expand import slug, with_aa

    campaign = changed(load_campaign(file), blocks=blocks, budget=budget, scratch=scratch, host=host)
    text = file.read_text(encoding="utf-8")
    shown = Shown(json=json, quiet=quiet, gate=parse_gate(fail_on, fail_undecided))
    run_to_report(with_aa(campaign), out or Path("out") / slug(campaign.name), "run", shown, source_text=text)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata run campaigns/demo.yaml --out out/demo")(run)
