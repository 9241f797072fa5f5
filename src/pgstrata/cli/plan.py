"""`pgstrata plan`: everything that a campaign would do; touches nothing."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Added below."""
