"""Looks a host over for a campaign: what can be built there, with which PostgreSQL, where. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.host.protocol import Host, command
from pgstrata.postgres.binaries import Installation, choose, discover
from pgstrata.postgres.user import readable_installation, run_user, server_user
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.stack import Stack
from pgstrata.trial.site import Site, site_token

REMOTE_SCRATCH = "/var/tmp"
LEAST_LOOP_BYTES = 2 * 2**30
LOOP_BYTES_PER_SCALE = 48 * 2**20
"""Three times what pgbench's tables take: room for WAL, bloat and copies on write. The files are sparse."""


@dataclass(frozen=True)
class Unsupported:
    """A stack that this host cannot build, and how it could."""

    stack: str
    reason: str
    hint: str


def survey(host: Host, campaign: Campaign, out: Path) -> Site:
    """The site as `pgstrata plan` shows it: nothing is made, programs may not be readable for the server user yet."""
    return _site(host, campaign, out, server_user(host))


def open_site(host: Host, campaign: Campaign, out: Path) -> Site:
    """The site made ready: the server user exists and can read the programs."""
    site = _site(host, campaign, out, run_user(host))
    ready = {name: readable_installation(host, found, site.user) for name, found in site.installations.items()}
    host.make_directory(site.scratch)
    return Site(**{**vars(site), "installations": ready})


def _site(host: Host, campaign: Campaign, out: Path, user: str) -> Site:
    as_root = host.run(command("id", "-u")).stdout.strip() == "0"
    scratch = campaign.scratch or (str(out.resolve() / "scratch") if host.name == "local" else REMOTE_SCRATCH)
    return Site(
        host=host,
        campaign=campaign,
        token=site_token(f"{host.name}:{out.resolve()}"),
        scratch=scratch,
        mount_root=f"{host.state_directory()}/mount" if as_root else None,
        user=user,
        as_root=as_root,
        loop_size_bytes=max(LEAST_LOOP_BYTES, max(campaign.workload.scale) * LOOP_BYTES_PER_SCALE),
        installations=_installations(host, campaign),
        postgresql_conf={s.name: _conf(s) for s in campaign.stacks if s.postgresql.postgresql_conf},
        medium="",
    )


def _installations(host: Host, campaign: Campaign) -> dict[str, Installation]:
    """By stack; a PreflightError names the first that cannot be had."""
    found = discover(host)
    return {stack.name: choose(found, stack.postgresql) for stack in campaign.stacks}


def _conf(stack: Stack) -> str:
    path = Path(stack.postgresql.postgresql_conf or "")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"postgresql_conf of stack {stack.name}: {path}: {error.strerror}") from error
