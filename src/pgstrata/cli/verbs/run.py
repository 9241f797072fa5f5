"""`pgstrata run`: runs a campaign, or resumes it; `pgstrata schema`: what its file may hold."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from pgstrata.cli.output import (
    Blocks,
    CampaignFile,
    FailOn,
    FailUndecided,
    JsonFlag,
    Minutes,
    OtherHost,
    OutDirectory,
    QuietFlag,
    ScratchDirectory,
    option,
    print_json,
)


def run(
    file: CampaignFile,
    out: OutDirectory = None,
    blocks: Blocks = None,
    minutes: Minutes = None,
    scratch: ScratchDirectory = None,
    host: OtherHost = None,
    fail_on: FailOn = None,
    fail_undecided: FailUndecided = False,
    watch: Annotated[bool, option("--watch", "Serve a live page meanwhile, and print its address.")] = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run a campaign, or resume it: the same command continues after any interruption.

    A campaign directory can be resumed too; add --minutes if its budget is used up.
    """
    from pgstrata.cli.campaign_run import Shown, parse_gate, run_to_report
    from pgstrata.cli.overrides import asked_campaign
    from pgstrata.cli.verbs.watch import watching

    asked = asked_campaign(file, minutes, blocks=blocks, scratch=scratch, host=host)
    shown = Shown(json=json, quiet=quiet, gate=parse_gate(fail_on, fail_undecided))
    directory = out or asked.out
    with watching(directory) if watch else nullcontext():
        run_to_report(asked.campaign, directory, asked.origin, shown, source_text=asked.source_text)


def schema() -> None:
    """Print the JSON Schema of campaign files."""
    from pgstrata.spec.file.schema import campaign_schema

    print_json(campaign_schema())


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata run campaigns/demo.yaml --out out/demo")(run)
    app.command(epilog="Example: pgstrata schema > campaign.schema.json")(schema)
