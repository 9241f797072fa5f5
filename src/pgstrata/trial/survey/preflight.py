"""Checks before anything is changed, and what the user should know before it matters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgstrata.errors import PreflightError, UsageError, all_at_once
from pgstrata.host.capabilities import lacking_of
from pgstrata.host.facts.activity import read_servers, render_servers
from pgstrata.host.facts.gather import BUSY, NOBODY
from pgstrata.host.protocol import Command, Host
from pgstrata.postgres.binaries import Installation
from pgstrata.postgres.settings import ask_settings, refuse_large_buffers, refuse_together
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.units import render_size
from pgstrata.spec.workload import Cell
from pgstrata.stack.preflight import Preflight, Unsupported, check_campaign, existing_parent, render_hints
from pgstrata.trial.steps.pooler import connections_of
from pgstrata.trial.survey.estimate import ASSUMED_TPS, ASSUMED_TRANSACTIONS_S, CAPACITY_STEPS
from pgstrata.trial.survey.host_survey import Site
from pgstrata.workload.driver import driver_of

DEFAULT_CONNECTIONS = 100
"""Value of max_connections that initdb writes."""
OWN_CONNECTIONS = 2
"""Beside the clients of the load: the probe, and statements between."""
LOADED_PER_DUMPED = 3
"""A database with its indexes takes about three times the size of its dump, and more if the dump is well compressed."""


def run_preflight(site: Site) -> Preflight:
    """PreflightError when the campaign must not start: unsafe device, too little space, no stack that can be built."""
    found = check_campaign(
        site.host,
        site.campaign,
        scratch=site.scratch,
        server_user=site.user if site.as_root and _user_exists(site, site.user) else None,
        loaded_bytes=loaded_bytes(site.campaign),
        unserved=site.unserved,
    )
    require_some(site, found.unsupported)
    return found


def require_driver(site: Site) -> None:
    """PreflightError if the host that runs it lacks what the load's driver needs."""
    workload, host = site.campaign.workload, site.driving.host
    driver = driver_of(workload)
    lacking = lacking_of(host, driver.capabilities(workload))
    if lacking:
        raise PreflightError(
            f"the driver {driver.name} cannot run on {host.name}: {'; '.join(one.reason for one in lacking)}",
            hint=render_hints(hint for one in lacking for hint in (one.install, *one.further)),
        )


def require_some(site: Site, unsupported: Sequence[Unsupported]) -> None:
    """PreflightError when no stack of the campaign is left."""
    if len(unsupported) < len(site.campaign.stacks):
        return
    stacks: dict[str, list[str]] = {}
    for one in unsupported:
        stacks.setdefault(one.reason, []).append(one.stack)
    reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in stacks.items())
    raise PreflightError(
        f"no stack of the campaign can be built on {site.host.name}: {reasons}",
        hint=render_hints(hint for one in unsupported for hint in one.hints) or "pgstrata doctor",
    )


ROOT, NOBODY_USER = "root", "nobody"
"""No server runs as root, so none can be asked whether it would."""


def asking_user(site: Site) -> str:
    """Return the OS user that asks the servers' programs for a plan, which changes nothing: the servers' user, or for
    root another unprivileged one as long as that does not exist. Root, if neither can run all programs."""
    if not site.as_root:
        return site.user
    programs = sorted({one.program("postgres") for one in site.installations.values()})
    for user in (site.user, NOBODY_USER):
        asked = (Command(("test", "-x", program), user=user, cwd="/") for program in programs)
        if _user_exists(site, user) and all(site.host.run(one, check=False).exit_code == 0 for one in asked):
            return user
    return ROOT


def check_servers(site: Site, stacks: Sequence[str], user: str) -> tuple[Unsupported, ...]:
    """Return those of the stacks whose server cannot be as asked: a setting that this build does not have or a value
    that it refuses, or fewer connections than the workload opens. The programs are asked, as OS user `user`."""
    workload = site.campaign.workload
    found: dict[tuple[str, tuple[tuple[str, str], ...], int, int], tuple[PreflightError, ...]] = {}
    unusable = []
    for name in stacks:
        installation = site.installations[name]
        settings = site.settings_of(site.campaign.stack(name))
        further = connections_of(site.campaign.stack(name))
        client_major = site.driving.installations[name].client_major
        what = (installation.bin_directory, tuple(sorted(settings.items())), further, client_major)
        if what not in found:
            found[what] = (
                *driver_of(workload).refusals(workload, client_major),
                *_problems(site, installation, settings, user, OWN_CONNECTIONS + further),
            )
        if problems := found[what]:
            unusable.append(Unsupported(name, all_at_once(problems).message, tuple(p.hint for p in problems)))
    return tuple(unusable)


def _problems(
    site: Site, installation: Installation, settings: Mapping[str, str], user: str, further: int
) -> Iterator[PreflightError]:
    """All that is wrong with a server; `further` connections are opened beside those of the load's clients."""
    checked = ask_settings(site.host, installation, user, settings)
    yield from checked.refusals
    try:
        refuse_large_buffers(site.host, installation, checked.normalised)
        if not checked.refusals and user != ROOT:
            refuse_together(site.host, installation, user, settings)
    except PreflightError as refused:
        yield refused
    if "max_connections" in settings and "max_connections" not in checked.normalised:
        return  # refused, and said above
    allowed = int(checked.normalised.get("max_connections", DEFAULT_CONNECTIONS))
    wanted = max(cell.clients for cell in site.campaign.workload.cells) + further
    if wanted > allowed:
        yield PreflightError(
            f"max_connections = {allowed} is too few: the workload and its probe open {wanted}",
            hint=f"max_connections: {wanted} among the settings, or fewer workload.clients",
        )


def _user_exists(site: Site, user: str) -> bool:
    return any(line.startswith(f"{user}:") for line in site.host.read_text("/etc/passwd").splitlines())


def loaded_bytes(campaign: Campaign) -> int | None:
    """Return the bytes that the user's own database will take; None when the driver loads its tables."""
    path = campaign.workload.sql or campaign.workload.pg_restore
    if path is None:
        return None
    try:
        root = Path(path)
        files = [file for file in root.iterdir() if file.is_file()] if root.is_dir() else [root]
        return LOADED_PER_DUMPED * sum(file.stat().st_size for file in files)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}, which is to be loaded: {error.strerror}", hint=f"ls -l {path}"
        ) from error


def notices(site: Site) -> Iterator[str]:
    """Yield what disturbs the figures or was left out."""
    busy = site.facts.told.get(BUSY, NOBODY)
    if busy != NOBODY:
        yield f"warning: others are busy on {site.host.name} and will disturb the figures: {busy}"
    servers = read_servers(site.host)
    if servers:
        yield f"warning: other PostgreSQL servers run on {site.host.name}: {render_servers(servers)}"
    for name, given in site.given_conf.items():
        if given.left_out:
            yield f"left out of the postgresql.conf of {name}: {', '.join(given.left_out)} (`pgstrata plan` says why)"
    if site.caches_kept:
        yield f"caches are not dropped before runs on {site.host.name}: {site.caches_kept}"


def render_unsupported(unsupported: Unsupported) -> str:
    """One line: which stack, what is missing, what brings it."""
    hint = f" ({unsupported.hint})" if unsupported.hint else ""
    return f"{render_lacking(unsupported)}{hint}"


def render_lacking(unsupported: Unsupported) -> str:
    """Return which stack cannot be built, and what is missing."""
    return f"{unsupported.stack} cannot be built here: {unsupported.reason}"


# ---------------------------------------------------------------- room for the record

SECOND_BYTES = 4096
RUN_BYTES = 64 * 1024
LOG_LINE_BYTES = 48
MOST_PAIRS = 60
"""Pairs that an adaptive campaign confirms with at most."""


@dataclass(frozen=True)
class _Runs:
    """`count` like runs; `rate_tps` is that of their log, 0 where they have none."""

    count: int
    duration_s: float
    rate_tps: float

    @property
    def measured_s(self) -> float:
        return self.count * self.duration_s

    @property
    def size_bytes(self) -> float:
        return self.count * RUN_BYTES + self.measured_s * (SECOND_BYTES + LOG_LINE_BYTES * self.rate_tps)


def record_bytes(campaign: Campaign) -> int:
    """Everything that all trials leave in the campaign directory, as far as the budget lets them run.

    A closed loop is taken to carry 1000 transactions a second, which matters only where it is logged.
    """
    runs = tuple(_all_runs(campaign))
    whole = sum(r.size_bytes for r in runs)
    measured_s, budget_s = sum(r.measured_s for r in runs), campaign.runs.budget
    return round(whole if budget_s is None or measured_s <= budget_s else whole * budget_s / measured_s)


def _all_runs(campaign: Campaign) -> Iterator[_Runs]:
    """By stage; every stack is counted in every block."""
    stacks, runs, latency, soak = len(campaign.stacks), campaign.runs, campaign.latency, campaign.soak
    pairs = MOST_PAIRS if runs.blocks is None and stacks > 1 else 0
    for cell in campaign.workload.cells:
        yield _runs(campaign, stacks * (runs.blocks or runs.max_blocks) + 2 * pairs, cell)
        for share in latency.rates if latency is not None else ():
            yield _runs(campaign, stacks * (latency.blocks if latency else 0), _at(cell, share))
        if latency is not None and latency.objective_ms is not None:
            yield _runs(campaign, stacks * CAPACITY_STEPS, _at(cell, 1.0))
    if soak is not None:
        for cell in campaign.workload.soaked_cells:
            yield _runs(campaign, stacks * soak.runs, cell, soak.duration)


def _at(cell: Cell, share: float) -> Cell:
    return cell.model_copy(update={"rate_tps": share * ASSUMED_TPS})


def _runs(campaign: Campaign, count: int, cell: Cell, duration_s: float | None = None) -> _Runs:
    workload = campaign.workload
    long_s = duration_s or workload.cell_duration_s(cell) or ASSUMED_TRANSACTIONS_S
    tps = cell.rate_tps or ASSUMED_TPS
    if workload.transactions is not None and duration_s is None:
        tps = workload.transactions * cell.clients / long_s
    held = workload.sampling_rate if workload.log == "sampled" else 1.0
    return _Runs(count, long_s, tps * held if workload.logs(cell) else 0.0)


def check_record_space(host: Host, campaign: Campaign, out: Path, scratch: str, scratch_bytes: int) -> None:
    """PreflightError when the record, and the scratch files where they lie on the same filesystem, would not fit.

    What finished trials of a resumed campaign hold is not needed a second time.
    """
    recorded = sum(path.stat().st_size for path in (out / "trials").rglob("*") if path.is_file())
    needed = max(0, record_bytes(campaign) - recorded)
    shared = host.name == "local" and Path(existing_parent(host, scratch)).stat().st_dev == out.stat().st_dev
    beside = scratch_bytes if shared else 0
    free = shutil.disk_usage(out).free
    if needed + beside > free:
        also = f", and {render_size(beside)} for loop files and golden copies on the same filesystem" if beside else ""
        raise PreflightError(
            f"too little space for the record in {out}: up to about {render_size(needed)} are needed{also}; "
            f"{render_size(free)} are free",
            hint="name another folder with --out DIR, log less (workload.log), or set runs.budget",
        )
