"""Looks a host over for a campaign: what can be built there, with which PostgreSQL, where. Changes nothing."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from pgstrata.errors import PreflightError, UsageError, all_at_once
from pgstrata.host.capabilities import DROP_CACHES, refused_write
from pgstrata.host.facts.gather import gather
from pgstrata.host.facts.modelled import read_modelled
from pgstrata.host.protocol import Host, command
from pgstrata.postgres.binaries import Installation, choose, discover
from pgstrata.postgres.named import named_installation
from pgstrata.postgres.settings import GivenConf, take_over
from pgstrata.postgres.user import planned_installation, readable_installation, run_user, server_user
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.stack import Postgres, Stack
from pgstrata.stack.network import needs_relay
from pgstrata.stack.preflight import Unsupported
from pgstrata.stack.sizing import loop_size_bytes
from pgstrata.trial.steps.facts import describe_medium
from pgstrata.trial.survey.host_survey import Site, site_token
from pgstrata.trial.survey.preflight import loaded_bytes

REMOTE_SCRATCH = "/var/tmp"


def survey(host: Host, campaign: Campaign, out: Path) -> Site:
    """The site as it is: nothing is made, the server user may be missing and the programs closed to it."""
    uid = int(host.run(command("id", "-u")).stdout)
    scratch = campaign.scratch or (str(out.resolve() / "scratch") if host.name == "local" else REMOTE_SCRATCH)
    # The kernel shows backing files and mount points without links; undo and attestation find ours by them.
    scratch, state = _without_links(host, scratch), _without_links(host, host.state_directory())
    modelled = read_modelled(host)
    installations, unserved = _installations(host, campaign, as_root=uid == 0)
    return Site(
        host=host,
        campaign=campaign,
        token=site_token(f"{host.name}:{out.resolve()}"),
        scratch=scratch,
        mount_root=f"{state}/mount" if uid == 0 else None,
        user=server_user(host),
        uid=uid,
        loop_size_bytes=loop_size_bytes(campaign, loaded_bytes(campaign)),
        installations=installations,
        unserved=unserved,
        given_conf={s.name: _given_conf(s) for s in campaign.stacks if s.postgresql.postgresql_conf},
        medium=describe_medium(host, campaign, scratch, modelled),
        database_digest=_digest(campaign.workload.sql or campaign.workload.pg_restore),
        facts=gather(host),
        caches_kept=caches_kept(host, uid),
        modelled=modelled,
        relayed=needs_relay(host, campaign.stacks),
    )


def caches_kept(host: Host, uid: int) -> str:
    """Root may be refused it, as in a container whose /proc/sys is read-only."""
    if uid != 0:
        return "that takes root"
    refused = refused_write(host, DROP_CACHES)
    return f"{DROP_CACHES} cannot be written ({refused})" if refused else ""


def open_site(site: Site) -> Site:
    """The site made ready: the server user exists and can read the programs."""
    user = run_user(site.host)
    ready = {name: readable_installation(site.host, found, user) for name, found in site.installations.items()}
    elsewhere = {name: open_site(far) for name, far in site.elsewhere.items()}
    return replace(site, user=user, installations=ready, elsewhere=elsewhere)


def planned_site(site: Site) -> Site:
    """The site as `open_site` will make it, by what can be seen from outside; makes nothing."""
    ready = {name: planned_installation(site.host, found, site.user) for name, found in site.installations.items()}
    elsewhere = {name: planned_site(far) for name, far in site.elsewhere.items()}
    return replace(site, installations=ready, elsewhere=elsewhere)


def _without_links(host: Host, path: str) -> str:
    """Return where a path leads to on the host; it need not be there yet."""
    return host.run(command("readlink", "--canonicalize-missing", path)).stdout.strip()


def _installations(
    host: Host, campaign: Campaign, *, as_root: bool
) -> tuple[dict[str, Installation], dict[str, Unsupported]]:
    """By stack, and which stacks' cannot be had; PreflightError where that is none of them."""
    found = discover(host)

    @cache
    def chosen(
        installation: str | None, major: int | None, source: Literal["system", "embedded"] | None
    ) -> Installation:
        spec = Postgres(installation=installation, major=major, source=source)
        return named_installation(host, spec, found, as_root=as_root) if installation else choose(found, spec)

    had: dict[str, Installation] = {}
    refused: dict[str, PreflightError] = {}
    for stack in campaign.stacks:
        asked = stack.postgresql
        try:
            had[stack.name] = chosen(asked.installation, asked.major, asked.source)
        except PreflightError as error:
            refused[stack.name] = error
    if not had:
        raise all_at_once(tuple(refused.values()))
    return had, {name: Unsupported(name, error.message, (error.hint,)) for name, error in refused.items()}


def _digest(path: str | None) -> str:
    """Digest of the dump that is loaded; in directory format, of its files and their names."""
    if path is None:
        return ""
    root = Path(path)
    try:
        if not root.is_dir():
            return _file_digest(root)
        files = sorted(file for file in root.iterdir() if file.is_file())
        lines = (f"{file.name} {_file_digest(file)}\n" for file in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    except OSError as error:
        raise UsageError(f"cannot read {path}, which is to be loaded: {error.strerror}", hint=f"ls -l {path}") from None


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _given_conf(stack: Stack) -> GivenConf:
    path = Path(stack.postgresql.postgresql_conf or "")
    try:
        return take_over(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"postgresql_conf of stack {stack.name}: {path}: byte {error.start} is not UTF-8",
            hint=f"iconv --to-code UTF-8 {path}",
        ) from None
    except OSError as error:
        raise UsageError(
            f"postgresql_conf of stack {stack.name}: {path}: {error.strerror}", hint=f"ls -l {path}"
        ) from error
