"""Which modelled media of a campaign are faster than the host that models them: told before the first run, recorded."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pgstrata.errors import PgstrataError
from pgstrata.host.delivery import deliver
from pgstrata.host.protocol import Host
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.media import MediaDevice
from pgstrata.stack.block.media import calibrate, undos_of
from pgstrata.stack.build import failures
from pgstrata.stack.journal import Journal
from pgstrata.trial.medium import is_measurable
from pgstrata.trial.scratch import make_scratch
from pgstrata.trial.site import Site

FACT = "modelled media out of range"


def deliver_media(site: Site) -> None:
    """What models media gets to the host, where a stack of the campaign stands on them."""
    if media_of(site.campaign):
        deliver(site.host)


def with_media_range(site: Site) -> tuple[Site, tuple[str, ...]]:
    """The site with what is out of range among its facts, and the same in lines. Nothing is measured where no stack
    stands on modelled media, or where runs are too short to tell anything."""
    asked = media_of(site.campaign)
    if not asked or not is_measurable(site):
        return site, ()
    try:
        lines = tuple(out_of_range(asked, calibrated(site.host, site.scratch)))
    except PgstrataError as error:
        lines = (f"whether modelled media are in the range of this host is not known: {error.message}",)
    if not lines:
        return site, ()
    told = {**site.facts.told, FACT: "; ".join(lines)}
    return replace(site, facts=replace(site.facts, told=told)), lines


def media_of(campaign: Campaign) -> tuple[MediaDevice, ...]:
    """Every modelled medium that a stack stands on."""
    volumes = (volume for stack in campaign.stacks for volume in stack.volumes.values())
    return tuple(device for volume in volumes for device in volume.devices if isinstance(device, MediaDevice))


def out_of_range(asked: Iterable[MediaDevice], smallest: Mapping[str, float]) -> Iterator[str]:
    """A line for each model that some stack uses with less stretch than this host needs. Pure."""
    least: dict[str, float] = {}
    for device in asked:
        least[device.model] = min(device.stretch, least.get(device.model, device.stretch))
    for model, stretch in least.items():
        needed = smallest.get(model, 1.0)
        if stretch < needed:
            yield (
                f"modelled medium {model} is out of range: some of its answers are due sooner than this host gives "
                f"them; stretch={math.ceil(needed)} brings it into range"
            )


def calibrated(host: Host, scratch: str) -> Mapping[str, float]:
    """From which stretch on a host is no slower than a model, by model; takes five seconds and leaves nothing."""
    name = f"calibration-{secrets.token_hex(4)}"
    folder = f"{scratch.rstrip('/')}/pgstrata-{name}"
    journal = Journal.create(host, name)
    try:
        make_scratch(host, scratch, journal)
        journal.register(*undos_of(folder, (f"{folder}/disks/disk",)))
        return calibrate(host, folder)
    finally:
        left = failures(journal.undo_all())
        if left:
            raise PgstrataError(f"could not be undone: {'; '.join(left)}", hint="pgstrata clean")
