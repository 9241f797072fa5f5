"""The baseline of a campaign's medium: measured and recorded whenever a run begins or goes on."""

from __future__ import annotations

import secrets
from dataclasses import asdict

from pgstrata.host.protocol import Host, command
from pgstrata.record.recorder import CampaignDirectory, utc_now
from pgstrata.record.schema import MediumRecord
from pgstrata.spec.layers.kind import MEMORY
from pgstrata.stack.build import failures
from pgstrata.stack.journal import Journal
from pgstrata.stack.undo import RemovePath, StopProcesses
from pgstrata.trial.scratch import make_scratch
from pgstrata.trial.site import Site
from pgstrata.workload.medium import MediumBaseline, measure_medium

LONGEST_S = 2.0
"""For one rate; pg_test_fsync takes nine times as long."""
SHARE_OF_RUN = 1 / 30
"""Of the length of a run: no rate of a baseline is measured for longer."""
SHORTEST_RUN_S = 10.0
"""Shorter runs try something out and measure nothing."""


def measure_place(host: Host, place: str, server_binaries: str | None, *, seconds: float = LONGEST_S) -> MediumBaseline:
    """The baseline of what a folder lies on. A missing folder is made; all that is written is journaled and removed."""
    name = f"medium-{secrets.token_hex(4)}"
    folder = f"{place.rstrip('/')}/pgstrata-{name}"
    journal = Journal.create(host, name)
    try:
        make_scratch(host, place, journal)
        uid = int(host.run(command("id", "-u")).stdout)
        journal.register(RemovePath(path=folder, uid=uid), StopProcesses(marker=name))
        host.mark(name)
        host.make_directory(folder, mode=0o700, new=True)
        found = measure_medium(host, folder, server_binaries, seconds=seconds)
    finally:
        left = failures(journal.undo_all())
    return found if not left else found.lacking(f"could not be undone: {'; '.join(left)}; run `pgstrata clean`")


def record_baseline(site: Site, directory: CampaignDirectory) -> None:
    """Measures the medium of a campaign's scratch folder before it goes on; nothing where all stacks lie in memory, or
    where runs are too short to tell anything."""
    run_s = site.campaign.workload.duration_s or LONGEST_S / SHARE_OF_RUN
    if site.medium == MEMORY or run_s < SHORTEST_RUN_S:
        return
    seconds = min(LONGEST_S, SHARE_OF_RUN * run_s)
    binaries = next(iter(site.installations.values())).bin_directory
    found = measure_place(site.host, site.scratch, binaries, seconds=seconds)
    blocks = {trial.trial.block for trial in directory.finished() if trial.verdict.status != "unsupported"}
    before = max(blocks, default=-1) + 1
    directory.record_medium(
        MediumRecord(at=utc_now(), before_block=before, medium=site.medium, seconds=seconds, **asdict(found))
    )
