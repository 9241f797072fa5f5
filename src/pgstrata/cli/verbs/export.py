"""`pgstrata export`: the tidy tables of a campaign as Parquet and CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgstrata.cli.output import CampaignPath, JsonFlag, end, end_of_reading, print_json, print_text, tell_unreadable


def export(
    directory: CampaignPath,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Where to write; default DIR/export.", show_default=False),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write the tidy tables: runs and trials (CSV and Parquet) and every per-second series (Parquet)."""
    from pgstrata.record.frames import load_frames

    frames = load_frames(directory)
    folder = out or (directory if directory.is_dir() else directory.with_suffix("")) / "export"
    written = frames.export(folder)
    if json:
        print_json({"files": [str(path) for path in written]})
    else:
        print_text("\n".join(str(path) for path in written))
    tell_unreadable(frames.data.unreadable)
    end(end_of_reading(frames.data))


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata export out/demo --out tables")(export)
