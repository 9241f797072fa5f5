"""Opens the hosts of a campaign on a Dask cluster: an executor, and hosts that trials are submitted to.

A session is open on one worker of each machine. When that worker is lost, the trial goes to the next worker of the same
machine (or the same one, started again), which opens the session anew and undoes what was left there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pgstrata.errors import PgstrataError, PreflightError, UsageError
from pgstrata.fleet.clusters import connected
from pgstrata.fleet.messages import (
    Described,
    SessionAnswer,
    SessionAsked,
    TrialAsked,
    describe_here,
    parse_answer,
)
from pgstrata.fleet.work import Piece, Work, WorkersLost, working
from pgstrata.host.agent_schema import parsed
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import MediumRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.dask_cluster import parse_cluster
from pgstrata.spec.scripts import parse_scripts
from pgstrata.trial.events import Notice, Tell, TrialBegun
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.scheduling import ScheduledHost
from pgstrata.trial.undo_errors import forget_undo_errors, note_undo_errors

if TYPE_CHECKING:
    from pgstrata.fleet.cluster_backend import DataClient


@dataclass(frozen=True)
class Machine:
    """`workers` are the addresses of its workers: the first one is used, the others stand by."""

    name: str
    id: str
    workers: tuple[str, ...]


def machines_of(workers: Mapping[str, Described]) -> tuple[Machine, ...]:
    """Named as they name themselves; of two with one name, with the beginning of their machine ids."""
    addresses: dict[str, list[str]] = {}
    for address in sorted(workers):
        addresses.setdefault(workers[address].machine, []).append(address)
    names = {id_: workers[found[0]].hostname for id_, found in addresses.items()}
    ambiguous = {name for name in names.values() if list(names.values()).count(name) > 1}
    named = {id_: f"{name}-{id_[:6]}" if name in ambiguous else name for id_, name in names.items()}
    return tuple(Machine(named[id_], id_, tuple(addresses[id_])) for id_ in sorted(named, key=lambda id_: named[id_]))


def check_versions(workers: Mapping[str, Described], here: Described) -> None:
    """PreflightError for workers with another pgstrata: it might build, measure or record differently."""
    other = {w.hostname: w.pgstrata for w in workers.values() if w.pgstrata != here.pgstrata}
    if other:
        named = ", ".join(f"{host} has {version}" for host, version in sorted(other.items()))
        raise PreflightError(
            f"workers have another pgstrata than the {here.pgstrata} here: {named}",
            hint=f"pip install 'pgstrata[dask]=={here.pgstrata}' there, and start the workers again",
        )


def notices(workers: Mapping[str, Described], machines: Sequence[Machine], here: Described) -> list[str]:
    """Notices on the workers, before anything runs."""
    told = []
    for machine in machines:
        first = workers[machine.workers[0]]
        if len(machine.workers) > 1:
            told.append(
                f"{machine.name} has {len(machine.workers)} workers: one trial at a time runs there, "
                "the other workers stand by"
            )
        if first.uid != 0:
            told.append(f"{machine.name}: its worker is {first.user}, not root: stacks that need root cannot be built")
        if first.python != here.python:
            told.append(f"{machine.name} has Python {first.python}, here is {here.python}")
    return told


# ---------------------------------------------------------------- hosts of a campaign


@contextmanager
def opened_cluster(
    campaign: Campaign, directory: CampaignDirectory, tell: Tell, interruption: Interruption, *, fake: bool
) -> Iterator[tuple[Work, dict[str, ScheduledHost]]]:
    """Every machine of the cluster with a session open. PreflightError, with nothing changed, when it cannot run."""
    refuse_own_files(campaign)
    with connected(parse_cluster(campaign.hosts[0])) as client:
        from pgstrata.fleet.cluster_backend import described_workers

        with interruption.waiting():
            workers, here = described_workers(client), describe_here()
        check_versions(workers, here)
        machines = machines_of(workers)
        for line in notices(workers, machines, here):
            tell(Notice(line))
        token = hashlib.sha256(f"{here.machine}:{directory.path.resolve()}".encode()).hexdigest()[:12]

        def asked(host: str) -> SessionAsked:
            return SessionAsked(token=token, host=host, campaign=campaign, fake=fake)

        named = {machine.name: machine for machine in machines}
        with opened_sessions(client, workers, named, asked, directory, tell, interruption) as opened:
            yield opened


def refuse_own_files(campaign: Campaign) -> None:
    """UsageError where trials need files of this machine: text alone travels to workers."""
    workload = campaign.workload
    scripts = [script for text in workload.script for script in parse_scripts(text)]
    files = [script.name for script in scripts if not script.builtin]
    files += [path for path in (workload.sql, workload.pg_restore) if path is not None]
    files += [s.postgresql.postgresql_conf for s in campaign.stacks if s.postgresql.postgresql_conf]
    if files:
        raise UsageError(
            f"the campaign has a file of its own, {files[0]}, which is not sent to workers of Dask",
            hint="list the hosts: hosts: [ssh://...], to which files are sent",
        )


@contextmanager
def opened_sessions(
    client: DataClient,
    workers: Mapping[str, Described],
    machines: Mapping[str, Machine],
    asked: Callable[[str], SessionAsked],
    directory: CampaignDirectory,
    tell: Tell,
    interruption: Interruption,
) -> Iterator[tuple[Work, dict[str, ScheduledHost]]]:
    """Yield the executor and its hosts, every session open. PreflightError if a machine cannot build every stack."""
    from pgstrata.fleet.cluster_backend import ClusterBackend

    def tell_loss(piece: Piece) -> None:
        tell(Notice(f"{piece.affinity}: its worker was lost; what it ran begins anew there"))

    backend = ClusterBackend(client, workers, machines, tell=lambda line: tell(Notice(line)))
    with working(backend, tell_loss=tell_loss) as work:
        sessions = Sessions(work, {name: asked(name) for name in machines}, directory, tell)
        stopping = interruption.of_host(sessions.stop)
        try:
            with interruption.waiting():
                sessions.open()
            with stopping.waiting():
                yield work, {name: FarHost(one, directory, tell) for name, one in sessions.asked.items()}
        finally:
            if interruption.received:
                sessions.stop()
            sessions.close()


@dataclass
class Sessions:
    """The sessions of a campaign, by host."""

    work: Work
    asked: Mapping[str, SessionAsked]
    directory: CampaignDirectory
    tell: Tell
    _is_stopped: bool = False

    def open(self) -> None:
        """Open all sessions in parallel. Raise the first PreflightError; errors of other hosts are reported."""
        from pgstrata.fleet.worker import open_session

        names = [stack.name for stack in self.directory.campaign.stacks]
        for host, answer in self._answers(self._submitted(open_session)).items():
            if lacking := [name for name in names if name not in answer.stacks]:
                raise PreflightError(
                    f"{host} cannot build {', '.join(lacking)}",
                    hint="leave the host out of the cluster, or the stack out of stacks",
                )

    def stop(self) -> None:
        """Stop the running trials, once; none of them is resumed."""
        from pgstrata.fleet.worker import stop_sessions

        backend: Any = self.work.backend
        if not self._is_stopped and backend.client.status == "running":
            self._is_stopped = True
            self.work.stop()
            token = next(iter(self.asked.values())).token
            backend.client.ask(backend.leased_workers(), stop_sessions, token)

    def close(self) -> None:
        """Close every session whose worker is present."""
        from pgstrata.fleet.worker import close_session

        self.work.stop()  # a session that was lost with its worker is closed
        self._answers(self._submitted(close_session))

    def _submitted(self, function: Callable[[str, str], bytes]) -> dict[str, Future[bytes]]:
        return {
            host: self.work.submit(function, asked.model_dump_json(), affinity=host)
            for host, asked in self.asked.items()
        }

    def _answers(self, futures: Mapping[str, Future[bytes]]) -> dict[str, SessionAnswer]:
        answers, errors = {}, list[PgstrataError]()
        for host, future in futures.items():
            try:
                answers[host], _ = take_up(host, future.result(), self.directory, self.tell)
            except WorkersLost:
                self.tell(Notice(f"{host}: its worker was lost; what it left is undone when the campaign is resumed"))
            except PgstrataError as error:
                errors.append(error)
        for of_another in errors[1:]:
            self.tell(Notice(of_another.message))
        if errors:
            raise errors[0]
        return answers


@dataclass(frozen=True)
class FarHost(ScheduledHost):
    """A machine of a cluster."""

    asked: SessionAsked
    directory: CampaignDirectory
    tell: Tell

    @cached_property
    def text(self) -> str:
        """The session, sent with each trial: another worker of the machine may have to open it."""
        return self.asked.model_dump_json()

    def submit(self, executor: Executor, trials: Sequence[Trial], *, begins_block: bool) -> Future[bytes]:
        from pgstrata.fleet.worker import run_trial

        (trial,) = trials
        self.tell(TrialBegun(self.directory.campaign.name, trial))
        self.directory.note_running(trial)
        asked = TrialAsked(key=self.asked.key, trial=trial, begins_block=begins_block)
        submit: Any = executor.submit
        future: Future[bytes] = submit(run_trial, self.text, asked.model_dump_json(), affinity=self.asked.host)
        return future

    def take(self, found: bytes, trials: Sequence[Trial]) -> tuple[TrialVerdict, ...]:
        (trial,) = trials
        _, archive = take_up(self.asked.host, found, self.directory, self.tell)
        verdict = self.directory.adopt(trial, archive)
        self.directory.forget_running(trial)
        return (verdict,)

    def give_up(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self.directory.forget_running(trial)


def take_up(host: str, content: object, directory: CampaignDirectory, tell: Tell) -> tuple[SessionAnswer, bytes]:
    """Record the further reports of a session; PreflightError if the request failed."""
    answer, archive = parse_answer(content, host)
    media = [parsed(MediumRecord, text, host) for text in answer.media]
    for line in answer.notices:
        tell(Notice(f"{host}: {line}"))
    if answer.clean:
        forget_undo_errors(directory.path, host)
    note_undo_errors(directory.path, answer.left, host)
    for record in media:
        directory.record_medium(_placed(record, directory))
    if answer.error:
        raise PreflightError(f"{host}: {answer.error}", hint=answer.hint)
    return answer, archive


def _placed(record: MediumRecord, directory: CampaignDirectory) -> MediumRecord:
    """Return a baseline with the number of the campaign's next block, which the worker does not know."""
    if record.kind != "baseline":
        return record
    return record.model_copy(update={"before_block": directory.next_block()})
