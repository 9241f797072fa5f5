"""`pgstrata schema`: the JSON Schema of campaign files, for editors."""

from __future__ import annotations

import typer

from pgstrata.cli.output import print_json


def schema() -> None:
    """Print the JSON Schema of campaign files."""
    from pgstrata.spec.file.campaign import campaign_schema

    print_json(campaign_schema())


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata schema > campaign.schema.json")(schema)
