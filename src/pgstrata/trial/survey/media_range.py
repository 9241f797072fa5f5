"""The medium of a campaign: its baseline whenever a run begins or goes on, and its flushes before each block.

Also modelled media that are faster than the host that models them: told before the first run, recorded.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.delivery import deliver, program_call
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Host, command
from pgstrata.record.recorder import CampaignDirectory, utc_now
from pgstrata.record.schema import MediumRecord
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.hosts.lab import LAB
from pgstrata.spec.layers.kind import MEMORY
from pgstrata.spec.layers.media import UNTIMED, MediaDevice
from pgstrata.stack.block.media import calibrate, undos_of
from pgstrata.stack.journal import journaled
from pgstrata.stack.undo import RemovePath, StopProcesses
from pgstrata.trial.survey.host_survey import Site, make_scratch
from pgstrata.workload.medium import SHORTEST_FSYNC_S, MediumBaseline, measure_flushes, measure_medium

LONGEST_S = 2.0
"""For one rate; pg_test_fsync takes nine times as long."""
SHARE_OF_RUN = 1 / 30
"""Share of the length of a run: no rate of a baseline is measured for longer."""
SHORTEST_RUN_S = 10.0
"""Shorter runs try something out and measure nothing."""


Measure = Callable[[Host, str], MediumBaseline]
"""Measures by files in a folder that is its own."""


def measure_place(host: Host, place: str, server_binaries: str | None, *, seconds: float = LONGEST_S) -> MediumBaseline:
    """The baseline of what a folder lies on. A missing folder is made; all that is written is journaled and removed."""
    return _measured(host, place, partial(measure_medium, server_binaries=server_binaries, seconds=seconds))


def _measured(host: Host, place: str, measure: Measure) -> MediumBaseline:
    name = f"medium-{secrets.token_hex(4)}"
    folder = f"{place.rstrip('/')}/pgstrata-{name}"
    left: list[str] = []
    with journaled(host, name, StopProcesses(marker=name), told=left.extend) as journal:
        make_scratch(host, place, journal)
        uid = int(host.run(command("id", "-u")).stdout)
        journal.register(RemovePath(path=folder, uid=uid))
        host.mark(name)
        host.make_directory(folder, mode=0o700, new=True)
        found = measure(host, folder)
    return found if not left else found.lacking(f"could not be undone: {'; '.join(left)}; run `pgstrata clean`")


def record_baseline(site: Site, directory: CampaignDirectory) -> None:
    """Measures the medium of a campaign's scratch folder before it goes on; nothing where all stacks lie in memory, or
    where runs are too short to tell anything."""
    if not is_measurable(site):
        return
    binaries = next(iter(site.installations.values())).bin_directory
    measure = partial(measure_medium, server_binaries=binaries, seconds=_seconds(site))
    _record(site, directory, "baseline", directory.next_block(), measure)


def record_check(site: Site, directory: CampaignDirectory, block: int) -> None:
    """Measures the flushes of the scratch folder before a block, where there is a baseline and a thirtieth of a run is
    long enough for a rate that can be compared."""
    if _seconds(site) >= SHORTEST_FSYNC_S:
        _record(site, directory, "check", block, partial(measure_flushes, seconds=_seconds(site)))


def is_measurable(site: Site) -> bool:
    """True if runs are long enough to tell anything about a medium."""
    return _run_s(site) >= SHORTEST_RUN_S


def _run_s(site: Site) -> float:
    return site.campaign.workload.duration_s or LONGEST_S / SHARE_OF_RUN


def _seconds(site: Site) -> float:
    return min(LONGEST_S, SHARE_OF_RUN * _run_s(site))


def _record(
    site: Site, directory: CampaignDirectory, kind: Literal["baseline", "check"], block: int, measure: Measure
) -> None:
    if site.medium == MEMORY:
        return
    found = asdict(_measured(site.host, site.scratch, measure))
    seconds = _seconds(site)
    host = site.host.name if site.campaign.hosts else ""
    record = MediumRecord(
        at=utc_now(), before_block=block, medium=site.medium, seconds=seconds, host=host, kind=kind, **found
    )
    directory.record_medium(record)


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
