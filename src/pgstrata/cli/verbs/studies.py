"""`pgstrata studies`: the published comparisons, to look at and to repeat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import (
    FailOn,
    FailUndecided,
    Group,
    JsonFlag,
    OtherHost,
    OutDirectory,
    QuietFlag,
    ScratchDirectory,
    argument,
    option,
    print_json,
    print_text,
)
from pgstrata.errors import UsageError

if TYPE_CHECKING:
    from pgstrata.spec.campaign import Campaign

PLACEHOLDER = "CHANGE-ME"
"""In the ids of disks that a shipped campaign cannot know."""

group = typer.Typer(
    cls=Group,
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
    name: Annotated[str, argument("NAME", "A name that `pgstrata studies` lists.")],
    size: Annotated[
        str | None,
        option(
            "--size",
            "Which campaign: full, lab, or another size that `pgstrata studies` lists.",
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
    from pgstrata.cli.campaign_run import Shown, parse_gate, run_to_report
    from pgstrata.cli.overrides import changed
    from pgstrata.spec.expand import with_aa
    from pgstrata.spec.file.campaign import load_campaign
    from pgstrata.studies import campaign_file, load_study

    study = load_study(name)
    chosen = size or ("lab" if host == "lab" and "lab" in study.campaigns else "full")
    file = campaign_file(study, chosen)
    campaign = with_aa(changed(load_campaign(file), scratch=scratch, host=host))
    _refuse_placeholders(campaign, file, [other for other in study.campaigns if other != chosen])
    shown = Shown(json=json, quiet=quiet, gate=parse_gate(fail_on, fail_undecided))
    where = out or Path("out") / f"{study.name}-{chosen}"
    run_to_report(campaign, where, "run", shown, source_text=file.read_text(encoding="utf-8"))


@group.command("table", epilog="Example: pgstrata studies table out/filesystems-hdd-full")
def print_tables(
    results: Annotated[list[Path], argument("DIR|FILE", "Directories of campaigns, or their JSON reports.")],
    json: JsonFlag = False,
) -> None:
    """Print of each arm the published ratio, the measured one, whether they agree, and why not."""
    from pgstrata.analyze.campaign.judge import judge
    from pgstrata.cli.campaign_run import with_published
    from pgstrata.record.reader import read
    from pgstrata.report.tables.agreement import StudyReport, read_report, table_lines

    reports = []
    for path in results:
        if path.is_dir():
            data = read(path)
            reports.append(StudyReport.of(with_published(judge(data), data), str(path)))
        else:
            reports.append(read_report(path))
    if json:
        arms = ([row.model_dump(mode="json") for row in report.rows()] for report in reports)
        print_json([{"campaign": r.campaign.name, "arms": told} for r, told in zip(reports, arms, strict=True)])
        return
    for report in reports:
        print_text("\n".join([f"{report.campaign.name}", "", *table_lines(report), ""]))


def _refuse_placeholders(campaign: Campaign, file: Path, others: Sequence[str]) -> None:
    """UsageError where disks are yet to be named: nobody can guess which may be formatted."""
    unnamed = next((id_ for stack in campaign.stacks for id_ in stack.device_ids if PLACEHOLDER in id_), None)
    if unnamed is None:
        return
    raise UsageError(
        f"{file} leaves its disks open: {unnamed}",
        hint="copy that file, put your disks into it (pgstrata doctor lists them) and run it with pgstrata run FILE"
        + "".join(f"; or --size {other}" for other in others[:1]),
    )


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="studies")
