"""`pgstrata export`: the tidy tables of a campaign as Parquet and CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgstrata.cli.output import CampaignPath, JsonFlag, print_json, print_text


def export(
    directory: CampaignPath,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="Where to write; default DIR/export.", show_default=False),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write the tidy tables: runs and trials (CSV and Parquet) and every per-second series (Parquet)."""
    from pgstrata.record.frames import load_frames

    folder = to or (directory if directory.is_dir() else directory.with_suffix("")) / "export"
    written = load_frames(directory).export(folder)
    if json:
        print_json({"files": [str(path) for path in written]})
    else:
        print_text("\n".join(str(path) for path in written))


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata export out/demo --to tables")(export)
