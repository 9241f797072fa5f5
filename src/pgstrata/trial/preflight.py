"""What is checked before anything is changed: capabilities, devices, space; and what the user should know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from pgstrata.errors import PreflightError
from pgstrata.host.capabilities import missing, required_for
from pgstrata.host.facts.load import read_busy, read_servers
from pgstrata.host.facts.memory import read_memory
from pgstrata.host.protocol import Host
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.stack import DiskDevice, Existing, LoopDevice, Stack, Tmpfs, Volume
from pgstrata.spec.units import render_size
from pgstrata.stack.safety import refuse_or_allow
from pgstrata.trial.site import Site
from pgstrata.workload.pgbench import ROW_BYTES_PER_SCALE

LEAST_FREE_SHARE = 0.10
"""A filesystem that is nearly full behaves unlike itself, and a full one harms others."""

CLUSTER_BYTES = 1_200_000_000
"""An empty cluster, and WAL up to the default max_wal_size of 1 GB."""

GROWTH = 1.5
"""Bloat, history and copies on write during a run, on top of the tables as loaded."""


@dataclass(frozen=True)
class Unsupported:
    """A stack that this host cannot build, and how it could."""

    stack: str
    reason: str
    hint: str


def find_unsupported(host: Host, campaign: Campaign) -> tuple[Unsupported, ...]:
    """Stacks whose capabilities this host lacks; PreflightError when that leaves none."""
    found = []
    for stack in campaign.stacks:
        lacking = missing(host, required_for(stack))
        if lacking:
            reason = "; ".join(one.text for one in lacking)
            found.append(Unsupported(stack.name, reason, "; ".join(dict.fromkeys(one.hint for one in lacking))))
    if len(found) == len(campaign.stacks):
        first = found[0]
        others = f" (and {len(found) - 1} more stacks)" if len(found) > 1 else ""
        raise PreflightError(
            f"{host.name} cannot build any stack of the campaign: {first.stack}: {first.reason}{others}",
            hint=first.hint or "pgstrata doctor",
        )
    return tuple(found)


def run_preflight(site: Site, stacks: tuple[Stack, ...]) -> tuple[str, ...]:
    """Refuses unsafe devices and too little space for those stacks; returns what the user should know."""
    for id_ in sorted({id_ for stack in stacks for id_ in _disks(stack)}):
        refuse_or_allow(site.host, id_, site.campaign.erase)
    _require_space(site, stacks)
    return tuple(_notices(site))


def volume_bytes(campaign: Campaign) -> int:
    """What the data of the largest scale takes on a volume during a run, generously."""
    return round(CLUSTER_BYTES + GROWTH * ROW_BYTES_PER_SCALE * max(campaign.workload.scale))


def _disks(stack: Stack) -> Iterator[str]:
    for volume in stack.volumes.values():
        if volume.needs_device and isinstance(volume.device, DiskDevice):
            yield from volume.device.ids


def _require_space(site: Site, stacks: tuple[Stack, ...]) -> None:
    """Loop files, golden copies, tmpfs and existing directories, each against what is free where they go."""
    campaign, host = site.campaign, site.host
    on_loops = [_loop_bytes(campaign, stack) for stack in stacks]
    # One stack stands at a time, unless they are kept.
    wanted = sum(on_loops) if campaign.runs.load == "keep" else max(on_loops, default=0)
    if campaign.runs.load == "copy":
        wanted += sum(CLUSTER_BYTES + ROW_BYTES_PER_SCALE * scale for scale in campaign.workload.scale)
    if wanted:
        _require_free(host, site.scratch, wanted, "the loop files and golden copies", "--scratch DIR on a larger disk")
    for volume in (v for stack in stacks for v in stack.volumes.values()):
        if isinstance(volume.fs, Existing):
            _require_free(host, volume.fs.path, volume_bytes(campaign), "the database", "name a larger one")
        if isinstance(volume.fs, Tmpfs):
            _require_memory(host, volume_bytes(campaign))


def _loop_bytes(campaign: Campaign, stack: Stack) -> int:
    """Sparse files take what is written; copies on several devices are counted as often as there are devices."""
    total = 0
    for volume in stack.volumes.values():
        if volume.needs_device and isinstance(volume.device, LoopDevice):
            total += min(volume_bytes(campaign) * _copies(volume), _sum_of_files(campaign, volume))
    return total


def _sum_of_files(campaign: Campaign, volume: Volume) -> int:
    assert isinstance(volume.device, LoopDevice)
    size = volume.device.size
    return volume.device.count * (size if size is not None else volume_bytes(campaign))


def _copies(volume: Volume) -> int:
    assert isinstance(volume.device, LoopDevice)
    return 2 if volume.device.count > 1 else 1


def _require_free(host: Host, path: str, wanted_bytes: int, what: str, hint: str) -> None:
    place = _nearest_existing(host, path)
    space = host.space(place)
    least = round(space.total_bytes * LEAST_FREE_SHARE)
    if space.free_bytes < wanted_bytes + least:
        raise PreflightError(
            f"too little space at {path} on {host.name}: {what} take about {render_size(wanted_bytes)}, "
            f"{render_size(space.free_bytes)} of {render_size(space.total_bytes)} are free and "
            f"{100 * LEAST_FREE_SHARE:.0f} % must stay so",
            hint=f"{hint}, or a smaller scale",
        )


def _nearest_existing(host: Host, path: str) -> str:
    place = PurePosixPath(path)
    while host.status(str(place)) is None and place != place.parent:
        place = place.parent
    return str(place)


def _require_memory(host: Host, wanted_bytes: int) -> None:
    available = read_memory(host).get("MemAvailable", 0)
    if available < wanted_bytes:
        raise PreflightError(
            f"too little memory on {host.name} for tmpfs: the database takes about {render_size(wanted_bytes)}, "
            f"{render_size(available)} are available",
            hint="leave tmpfs out, or a smaller scale",
        )


def _notices(site: Site) -> Iterator[str]:
    busy = [process.text for process in read_busy(site.host)]
    if busy:
        yield f"warning: others are busy on {site.host.name} and will disturb the figures: {', '.join(busy[:5])}"
    servers = read_servers(site.host)
    if servers:
        yield f"warning: {len(servers)} other PostgreSQL servers run on {site.host.name}"
    if not site.as_root:
        yield "not root: caches are not dropped before runs"
