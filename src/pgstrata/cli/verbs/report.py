"""`pgstrata report`: what a running or finished campaign has found so far."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgstrata.cli.output import (
    CampaignPath,
    FailOn,
    FailUndecided,
    JsonFlag,
    end,
    end_of_reading,
    option,
    print_notice,
    print_text,
)
from pgstrata.errors import ExitCode, UsageError


def report(
    directory: CampaignPath,
    formats: Annotated[
        str | None, option("--format", "html,json,md,csv,png,svg; without it the verdict table.", metavar="LIST")
    ] = None,
    out: Annotated[
        Path | None, option("--out", "Folder for pages and pictures; default DIR.", metavar="FOLDER")
    ] = None,
    fail_on: FailOn = None,
    fail_undecided: FailUndecided = False,
    json: JsonFlag = False,
) -> None:
    """Show a campaign: json, md and csv go to stdout, html to DIR/report.html, pictures to DIR/charts."""
    from pgstrata.analyze.campaign.judge import judge
    from pgstrata.cli.campaign_run import judge_gate, parse_gate, print_answer, with_published
    from pgstrata.record.reader import read
    from pgstrata.report.render import render
    from pgstrata.report.terminal import print_terminal

    gate = parse_gate(fail_on, fail_undecided)
    wanted = [name.strip() for name in (formats or "").split(",") if name.strip()] or (["json"] if json else [])
    if len([name for name in wanted if name in ("json", "md", "csv")]) > 1:
        raise UsageError("only one of json, md and csv can go to stdout", hint="call report once for each")
    data = read(directory)
    findings = with_published(judge(data), data)
    if wanted:
        rendered = render(data, findings, wanted, out or (directory if directory.is_dir() else directory.parent))
        for text in rendered.texts.values():
            print_text(text)
        for path in rendered.paths:
            print_notice(f"wrote {path}")
    else:
        import sys

        print_terminal(data, findings, sys.stdout)
        if directory.is_dir():
            print_answer(data, findings, directory)
    read_whole = end_of_reading(data)
    held = judge_gate(gate, findings)
    end(read_whole if held is ExitCode.DONE else held)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata report out/demo --format html,png")(report)
