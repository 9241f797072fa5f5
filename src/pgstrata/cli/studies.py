"""`pgstrata studies`: the published comparisons, to look at and to repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgstrata.cli.output import (
    FailOn,
    FailUndecided,
    JsonFlag,
    OtherHost,
    OutDirectory,
    QuietFlag,
    ScratchDirectory,
    print_json,
    print_text,
)

group = typer.Typer(
    help="The published comparisons: list them, or run one again.",
    epilog="Example: pgstrata studies run zfs-tuning --size lab --host lab",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@group.callback()
def list_all(context: typer.Context, json: JsonFlag = False) -> None:
    """The published comparisons: list them, or run one again."""
    if context.invoked_subcommand is not None:
        return
    from pgstrata.studies import list_studies

    studies = list_studies()
    if json:
        print_json([study.model_dump(mode="json") for study in studies])
        return
    for study in studies:
        sizes = ", ".join(study.campaigns)
        print_text(f"{study.name}: {study.title}\n  {study.question}\n  {len(study.stacks)} stacks; sizes: {sizes}")
        print_text(f"  {study.source}")


@group.command("run", epilog="Example: pgstrata studies run zfs-tuning --size lab --host lab")
def run_study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `pgstrata studies` lists.")],
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            help="Which campaign: full, lab, or another size that `pgstrata studies` lists.",
            show_default="lab with --host lab",
        ),
    ] = None,
    host: OtherHost = None,
    out: OutDirectory = None,
    scratch: ScratchDirectory = None,
    fail_on: FailOn = None,
    fail_undecided: FailUndecided = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Run a published comparison; the report puts its figures beside the measured ones."""
    from pgstrata.cli.campaigning import Shown, parse_gate, run_to_report
    from pgstrata.cli.changes import changed
    from pgstrata.spec.campaign_file import load_campaign
    from pgstrata.spec.expand import with_aa
    from pgstrata.studies import campaign_file, load_study

    study = load_study(name)
    chosen = size or ("lab" if host == "lab" and "lab" in study.campaigns else "full")
    file = campaign_file(study, chosen)
    campaign = with_aa(changed(load_campaign(file), scratch=scratch, host=host))
    shown = Shown(json=json, quiet=quiet, gate=parse_gate(fail_on, fail_undecided))
    where = out or Path("out") / f"{study.name}-{chosen}"
    run_to_report(campaign, where, "run", shown, source_text=file.read_text(encoding="utf-8"))


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="studies")
