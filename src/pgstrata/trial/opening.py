"""From a host to a runner that is ready: leftovers cleaned, locks taken, preflight passed, facts looked up once."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from pgstrata.errors import PgstrataError, PreflightError, RecordError
from pgstrata.host.facts.gather import gather
from pgstrata.host.protocol import Host, HostLost
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign, part_of_campaign
from pgstrata.spec.expand import block_trials
from pgstrata.stack.journal import clean, journal_directory
from pgstrata.stack.preflight import Unsupported
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.interruption import HostInterruption, Interruption
from pgstrata.trial.outcome import record_without_run
from pgstrata.trial.runner import PerformanceRunner
from pgstrata.trial.survey.host_survey import Site, check_scratch
from pgstrata.trial.survey.media_range import deliver_media, record_baseline, with_media_range
from pgstrata.trial.survey.preflight import (
    check_record_space,
    check_servers,
    notices,
    render_unsupported,
    require_driver,
    require_some,
)
from pgstrata.trial.survey.remote_nodes import add_remote_nodes, far_notices, run_preflights
from pgstrata.trial.survey.side_by_side import choose_slices
from pgstrata.trial.survey.survey import open_site, survey
from pgstrata.trial.undo_errors import forget_undo_errors, note_undo_errors

T = TypeVar("T")


@dataclass
class ParallelHosts:
    """Hosts that are there: one that is lost is taken out, and told."""

    hosts: dict[str, tuple[Host, HostInterruption]]
    tell: Tell
    interruption: Interruption

    @classmethod
    def of(cls, hosts: Iterable[Host], tell: Tell, interruption: Interruption) -> ParallelHosts:
        found = {}
        for host in hosts:
            own = interruption.of_host(host.end_waits)
            host.interruptible(own.waiting)
            found[host.name] = (host, own)
        return cls(found, tell, interruption)

    def each(self, work: Callable[[Host, HostInterruption], T]) -> dict[str, T]:
        """Return the results of `work` by host, once it has ended on all of them. The first error is raised, a signal
        before any; HostLost where no host is left."""
        with ThreadPoolExecutor(len(self.hosts), "pgstrata opening") as executor:
            futures = {name: executor.submit(work, host, own) for name, (host, own) in self.hosts.items()}
            try:
                with self.interruption.waiting():
                    wait(futures.values())
            except BaseException:
                self.interruption.await_ends(futures.values())
                raise
        return self._taken(futures)

    def _taken(self, futures: dict[str, Future[T]]) -> dict[str, T]:
        lost: list[HostLost] = []
        errors: list[BaseException] = []
        for name, future in futures.items():
            error = future.exception()
            if isinstance(error, HostLost):
                lost.append(error)
                del self.hosts[name]
                self.tell(Notice(f"{name} is left out until the campaign is resumed: {error.message}"))
            elif error is not None:
                errors.append(error)
        for of_another in errors[1:]:
            if isinstance(of_another, PgstrataError):
                self.tell(Notice(of_another.message))
        if errors:
            raise errors[0]
        if not self.hosts:
            raise lost[0]
        return {name: futures[name].result() for name in self.hosts}


# ---------------------------------------------------------------- opening


@contextmanager
def performance_runner(
    host: Host,
    campaign: Campaign,
    directory: CampaignDirectory,
    tell: Tell,
    interruption: Interruption,
    far: Mapping[str, Host] = MappingProxyType({}),
) -> Iterator[tuple[PerformanceRunner, tuple[str, ...]]]:
    """A runner and the stacks that can be built; `far` are the other hosts of nodes of its clusters, by name.
    PreflightError, with nothing changed, when the campaign cannot run."""
    with ExitStack() as locked:
        for name, reached in {"": host, **far}.items():
            take_up_host(reached, interruption, tell, name)
            locked.enter_context(_locked(reached, part_of_campaign(campaign, name), directory))
        site = add_remote_nodes(survey(host, campaign, directory.path), far, directory.path)
        for one in site.sites.values():
            refuse_leftovers(one)
        one_of_several = host.name if campaign.hosts else ""
        forget_undo_errors(directory.path, one_of_several)
        for one in site.sites.values():
            check_scratch(one)
        require_driver(site)
        found = run_preflights(site)
        check_record_space(host, campaign, directory.path, site.scratch, found.scratch_bytes)
        for line in (*(line for one in site.sites.values() for line in notices(one)), *far_notices(site)):
            tell(Notice(line))
        site = open_site(site)
        unsupported = (*found.unsupported, *check_servers(site, _others(campaign, found.unsupported), site.user))
        require_some(site, unsupported)
        for stack in unsupported:
            tell(Notice(render_unsupported(stack)))
        stacks = _others(campaign, unsupported)
        if not campaign.hosts:
            record_unsupported(directory, unsupported)
        for one in site.sites.values():
            deliver_media(one)
        record_baseline(site, directory)
        site, beyond = with_media_range(site)
        for line in beyond:
            tell(Notice(line))
        begun = next((d for d in directory.decisions() if d.after_block == 0 and d.stage != "done"), None)
        chosen = choose_slices(site, stacks, found, begun)
        if chosen.refused:
            tell(Notice(f"whole runs instead of slices: {chosen.refused}"))
        runner = PerformanceRunner(site, interruption, chosen.slices)
        try:
            yield runner, stacks
        finally:
            lines = runner.close()
            for line in lines:
                tell(Notice(f"could not be undone: {line}; run `pgstrata clean`"))
            note_undo_errors(directory.path, lines, one_of_several)


@contextmanager
def performance_runners(
    hosts: Sequence[Host],
    campaign: Campaign,
    directory: CampaignDirectory,
    tell: Tell,
    interruption: Interruption,
) -> Iterator[tuple[dict[str, PerformanceRunner], tuple[str, ...]]]:
    """The same on several hosts at once, by their names. Also refused where two are one machine, or where one cannot
    build what the others can: blocks are complete within a host. One that is lost meanwhile is told and left out."""
    parallel = ParallelHosts.of(hosts, tell, interruption)
    _refuse_one_machine(parallel.each(lambda host, _: gather(host).checked["machine id"]))
    with ExitStack() as opened:
        kept = {name: opened.enter_context(ExitStack()) for name in parallel.hosts}

        def open_one(host: Host, own: HostInterruption) -> PerformanceRunner:
            opening = performance_runner(host, campaign, directory, _named(tell, host.name), own)
            try:
                runner, stacks = kept[host.name].enter_context(opening)
            except RecordError:
                raise  # of this machine
            except PreflightError as error:
                raise PreflightError(f"{host.name}: {error.message}", hint=error.hint) from error
            lacking = [s.name for s in campaign.stacks if s.name not in stacks]
            if lacking:
                raise PreflightError(
                    f"{host.name} cannot build {', '.join(lacking)}",
                    hint="leave the host out of hosts, or the stack out of stacks",
                )
            return runner

        yield parallel.each(open_one), tuple(s.name for s in campaign.stacks)


def _named(tell: Tell, host: str) -> Tell:
    """Hosts are opened side by side, so that a notice says of which it is."""
    return lambda event: tell(Notice(f"{host}: {event.text}") if isinstance(event, Notice) else event)


def _refuse_one_machine(machine_ids: Mapping[str, str]) -> None:
    machines: dict[str, str] = {}
    for name, machine in machine_ids.items():
        if machine in machines:
            raise PreflightError(
                f"{machines[machine]} and {name} are one machine", hint="leave one of them out of hosts"
            )
        machines[machine] = name


def _others(campaign: Campaign, unsupported: Sequence[Unsupported]) -> tuple[str, ...]:
    lacking = {u.stack for u in unsupported}
    return tuple(s.name for s in campaign.stacks if s.name not in lacking)


def take_up_host(host: Host, interruption: Interruption, tell: Tell, name: str = "") -> None:
    """Make waits on the host interruptible, undo what earlier runs left there, and tell it."""
    host.interruptible(interruption.waiting)
    for line in clean(host).lines:
        tell(Notice(f"left by earlier runs{f' on {name}' if name else ''}: {line}"))


def refuse_leftovers(site: Site) -> None:
    """PreflightError when trials of this campaign are still half-done: they would count as failed."""
    folder = journal_directory(site.host)
    if site.host.status(folder) is None:
        return
    own = [name for name in site.host.list_directory(folder) if name.endswith(f"-{site.token}.jsonl")]
    if own:
        raise PreflightError(
            f"an earlier run of this campaign could not be undone on {site.host.name}: {folder}/{own[0]}",
            hint=f"pgstrata clean --host {shlex.quote(site.host.name)}",
        )


def record_unsupported(directory: CampaignDirectory, unsupported: Sequence[Unsupported]) -> None:
    """A stack that this host cannot build is neither failed nor unknown: it is recorded with what is missing."""
    campaign = directory.campaign
    why = {u.stack: u for u in unsupported}
    finished = directory.finished()
    known = {t.trial.stack for t in finished if t.verdict.status == "unsupported"}
    ran = {t.id for t in finished}  # before the host lost what the stack needs
    for trial in block_trials(campaign, 0, tuple(s.name for s in campaign.stacks)):
        missing = why.get(trial.stack)
        if missing is None or trial.stack in known or trial.id in ran:
            continue
        record_without_run(directory, trial, "unsupported", missing.reason, missing.hint)


@contextmanager
def _locked(host: Host, campaign: Campaign, directory: CampaignDirectory) -> Iterator[None]:
    """Keeps a second pgstrata away from the real devices of this campaign, also between its trials."""
    taken: list[str] = []
    payload = f"process {os.getpid()} with {directory.path}"
    try:
        for id_ in sorted({id_ for stack in campaign.stacks for id_ in stack.device_ids}):
            name = f"device-{id_}"
            holder = host.try_lock(name, payload)
            if holder is not None:
                raise PreflightError(
                    f"device {id_} on {host.name} is being used by another pgstrata: {holder}",
                    hint="wait for it to end, or name another device",
                )
            taken.append(name)
        yield
    finally:
        for name in taken:
            with suppress(HostLost):  # its locks went with the connection
                host.unlock(name)
