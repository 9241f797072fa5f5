"""`pgstrata run`: runs a campaign, or goes on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgstrata.cli.output import CampaignFile, FailOn, JsonFlag, OutDirectory, QuietFlag


def run(
    file: CampaignFile,
    out: OutDirectory = None,
    blocks: Annotated[
        int | None, typer.Option("--blocks", min=1, help="A fixed number of blocks instead of adaptive ones.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Time budget, e.g. 90min; instead of the file's.")
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option("--scratch", metavar="DIR", help="Folder of the loop files.", show_default=False)
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="local, ssh://[user@]host[:port] or lab; instead of the file's.")
    ] = None,
    fail_on: FailOn = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run a campaign, or resume it: the same command goes on after any interruption."""
    from pgstrata.cli.campaigning import Shown, run_to_report
    from pgstrata.cli.changes import changed
    from pgstrata.spec.expand import slug, with_aa
    from pgstrata.spec.load import load_campaign

    campaign = changed(load_campaign(file), blocks=blocks, budget=budget, scratch=scratch, host=host)
    text = file.read_text(encoding="utf-8")
    shown = Shown(json=json, quiet=quiet, fail_on=fail_on or ())
    run_to_report(with_aa(campaign), out or Path("out") / slug(campaign.name), "run", shown, source_text=text)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata run campaigns/demo.yaml --out out/demo")(run)
