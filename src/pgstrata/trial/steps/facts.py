"""Facts of the host and of the server, beside every trial: what is checked and what is merely told."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from pgstrata import __version__
from pgstrata.host.facts.activity import read_busy, read_load
from pgstrata.host.facts.block import medium
from pgstrata.host.facts.cpu import read_throttle_count
from pgstrata.host.facts.gather import BUSY, NOBODY
from pgstrata.host.facts.modelled import ModelledDisk
from pgstrata.host.protocol import Host
from pgstrata.record.schema import HostFacts
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.kind import MEMORY, Device
from pgstrata.trial.context import TrialContext

BUSY_SAMPLE_S = 0.1
CLIENT_FACTS = ("operating system", "version of ")


def record_facts(context: TrialContext) -> None:
    """Writes `facts.json`: the host as it was looked over at the start, and what may have changed since."""
    found = context.site.facts
    installation = context.server.installation
    checked = {
        **found.checked,
        "PostgreSQL version": installation.title,
        **({"PostgreSQL program": f"SHA-256 {installation.digest}"} if installation.digest else {}),
        "pgstrata version": __version__,
    }
    for name, site in context.site.elsewhere.items():  # the same facts in every trial of a campaign
        checked |= {f"{what} of {name}": value for what, value in site.facts.checked.items()}
    with context.host.looking():
        told = {**found.told, **_now(context.host), "PostgreSQL build": installation.exact}
    if client := context.setup.client:
        site = context.site.driving
        told |= {f"{what} of {client}": v for what, v in site.facts.told.items() if what.startswith(CLIENT_FACTS)}
        told[f"PostgreSQL programs of {client}"] = site.installations[context.plan.stack.name].title
    if installation.configured:
        told["PostgreSQL configured with"] = installation.configured
    for name, site in context.site.sites.items():
        if site.caches_kept:
            told[f"caches of {name}" if name else "caches"] = f"not dropped before runs: {site.caches_kept}"
    facts = HostFacts(
        name=context.host.name, kind=context.host.kind, checked=checked, told=told, medium=context.site.medium
    )
    context.recorder.write("facts.json", facts)


def _now(host: Host) -> dict[str, str]:
    busy = ", ".join(process.text for process in read_busy(host, BUSY_SAMPLE_S)) or NOBODY
    throttled = read_throttle_count(host)
    load = read_load(host)
    found = {BUSY: busy}
    if load is not None:
        found["load average"] = f"{load:.2f}"
    if throttled is not None:
        found["thermal throttling"] = f"{throttled} times since boot"
    return found


def describe_medium(host: Host, campaign: Campaign, scratch: str, modelled: Mapping[str, ModelledDisk]) -> str:
    """Return what the data, WAL and tablespaces of all stacks lie on, for the head of tables."""

    @cache
    def look(path: str, loop: bool) -> str:
        return medium(host, path, loop=loop)

    volumes = (volume for stack in campaign.stacks for volume in stack.volumes.values())

    def lies_on(device: Device) -> str:
        kinds = dict.fromkeys(modelled[id_].lies_on for id_ in device.stable_ids if id_ in modelled)
        return ", ".join(kinds) or device.lies_on(scratch, look)

    places = dict.fromkeys(v.fs.lies_on(look) or lies_on(v.device) for v in volumes)
    # Memory is named only where there is nothing else: the stack's own name says it.
    return "; ".join(place for place in places if place != MEMORY) or MEMORY
