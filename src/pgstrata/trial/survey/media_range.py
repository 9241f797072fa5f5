"""Modelled media of a campaign that are faster than the host that models them: told before the first run, recorded."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.base import LocalHost
from pgstrata.host.delivery import deliver, program_call
from pgstrata.host.protocol import Host
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.hosts.lab import LAB
from pgstrata.spec.layers.media import UNTIMED, MediaDevice
from pgstrata.stack.block.media import calibrate, undos_of
from pgstrata.stack.journal import journaled
from pgstrata.stack.undo import RemovePath
from pgstrata.trial.survey.host_survey import Site, make_scratch
from pgstrata.trial.survey.medium import is_measurable

FACT = "modelled media out of range"
HERE = "/var/tmp"
"""Folder in which this machine, which runs a lab machine, is looked over."""


@dataclass(frozen=True)
class AskedTiming:
    """A model that something of a campaign is timed by, and the stretch of its times."""

    model: str
    stretch: float
    definition: str | None = None


def deliver_media(site: Site) -> None:
    """Bring what models media to the host, if a stack of the campaign stands on them; PreflightError for a model of the
    user's own that it does not take."""
    media = media_of(site.campaign)
    if not media:
        return
    deliver(site.host)
    for model, text in own_models(timings_of(site.campaign)).items():
        validate = replace(program_call("validate", "/dev/stdin"), stdin=text)
        said = site.host.run(validate, check=False)
        if said.exit_code != 0:
            reason = said.stderr.strip().removeprefix("strata-disk: ")
            raise PreflightError(f"medium {model}: {reason}", hint="docs/media.md: a model of one's own disk")


def with_media_range(site: Site) -> tuple[Site, tuple[str, ...]]:
    """The site with what is out of range among its facts, and the same in lines. Nothing is measured where neither a
    stack nor a disk of a lab machine is modelled, or where runs are too short to tell anything."""
    if not is_measurable(site):
        return site, ()
    lines = _beyond(site.host, site.scratch, timings_of(site.campaign))
    behind = lab_timings_of(site.campaign)
    if behind:
        here = LocalHost()
        try:
            lines += _beyond(here, HERE, behind)
        finally:
            here.close()
    if not lines:
        return site, ()
    told = {**site.facts.told, FACT: "; ".join(lines)}
    return replace(site, facts=replace(site.facts, told=told)), lines


def _beyond(host: Host, scratch: str, asked: Sequence[AskedTiming]) -> tuple[str, ...]:
    if not asked:
        return ()
    try:
        return tuple(out_of_range(asked, calibrated(host, scratch, own_models(asked))))
    except PgstrataError as error:
        return (f"whether modelled media are in the range of this host is not known: {error.message}",)


def media_of(campaign: Campaign) -> tuple[MediaDevice, ...]:
    """Every modelled medium that a stack stands on."""
    volumes = (volume for stack in campaign.stacks for volume in stack.volumes.values())
    return tuple(device for volume in volumes for device in volume.devices if isinstance(device, MediaDevice))


def timings_of(campaign: Campaign) -> tuple[AskedTiming, ...]:
    """Return what the host of a campaign has to keep up with: the media of stacks that have times."""
    return tuple(AskedTiming(d.model, d.stretch, d.definition) for d in media_of(campaign) if d.model != UNTIMED)


def lab_timings_of(campaign: Campaign) -> tuple[AskedTiming, ...]:
    """Return what the machine that runs QEMU has to keep up with: the disks of a lab machine that it models."""
    disks = campaign.lab.disks.values() if campaign.host == LAB else ()
    return tuple(AskedTiming(d.media, d.stretch, d.definition) for d in disks if d.media is not None)


def own_models(asked: Iterable[AskedTiming]) -> dict[str, str]:
    """The texts of models that strata-disk does not come with, by name."""
    return {one.model: one.definition for one in asked if one.definition is not None}


def out_of_range(asked: Iterable[AskedTiming], smallest: Mapping[str, float]) -> Iterator[str]:
    """A line for each model that some stack uses with less stretch than this host needs. Pure."""
    least: dict[str, float] = {}
    for one in asked:
        least[one.model] = min(one.stretch, least.get(one.model, one.stretch))
    for model, stretch in least.items():
        needed = smallest.get(model)
        if needed is None:
            yield f"whether modelled medium {model} is in the range of this host is not known"
        elif stretch < needed:
            yield (
                f"modelled medium {model} is out of range: some of its answers are due sooner than this host gives "
                f"them; stretch={math.ceil(needed)} brings it into range"
            )


def calibrated(host: Host, scratch: str, own: Mapping[str, str] = MappingProxyType({})) -> Mapping[str, float]:
    """From which stretch on a host is no slower than a model, by model, also of those `own` texts; takes five seconds
    and leaves nothing."""
    name = f"calibration-{secrets.token_hex(4)}"
    folder = f"{scratch.rstrip('/')}/pgstrata-{name}"
    files = [f"{folder}.{number}.toml" for number in range(len(own))]
    with journaled(host, name) as journal:
        make_scratch(host, scratch, journal)
        journal.register(*(RemovePath(path=file) for file in files), *undos_of(folder, (f"{folder}/disks/disk",)))
        for file, text in zip(files, own.values(), strict=True):
            host.write_text(file, text, mode=0o600)
        return calibrate(host, folder, files)
