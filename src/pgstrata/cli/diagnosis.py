"""The findings of `pgstrata doctor` about a host, as JSON and for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from pgstrata.errors import install_hint
from pgstrata.host.advice import Advice, advise, read_for_advice
from pgstrata.host.capabilities import Capability, Missing
from pgstrata.host.facts import Facts, gather, medium
from pgstrata.host.protocol import Host
from pgstrata.postgres.binaries import Installation, discover
from pgstrata.spec.printable import printable
from pgstrata.spec.units import render_size
from pgstrata.stack.disks import Disk, list_disks
from pgstrata.stack.preflight import known_capabilities, missing

DOCTOR_SCHEMA = "pgstrata.doctor/1"


@dataclass(frozen=True)
class Diagnosis:
    """Everything `doctor` has to say about a host."""

    host: str
    kind: str
    medium: str
    facts: Facts
    missing: tuple[Missing, ...]
    advice: tuple[Advice, ...]
    postgresql: tuple[Installation, ...]
    disks: tuple[Disk, ...]
    media: Mapping[str, float] | None = None
    """From which stretch on the host is no slower than a modelled medium; None where that was not measured."""


def diagnose(host: Host, scratch: str) -> Diagnosis:
    """Asks the host; changes nothing."""
    return Diagnosis(
        host=host.name,
        kind=host.kind,
        medium=medium(host, scratch),
        facts=gather(host),
        missing=missing(host, known_capabilities()),
        advice=advise(read_for_advice(host, scratch)),
        postgresql=discover(host),
        disks=list_disks(host),
    )


def render_json(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis as `pgstrata.doctor/1`."""
    lacking = {one.name: one for one in found.missing}
    return {
        "schema": DOCTOR_SCHEMA,
        "host": {"name": found.host, "kind": found.kind, "medium": found.medium},
        "facts": asdict(found.facts),
        "capabilities": [_capability(one, lacking.get(one.name)) for one in known_capabilities().values()],
        "advice": [asdict(advice) for advice in found.advice],
        "postgresql": [
            {"version": i.version, "source": i.source, "bin_directory": i.bin_directory, "contrib": sorted(i.contrib)}
            for i in found.postgresql
        ],
        "disks": [asdict(disk) for disk in found.disks],
        "modelled_media": None
        if found.media is None
        else [{"model": model, "smallest_stretch": stretch} for model, stretch in found.media.items()],
    }


def _capability(one: Capability, lacking: Missing | None) -> dict[str, Any]:
    if lacking is None:
        return {"name": one.name, "what": one.what, "available": True}
    reasons = {"reason": lacking.reason, "install": lacking.install, "advice": lacking.advice}
    return {"name": one.name, "what": one.what, "available": False, **reasons}


def print_diagnosis(found: Diagnosis, console: Console) -> None:
    """For people."""
    checked = found.facts.checked
    machine = f"{checked['CPU model']}, {checked['CPUs']} CPUs, {checked['memory']}, Linux {checked['kernel']}"
    servers = ", ".join(f"{i.version} ({i.source})" for i in found.postgresql)
    none = f"none: install the package postgresql, or on this machine: {install_hint('server')}"
    for line in (
        f"{found.host} ({found.kind}): {machine}",
        f"medium: {found.medium}",
        f"PostgreSQL: {servers or none}",
    ):
        console.print(printable(line), highlight=False, markup=False)
    console.print("HINT: for other majors: pgstrata doctor --fetch-postgres MAJOR\n", highlight=False, soft_wrap=True)
    console.print(_capabilities(found))
    for hint, names in _by_hint(found.missing).items():
        console.print(printable(f"HINT: for {', '.join(names)}: {hint}"), highlight=False, markup=False, soft_wrap=True)
    console.print()
    if found.disks:
        console.print(_disks(found.disks))
        console.print(
            "HINT: pgstrata quick ext4 xfs --device ID; what carries data needs --erase ID, too\n",
            highlight=False,
            soft_wrap=True,
        )
    if found.media is not None:
        console.print(_media(found.media))
        console.print()
    if found.advice:
        console.print(_advice(found.advice))
    else:
        console.print("no settings that distort benchmarks")


def _by_hint(lacking: tuple[Missing, ...]) -> dict[str, list[str]]:
    """Names of what is missing by what brings it, so that one command is said once."""
    grouped: dict[str, list[str]] = {}
    for one in lacking:
        grouped.setdefault(one.hint, []).append(one.name)
    return grouped


def _capabilities(found: Diagnosis) -> Table:
    lacking = {one.name: one for one in found.missing}
    table = Table("capability", "this host can ...", "", title="What this host can build", title_justify="left")
    for name, capability in known_capabilities().items():
        one = lacking.get(name)
        state = (
            Text("yes", style="green") if one is None else Text.assemble(("no", "red"), printable(f": {one.reason}"))
        )
        table.add_row(name, capability.what, state)
    return table


def _disks(disks: tuple[Disk, ...]) -> Table:
    styles = {"blank": "green", "carries data": "yellow", "in use": "red", "not known": "yellow"}
    table = Table(
        Column("id", overflow="fold"), "size", "model", "", title="Disks, by the names that stay", title_justify="left"
    )
    for disk in disks:
        state = Text.assemble((disk.state, styles[disk.state]), printable(f": {disk.what}" if disk.what else ""))
        names = Text(printable(disk.id if disk.id.startswith(f"{disk.node}+") else f"{disk.id}\n{disk.node}"))
        table.add_row(names, render_size(disk.size_bytes), Text(printable(disk.model)), state)
    return table


def _media(smallest: Mapping[str, float]) -> Table:
    table = Table("model", "this host can give it ...", title="Modelled media", title_justify="left")
    for model, stretch in smallest.items():
        within = stretch <= 1
        said = Text("as it is", style="green") if within else Text(f"with stretch={math.ceil(stretch)}", style="yellow")
        table.add_row(model, said)
    return table


def _advice(advice: tuple[Advice, ...]) -> Table:
    table = Table("", "what", "found, and what it does", title="What spoils benchmarks here", title_justify="left")
    for one in advice:
        style = "yellow" if one.weight == "warning" else "default"
        said = Text(printable(f"{one.found}: {one.effect}")) + Text(printable(f"\n-> {one.fix}") if one.fix else "")
        table.add_row(Text(one.weight, style=style), one.topic, said)
    return table
