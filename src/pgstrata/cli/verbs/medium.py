"""`pgstrata medium`: the baseline of a medium."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import JsonFlag, argument, end, option, print_json, print_text
from pgstrata.errors import ExitCode

if TYPE_CHECKING:
    from pgstrata.host.protocol import Host
    from pgstrata.workload.medium import MediumBaseline

SCHEMA = "pgstrata.medium/1"


def medium(
    places: Annotated[
        list[str] | None, argument("PLACE", "Folders or block devices; by default /var/tmp.", show_default=False)
    ] = None,
    host: Annotated[str, option("--host", "local, ssh://[user@]host[:port], exec:... or lab/NAME.")] = "local",
    seconds: Annotated[
        float,
        option("--seconds", "Duration of each measurement; pg_test_fsync takes nine times as long.", min=0.1, max=60.0),
    ] = 2.0,
    json: JsonFlag = False,
) -> None:
    """Measure the baseline of a medium: flushes per second, random and sequential rates.

    Writes only to a temporary directory below PLACE; devices are only read.
    """
    from pgstrata.cli.hosts import named_host
    from pgstrata.host.facts.block import medium as describe
    from pgstrata.workload.medium import NOTHING_WRITTEN

    with named_host(host) as target:
        found = [
            (place, describe(target, place, loop=False), _measure(target, place, seconds))
            for place in places or ["/var/tmp"]
        ]
    if json:
        media = [{"place": place, "medium": what, **asdict(baseline)} for place, what, baseline in found]
        print_json({"schema": SCHEMA, "host": host, "media": media})
    else:
        for place, what, baseline in found:
            print_text("\n".join([f"{place} ({what})", *(f"  {line}" for line in _lines(baseline))]))
    unmeasured = {why for _, _, baseline in found for why in baseline.missing} - {NOTHING_WRITTEN}
    end(ExitCode.TRIALS_FAILED if unmeasured else ExitCode.DONE)


def _measure(host: Host, place: str, seconds: float) -> MediumBaseline:
    from pgstrata.errors import UsageError
    from pgstrata.postgres.binaries import discover
    from pgstrata.trial.survey.media_range import measure_place
    from pgstrata.workload.medium import measure_device

    status = host.status(place) if place.startswith("/") else None
    if status is None or status.kind not in ("directory", "block"):
        raise UsageError(
            f"{place} is neither a folder nor a block device on {host.name}",
            hint="name it by its whole path, for example pgstrata medium /var/tmp",
        )
    if status.kind == "block":
        return measure_device(host, place, _size_bytes(host, place), seconds=seconds)
    installations = discover(host)
    return measure_place(host, place, installations[0].bin_directory if installations else None, seconds=seconds)


def _size_bytes(host: Host, device: str) -> int:
    from pgstrata.errors import PreflightError

    try:
        opened = host.open_device(device, exclusive=False)
    except OSError as error:
        raise PreflightError(
            f"{device} on {host.name} cannot be opened: {error.strerror}", hint="devices are read as root"
        ) from None
    host.close_device(opened.handle)
    return opened.size_bytes


def _lines(baseline: MediumBaseline) -> list[str]:
    from pgstrata.report.sentences.header import rates

    shown = [f"{what:<18} {rate}" for what, rate in rates(baseline)]
    return [*shown, *(f"not measured: {line}" for line in baseline.missing)]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata medium /var/tmp /mnt/nvme --json")(medium)
