"""`pgstrata crash`: power-cut verdicts; this version has no crash trials and says so."""

from __future__ import annotations

from typing import Annotated

import typer

from pgstrata.errors import UsageError


def refuse_crash(hint: str = "leave --crash out") -> None:
    """UsageError: what to say wherever crash trials are asked for."""
    raise UsageError(
        "crash trials do not exist yet in this version: no power-cut verdict can be given",
        hint=f"{hint}; every report shows the durability class that each configuration has",
    )


def crash(
    what: Annotated[list[str], typer.Argument(metavar="FILE|STACK...", help="Campaign or stacks in short notation.")],
) -> None:
    """Power-cut verdicts only (not in this version: it says so and exits with 2)."""
    refuse_crash("pgstrata quick or run")


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata crash ext4 xfs")(crash)
