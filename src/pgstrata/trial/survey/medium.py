"""The medium of a campaign: its baseline whenever a run begins or goes on, and its flushes before each block."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Literal

from pgstrata.host.protocol import Host, command
from pgstrata.record.recorder import CampaignDirectory, utc_now
from pgstrata.record.schema import MediumRecord
from pgstrata.spec.layers.kind import MEMORY
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
