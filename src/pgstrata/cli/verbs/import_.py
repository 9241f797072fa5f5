"""`pgstrata import`: other people's results in, as a campaign directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import Group, JsonFlag, argument, option, parse_margin, print_json, print_notice, print_text
from pgstrata.importers.registry import TOOLS
from pgstrata.importers.source import Importer

if TYPE_CHECKING:
    from pgstrata.importers.runs import ImportSummary

Out = Annotated[Path, option("--out", "Campaign directory to write.", metavar="DIR", show_default=False)]
Margin = Annotated[str, option("--margin", "Differences below it do not matter.")]

Metric = Annotated[str | None, option("--metric", "Metric to compare.", metavar="NAME", show_default="the tool's own")]

group = typer.Typer(
    cls=Group,
    help="Import results measured by other tools.",
    epilog="Example: pgstrata import csv runs.csv --out out/mine --margin 5%",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _show(summary: ImportSummary, json: bool) -> None:
    if json:
        print_json(
            {
                "directory": str(summary.directory),
                "stacks": list(summary.stacks),
                "trials": summary.trials,
                "runs": summary.runs,
                "rejected": dict(summary.rejected),
                "notices": list(summary.notices),
            }
        )
        return
    print_text(summary.text)
    print_notice(f"now: pgstrata report {summary.directory}")


@group.command("csv", epilog="Example: pgstrata import csv runs.csv --out out/mine --margin 5%")
def import_csv_file(
    file: Annotated[Path, argument("FILE", "One row per run; see docs/import.md.")],
    out: Out,
    margin: Margin = "2%",
    skip_bad_rows: Annotated[bool, option("--skip-bad-rows", "Skip and count faulty rows.")] = False,
    metric: Annotated[str, option("--metric", "Column to compare.", metavar="NAME")] = "tps",
    json: JsonFlag = False,
) -> None:
    """Import a table with one row per run."""
    from pgstrata.importers.csv_runs import import_csv

    _show(import_csv(file, out, margin=parse_margin(margin), skip_bad_rows=skip_bad_rows, metric=metric), json)


@group.command("pg-fs-benchmark", epilog="Example: pgstrata import pg-fs-benchmark xeon --out out/xeon")
def import_pg_fs_benchmark_folder(
    directory: Annotated[Path, argument("DIR", "Folder or .tar archive of one machine.")],
    out: Out,
    margin: Margin = "2%",
    json: JsonFlag = False,
) -> None:
    """Import raw data in the layout of pg-fs-benchmark."""
    from pgstrata.importers.pg_fs_benchmark import import_pg_fs_benchmark

    _show(import_pg_fs_benchmark(directory, out, margin=parse_margin(margin)), json)


@group.command("pgbench", epilog="Example: pgstrata import pgbench ext4=a.out xfs=b.out --out out/mine")
def import_pgbench_files(
    files: Annotated[list[str], argument("STACK=FILE", "Output or log of one run of pgbench.")],
    out: Out,
    margin: Margin = "2%",
    workers: Annotated[
        int | None, option("--workers", "Number of log parts read in parallel.", min=1, max=64, show_default="1")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Import output and per-transaction logs of pgbench."""
    from pgstrata.fleet.work import opened_work
    from pgstrata.importers.pgbench_files import import_pgbench

    with opened_work(workers) as executor:
        summary = import_pgbench(files, out, executor, margin=parse_margin(margin))
    _show(summary, json)


def _add_tool(importer: Importer) -> None:
    def import_files(
        files: list[str], out: Out, margin: Margin = "2%", metric: Metric = None, json: JsonFlag = False
    ) -> None:
        from pgstrata.importers.tool_runs import import_tool

        _show(import_tool(importer, files, out, margin=parse_margin(margin), metric=metric), json)

    # Each command has its own help for the argument; typer resolves annotations in the module, which has no `importer`.
    metavar = "STACK=DIR" if importer.folders else "STACK=FILE"
    import_files.__annotations__["files"] = Annotated[list[str], argument(metavar, importer.argument)]
    import_files.__doc__ = f"Import results of {importer.tool}."
    sources = "ext4=a xfs=b" if importer.folders else "ext4=a.out xfs=b.out"
    example = f"Example: pgstrata import {importer.name} {sources} --out out/mine"
    group.command(importer.name, epilog=example)(import_files)


for _tool in TOOLS:
    _add_tool(_tool)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="import")
