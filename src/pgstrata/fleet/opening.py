"""From a campaign whose hosts are a Dask cluster to an executor and hosts that trials are submitted to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pgstrata.errors import UsageError
from pgstrata.fleet.clusters import connected, described_workers
from pgstrata.fleet.machines import check_versions, machines_of, notices
from pgstrata.fleet.messages import SessionAsked, describe_here
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.dask_cluster import parse_cluster
from pgstrata.spec.files import BUILTIN_SCRIPTS
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.submitted import Submitted

if TYPE_CHECKING:
    from pgstrata.fleet.fleet import Fleet


@contextmanager
def opened_cluster(
    campaign: Campaign, directory: CampaignDirectory, tell: Tell, interruption: Interruption, *, made_up: bool
) -> Iterator[tuple[Fleet, dict[str, Submitted]]]:
    """Every machine of the cluster with a session open. PreflightError, with nothing changed, when it cannot run."""
    refuse_own_files(campaign)
    with connected(parse_cluster(campaign.hosts[0])) as client:
        from pgstrata.fleet.fleet import opened_fleet

        with interruption.waiting():
            workers, here = described_workers(client), describe_here()
        check_versions(workers, here)
        machines = machines_of(workers)
        for line in notices(workers, machines, here):
            tell(Notice(line))
        token = hashlib.sha256(f"{here.machine}:{directory.path.resolve()}".encode()).hexdigest()[:12]

        def asked(host: str) -> SessionAsked:
            return SessionAsked(token=token, host=host, campaign=campaign, made_up=made_up)

        named = {machine.name: machine for machine in machines}
        with opened_fleet(client, named, asked, directory, tell, interruption) as opened:
            yield opened


def refuse_own_files(campaign: Campaign) -> None:
    """UsageError where trials need files of this machine: text alone travels to workers."""
    workload = campaign.workload
    files = [script for script in workload.script if script not in BUILTIN_SCRIPTS]
    files += [path for path in (workload.sql, workload.pg_restore) if path is not None]
    files += [s.postgresql.postgresql_conf for s in campaign.stacks if s.postgresql.postgresql_conf]
    if files:
        raise UsageError(
            f"the campaign has a file of its own, {files[0]}, which is not sent to workers of Dask",
            hint="list the hosts: hosts: [ssh://...], to which files are sent",
        )
