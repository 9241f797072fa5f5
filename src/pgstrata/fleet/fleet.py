"""The executor of a campaign on the machines of a Dask cluster: the scheduler of trials submits to it as to any other.

It keeps a session open on one worker of each machine. Where that worker is lost, the next one of the same machine (or
the same one, started again) opens the session anew, which undoes what was left, and the trial is submitted once more:
it comes back once, and only then is it in the record.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from distributed import Client, KilledWorker
from distributed import Future as DaskFuture
from distributed.client import FutureCancelledError

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.fleet import worker
from pgstrata.fleet.machines import Machine, check_versions
from pgstrata.fleet.messages import Answer, Described, SessionAsked, TrialAsked, describe_here
from pgstrata.fleet.together import Together
from pgstrata.host.protocol import HostLost
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import MediumRecord, TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.trial.events import Notice, Tell, TrialBegun
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.submitted import Submitted
from pgstrata.trial.undo_errors import forget_undo_errors, note_undo_errors

LOOK_S = 1.0
"""How often it is looked which workers are there."""
PATIENCE_S = 300.0
"""For a machine whose worker was lost, as for a host behind ssh."""
AT_ONCE = 8
"""Machines whose sessions are opened anew at a time."""


class SchedulerLost(PgstrataError):
    """The campaign cannot go on now; nothing that was recorded is lost."""


class _WorkerLost(Exception):
    """It is not there any more."""


@dataclass(frozen=True)
class RunTrial:
    """A trial for a machine: data, which the fleet submits with the name of a function."""

    host: str
    text: str

    def __call__(self) -> NoReturn:
        raise AssertionError("runs on a worker alone")


@dataclass(eq=False)
class _Call:
    """A trial that was submitted. `future` is the caller's; `sent` is another one for each worker."""

    work: RunTrial
    future: Future[Answer] = field(default_factory=Future)
    sent: Future[Answer] | None = None
    address: str = ""
    lost: bool = False
    resuming: bool = False
    reopened: list[Answer] = field(default_factory=list)
    """Of sessions that were opened anew for it."""


class Fleet(Executor):
    """Sessions of one campaign on machines; runs the trials that are submitted."""

    def __init__(
        self,
        client: Client,
        machines: Mapping[str, Machine],
        asked: Callable[[str], SessionAsked],
        tell: Tell,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`machines` are by the name of the host, `asked` says what is asked of it."""
        self._client = client
        self._trials = Together(client, worker.run_trial)
        self._machines = machines
        self._asked = asked
        self._tell = tell
        self._patience_s = patience_s
        self._known: dict[str, str] = {a: m.id for m in machines.values() for a in m.workers}
        self._leases: dict[str, tuple[str, DaskFuture]] = {}
        self._calls: set[_Call] = set()
        self._finishing = threading.Lock()
        self._closing = threading.Event()
        self._stopped = False
        self._resuming = ThreadPoolExecutor(AT_ONCE, "pgstrata fleet")
        self._watching = threading.Thread(target=self._watch, name="pgstrata fleet watch")

    # ------------------------------------------------------------ sessions

    def open(self) -> dict[str, Answer]:
        """Opens a session on every machine, all at once; what each answers, by the name of the host."""
        for name, machine in self._machines.items():
            self._lease(name, machine.workers[0])
        opened = {name: self._opened(name) for name in self._machines}
        self._watching.start()
        return opened

    def _lease(self, host: str, address: str) -> None:
        """The session lasts as long as this result is held."""
        token = self._asked(host).token
        lease = self._client.submit(
            worker.open_session,
            self._asked(host).model_dump_json(),
            key=f"pgstrata-{token}-{uuid.uuid4().hex}",
            workers=[address],
            allow_other_workers=False,
            resources={"host": 1},
            pure=False,
        )
        self._leases[host] = (address, lease)

    def _opened(self, host: str) -> Answer:
        address, lease = self._leases[host]
        answer: Answer = self._awaited(lease, address)
        return answer

    def _awaited(self, future: DaskFuture, address: str) -> Any:
        """_WorkerLost as soon as it cannot come any more."""
        while True:
            try:
                return future.result(timeout=LOOK_S)
            except TimeoutError:
                present = self._present()
                if self._client.status == "closed" or (present is not None and address not in present):
                    future.cancel()
                    raise _WorkerLost from None
            except (KilledWorker, CancelledError, FutureCancelledError):
                raise _WorkerLost from None

    def _present(self) -> frozenset[str] | None:
        """The workers that are there; None while the scheduler does not say."""
        try:
            return frozenset(self._client.ncores())
        except (OSError, RuntimeError, ValueError, AttributeError):
            return None

    def stop(self) -> None:
        """Ends the running trials, once; each comes back as stopped."""
        if not self._stopped and self._client.status == "running":
            self._stopped = True
            token = self._asked(next(iter(self._machines))).token
            there = sorted((self._present() or frozenset()) & {address for address, _ in self._leases.values()})
            self._client.run(worker.stop_sessions, token, workers=there, on_error="ignore")

    def close(self) -> dict[str, Answer]:
        """Closes every session whose worker is there; what each answers."""
        self._closing.set()
        if self._watching.ident is not None:
            self._watching.join()
        self._resuming.shutdown()
        present = self._present() or frozenset()
        ending = {
            host: self._client.submit(
                worker.close_session,
                self._asked(host).model_dump_json(),
                workers=[address],
                allow_other_workers=False,
                resources={"host": 1},
                pure=False,
            )
            for host, (address, _) in self._leases.items()
            if address in present
        }
        closed = {}
        for host, future in ending.items():
            try:
                closed[host] = self._awaited(future, self._leases[host][0])
            except _WorkerLost:
                self._tell(Notice(f"{host}: its worker was lost; what it left is undone when the campaign is resumed"))
        self._leases.clear()
        return closed

    # ------------------------------------------------------------ trials

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        assert isinstance(fn, RunTrial), "trials alone travel to workers"
        assert not args
        assert not kwargs
        call = _Call(fn)
        self._calls.add(call)
        self._send(call)
        return call.future

    def _send(self, call: _Call) -> None:
        if self._stopped:  # between a loss and now: sessions that were opened since know nothing of it
            self._finish(call, answer=Answer(stopped="its coordinator"))
            return
        call.address = self._leases[call.work.host][0]
        call.lost = call.resuming = False
        call.sent = self._trials.submit(call.work.text, call.address)
        call.sent.add_done_callback(lambda sent: self._ended(call, sent))

    def _ended(self, call: _Call, sent: Future[Answer]) -> None:
        """In Dask's own thread: notes how it ended, and returns at once."""
        if sent is not call.sent:
            return
        error = None if sent.cancelled() else sent.exception()
        if sent.cancelled() or isinstance(error, KilledWorker | CancelledError):
            call.lost = True
        elif error is not None:
            self._finish(call, error=PgstrataError(f"{call.work.host}: {type(error).__name__}: {error}"))
        elif "gone" in sent.result() or ("stopped" in sent.result() and not self._stopped):
            call.lost = True
        else:
            self._finish(call, answer=sent.result())

    def _finish(self, call: _Call, *, answer: Answer | None = None, error: Exception | None = None) -> None:
        with self._finishing:
            if call not in self._calls:  # with the scheduler gone, two threads may give it up
                return
            self._calls.remove(call)
        call.sent = None
        if error is not None:
            call.future.set_exception(error)
        elif answer is not None:
            call.future.set_result(_together([*call.reopened, answer]))

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_S):
            if self._client.status == "closed":
                self._lose_all()
            elif self._client.status == "running":
                present = self._present()
                for call in list(self._calls):
                    if not call.resuming and (call.lost or (present is not None and call.address not in present)):
                        call.resuming = True
                        self._resuming.submit(self._resume, call)

    def _lose_all(self) -> None:
        for call in list(self._calls):
            error = SchedulerLost(
                "the scheduler of the Dask cluster is gone", hint="start it again, then run the same command"
            )
            self._finish(call, error=error)

    def _resume(self, call: _Call) -> None:
        """Sends a trial once more, as soon as its machine has a worker."""
        host = call.work.host
        sent, call.sent = call.sent, None
        if sent is not None:
            sent.cancel()
        try:
            self._tell(Notice(f"{host}: its worker was lost in the middle of a trial, which begins anew there"))
            answer = self._reopened(host)
            if "error" in answer:
                self._finish(call, answer=answer)
                return
            call.reopened.append(answer)
            self._send(call)
        except Exception as error:
            self._finish(call, error=error)

    def _reopened(self, host: str) -> Answer:
        give_up_s = time.monotonic() + self._patience_s
        while True:
            address = self._worker_of(self._machines[host].id)
            if address is not None:
                try:
                    self._lease(host, address)
                    return self._opened(host)
                except _WorkerLost:
                    continue
            if self._client.status == "closed":
                raise SchedulerLost(
                    "the scheduler of the Dask cluster is gone", hint="start it again, then run the same command"
                )
            if time.monotonic() > give_up_s or self._closing.wait(LOOK_S) or self._stopped:
                raise HostLost(f"no worker of {host} came back")

    def _worker_of(self, machine: str) -> str | None:
        present = self._present() or frozenset()
        unknown = sorted(present - self._known.keys())
        if unknown:
            found: dict[str, Any] = self._client.run(worker.prepare, workers=unknown, on_error="return")
            told = {a: Described.model_validate_json(text) for a, text in found.items() if isinstance(text, str)}
            self._known |= {address: self._machine_of(one) for address, one in told.items()}
        return next((a for a in sorted(present) if self._known.get(a) == machine), None)

    def _machine_of(self, later: Described) -> str:
        """Of a worker that came later; none where it has another pgstrata, which is told."""
        try:
            check_versions({"": later}, describe_here())
        except PreflightError as error:
            self._tell(Notice(f"not used: {error.message}"))
            return ""
        return later.machine


def _together(answers: Sequence[Answer]) -> Answer:
    """The last answer, with what those before it tell besides."""
    whole = Answer(**answers[-1])
    whole["notices"] = [line for answer in answers for line in answer.get("notices", [])]
    whole["media"] = [text for answer in answers for text in answer.get("media", [])]
    whole["clean"] = any(answer.get("clean", False) for answer in answers)
    whole["left"] = [line for answer in answers for line in answer.get("left", [])]
    return whole


@dataclass(frozen=True)
class FarHost(Submitted):
    """A machine of a fleet, as the scheduler of trials sees it."""

    name: str
    token: str
    directory: CampaignDirectory
    tell: Tell

    def work(self, trial: Trial, *, begins_block: bool) -> RunTrial:
        self.tell(TrialBegun(self.directory.campaign.name, trial))
        self.directory.note_running(trial)
        asked = TrialAsked(token=self.token, host=self.name, trial=trial, begins_block=begins_block)
        return RunTrial(self.name, asked.model_dump_json())

    def take(self, found: Answer, trial: Trial) -> TrialVerdict:
        take_up(self.name, found, self.directory, self.tell)
        verdict = self.directory.adopt(trial, found["archive"])
        self.directory.forget_running(trial)
        return verdict

    def give_up(self, trial: Trial) -> None:
        self.directory.forget_running(trial)


def take_up(host: str, answer: Answer, directory: CampaignDirectory, tell: Tell) -> None:
    """What a session tells besides; PreflightError where it could not do what was asked."""
    for line in answer.get("notices", []):
        tell(Notice(f"{host}: {line}"))
    if answer.get("clean"):
        forget_undo_errors(directory.path, host)
    note_undo_errors(directory.path, answer.get("left", []), host)
    for text in answer.get("media", []):
        directory.record_medium(_placed(MediumRecord.model_validate_json(text), directory))
    if "error" in answer:
        raise PreflightError(f"{host}: {answer['error']}", hint=answer.get("hint", ""))


def _take_up_all(answers: Mapping[str, Answer], directory: CampaignDirectory, tell: Tell) -> None:
    """What every session tells, then the PreflightError of the first that has one; those of others are told."""
    errors = []
    for host, answer in answers.items():
        try:
            take_up(host, answer, directory, tell)
        except PreflightError as error:
            errors.append(error)
    for of_another in errors[1:]:
        tell(Notice(of_another.message))
    if errors:
        raise errors[0]


def _placed(record: MediumRecord, directory: CampaignDirectory) -> MediumRecord:
    """A baseline stands before the next block of the campaign, which the worker does not know."""
    if record.kind != "baseline":
        return record
    return record.model_copy(update={"before_block": directory.next_block()})


@contextmanager
def opened_fleet(
    client: Client,
    machines: Mapping[str, Machine],
    asked: Callable[[str], SessionAsked],
    directory: CampaignDirectory,
    tell: Tell,
    interruption: Interruption,
) -> Iterator[tuple[Fleet, dict[str, Submitted]]]:
    """The executor and its hosts, every session open. PreflightError where a machine cannot build every stack."""
    fleet = Fleet(client, machines, asked, tell)
    stopping = interruption.of_host(fleet.stop)
    campaign = directory.campaign
    try:
        with interruption.waiting():
            opened = fleet.open()
        for host, answer in opened.items():
            take_up(host, answer, directory, tell)
            lacking = [s.name for s in campaign.stacks if s.name not in answer["stacks"]]
            if lacking:
                raise PreflightError(
                    f"{host} cannot build {', '.join(lacking)}",
                    hint="leave the host out of the cluster, or the stack out of stacks",
                )
        with stopping.waiting():
            yield fleet, {name: FarHost(name, asked(name).token, directory, tell) for name in machines}
    except _WorkerLost:
        raise PreflightError(
            "a worker was lost while its machine was looked over", hint="run the same command again"
        ) from None
    finally:
        if interruption.received:
            fleet.stop()
        _take_up_all(fleet.close(), directory, tell)
