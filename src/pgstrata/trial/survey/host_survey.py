"""Knowledge that a campaign has of its host: found out once, used by every trial. Also its scratch folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pgstrata.errors import PreflightError
from pgstrata.host.delivery import folder_problems, trusted
from pgstrata.host.facts.gather import Facts
from pgstrata.host.facts.modelled import ModelledDisk
from pgstrata.host.protocol import Host
from pgstrata.postgres.binaries import Installation
from pgstrata.postgres.settings import GivenConf
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.stack import Stack
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import PlanContext
from pgstrata.stack.preflight import Unsupported
from pgstrata.stack.undo import RemoveEmptyFolder

DATABASE = "postgres"
"""Name of the database under test."""


@dataclass(frozen=True)
class Site:
    """A host that was looked over for a campaign.

    `token` makes the names of this campaign differ from another one's on the same host. `installations` and
    `given_conf` (what is taken over of a stack's own postgresql.conf) are by name of the stack.
    """

    host: Host
    campaign: Campaign
    token: str
    scratch: str
    mount_root: str | None
    user: str
    uid: int
    """Number of the OS user that pgstrata runs as over there."""
    loop_size_bytes: int
    installations: Mapping[str, Installation]
    given_conf: Mapping[str, GivenConf]
    medium: str
    database_digest: str
    """SHA-256 of the user's own file to load; empty where the driver makes the tables."""
    facts: Facts
    """Facts of the host when it was looked over."""
    caches_kept: str = ""
    """Reason why the caches of the host are not dropped before runs; empty if they are."""
    modelled: Mapping[str, ModelledDisk] = field(default_factory=dict)
    """Disks of the host that have the timing of a modelled medium, by stable id."""
    unserved: Mapping[str, Unsupported] = field(default_factory=dict)
    """Stacks whose server this host does not have, or a host of their nodes: by name, and not among `installations`."""
    relayed: bool = False
    """True if packets between nodes are held back by a relay, because the kernel does not do it."""
    address: str = ""
    """By which the other hosts reach this one; empty where there are none."""
    elsewhere: Mapping[str, Site] = field(default_factory=dict)
    """Hosts of nodes that are not on this one, and of the load's client, by their names: with their part of the
    campaign."""

    @property
    def sites(self) -> Mapping[str, Site]:
        """All of them by name; this one's is empty."""
        return {"": self, **self.elsewhere}

    @property
    def driving(self) -> Site:
        """The host that the load's program runs on."""
        return self.sites[self.campaign.client]

    def sites_of(self, trial: Trial) -> Mapping[str, Site]:
        """Return the sites that the nodes of a trial and its client are on."""
        far = (*self.campaign.stack(trial.stack).far_hosts, self.campaign.client)
        return {name: site for name, site in self.sites.items() if not name or name in far}

    @property
    def as_root(self) -> bool:
        return self.uid == 0

    def context(self, trial: Trial) -> PlanContext:
        """Return where the parts of a trial go and what they are called."""
        return self.context_named(trial.id)

    def context_named(self, name: str) -> PlanContext:
        return PlanContext(
            trial_id=f"{name}-{self.token}",
            scratch=self.scratch,
            loop_size_bytes=self.loop_size_bytes,
            owner=self.user if self.as_root else None,
            erase=self.campaign.erase,
            mount_root=self.mount_root,
            modelled=self.modelled,
            relayed=self.relayed,
            address=self.address,
            elsewhere={host: site.context_named(name) for host, site in self.elsewhere.items()},
        )

    def settings_of(self, stack: Stack) -> dict[str, str]:
        """Every setting of a stack's server: of its file what is taken over, and on top what the stack sets."""
        given = self.given_conf.get(stack.name)
        return {**(given.settings if given else {}), **stack.postgresql.settings}

    @property
    def golden_directory(self) -> str:
        """Folder of all golden copies; `pgstrata clean` removes it as a whole."""
        return f"{self.scratch.rstrip('/')}/pgstrata-golden-{self.token}"


def site_token(directory: str) -> str:
    """Six characters that differ between campaign directories."""
    return hashlib.sha256(directory.encode()).hexdigest()[:6]


def check_scratch(site: Site) -> None:
    """PreflightError when others may change the scratch folder or a folder above it, and so replace what root made.

    Without root the check is unnecessary.
    """
    if not site.as_root:
        return
    for folder, problem in folder_problems(site.host, site.scratch, trusted(site.host, os.environ)):
        raise PreflightError(
            f"scratch folder {site.scratch} on {site.host.name} is not safe: {folder} {problem}",
            hint=f"name a folder of root's with --scratch, or: chown root {folder} && chmod go-w {folder}",
        )


def make_scratch(host: Host, scratch: str, journal: Journal) -> None:
    """Makes the folder and those above it that are missing, and journals each by its device and inode.

    Only afterwards, when these are known: a folder that a kill leaves in between is empty. A folder that was there
    before, such as /var/tmp, is never removed.
    """
    folders = [str(folder) for folder in (*reversed(PurePosixPath(scratch).parents), PurePosixPath(scratch))]
    for folder in [folder for folder in folders if host.status(folder) is None]:
        try:
            host.make_directory(folder, new=True)
        except FileExistsError:  # made by another run meanwhile
            continue
        made = host.status(folder, follow=False)
        if made is not None:
            journal.register(RemoveEmptyFolder(path=folder, device=made.device, inode=made.inode))
