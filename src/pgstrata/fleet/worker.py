"""Functions that run on a Dask worker: a session of a campaign on its machine, and the trials in it.

A session lasts as long as its lease, a task whose result the coordinator holds. When the coordinator ends in any way,
the scheduler forgets that task; then the running trial is stopped and everything is undone. If the worker is killed,
the next one on the machine undoes its leftovers from the journal.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

from distributed import Worker, get_worker
from distributed.core import Status

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.fleet.calls import WorkerLost
from pgstrata.fleet.messages import SessionAnswer, SessionAsked, TrialAsked, describe_here, render_answer
from pgstrata.host.local import LocalHost
from pgstrata.record.delivered import pack
from pgstrata.record.reader import read_media
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.source import FolderSource
from pgstrata.stack.journal import clean, journaled
from pgstrata.stack.undo import OURS, RemovePath
from pgstrata.trial.events import Event, Notice
from pgstrata.trial.fake import made_up_runner
from pgstrata.trial.interruption import HostInterruption, Interrupted, Interruption
from pgstrata.trial.opening import performance_runner
from pgstrata.trial.scheduling import TrialRunner
from pgstrata.trial.undo_errors import forget_undo_errors, undo_errors_of

LOOK_S = 1.0
"""Seconds between looks whether a session is still wanted."""
MACHINE_PATIENCE_S = 300.0
"""For an earlier session on the same machine to undo what it built."""
MACHINE_LOCK = "fleet"
FOLDER = f"{OURS}fleet-"


async def prepare(dask_worker: Worker) -> str:
    """A description of this worker, in JSON; from now on one task that asks for `host` runs here at a time."""
    await dask_worker.set_resources(host=1)
    return describe_here().model_dump_json()


def lease() -> str:
    """The task whose result the coordinator holds as long as it needs its session."""
    return ""


def open_session(lease: str, text: str) -> bytes:
    """Looks the machine over for a campaign and makes it ready; what was left there before is undone."""
    session = Session(SessionAsked.model_validate_json(text))
    _sessions_of(get_worker()).enter(session, lease)
    return session.open()


def run_trial(lease: str, text: str, trial: str) -> bytes:
    """Run one trial of a session; open the session first if another worker of this machine had it."""
    asked, sessions = TrialAsked.model_validate_json(trial), _sessions_of(get_worker())
    session = sessions.find(asked.key, lease)
    if session is None:
        session = Session(SessionAsked.model_validate_json(text))
        sessions.enter(session, lease)
    return session.run(asked)


def close_session(lease: str, text: str) -> bytes:
    """Takes everything back."""
    sessions = _sessions_of(get_worker())
    session = sessions.find(SessionAsked.model_validate_json(text).key, lease)
    if session is None or not sessions.leave(session):
        raise WorkerLost("the session is gone")
    return session.close()


def stop_sessions(token: str, dask_worker: Worker) -> str:
    """Ends the running trials of a campaign; they are undone, and do not count."""
    _sessions_of(dask_worker).stop(token)
    return ""


class Session:
    """A campaign on this machine."""

    def __init__(self, asked: SessionAsked) -> None:
        self.asked = asked
        self._host = LocalHost(name=asked.host)
        self._interruption: HostInterruption = Interruption().of_host(self._host.end_waits)
        self._busy = threading.Lock()
        self._opened = ExitStack()
        self._directory: CampaignDirectory | None = None
        self._runner: TrialRunner | None = None
        self._notices: list[str] = []
        self._media_told = 0
        self._is_newly_clean = self._is_closed = False

    @property
    def is_stopping(self) -> bool:
        return bool(self._interruption.received)

    def open(self) -> bytes:
        with self._busy:
            return self._answer(self._open)

    def _open(self) -> tuple[SessionAnswer, bytes]:
        with ExitStack() as opened:
            opened.callback(self._host.close)
            folder = opened.enter_context(_fake_folder() if self.asked.fake else self._folder())
            directory = opened.enter_context(CampaignDirectory.create_or_open(folder, self.asked.campaign))
            runner: TrialRunner
            if self.asked.fake:
                runner, stacks = made_up_runner(self.asked.campaign), tuple(s.name for s in self.asked.campaign.stacks)
            else:
                runner, stacks = opened.enter_context(
                    performance_runner(self._host, self.asked.campaign, directory, self._tell, self._interruption)
                )
                # so that `clean` removes the folder of a session that was killed
                name = f"{FOLDER}{self.asked.token}"
                opened.enter_context(journaled(self._host, name, RemovePath(path=str(folder))))
            self._directory, self._runner, self._opened = directory, runner, opened.pop_all()
        self._is_newly_clean = True
        return SessionAnswer(stacks=stacks), b""

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Folder where trials are recorded until they are handed over. No other session has this machine: folders of
        others are what killed ones left, and so is what their journals name."""
        host = self._host
        self._hold_machine()
        self._notices += [f"cleaned up after an earlier run: {line}" for line in clean(host).lines]
        state = host.state_directory()
        for name in host.list_directory(state):
            if name.startswith(FOLDER):
                host.remove(f"{state}/{name}")
        folder = f"{state}/{FOLDER}{self.asked.token}"
        host.make_directory(folder, mode=0o700)
        try:
            yield Path(folder)
        finally:
            host.remove(folder)

    def _hold_machine(self) -> None:
        """The lock lasts until the host is closed; its holder may be a session whose coordinator has just ended."""
        give_up_s = time.monotonic() + MACHINE_PATIENCE_S
        while holder := self._host.try_lock(
            MACHINE_LOCK, f"process {os.getpid()} with campaign {self.asked.campaign.name}"
        ):
            if time.monotonic() > give_up_s:
                raise PreflightError(
                    f"{self._host.name} is taken by another campaign: {holder}",
                    hint="wait for it to end, or leave the host out",
                )
            with self._interruption.waiting():
                time.sleep(LOOK_S)

    def run(self, asked: TrialAsked) -> bytes:
        with self._busy:
            return self._answer(lambda: self._run(asked))

    def _run(self, asked: TrialAsked) -> tuple[SessionAnswer, bytes]:
        if self._is_closed or self.is_stopping:
            raise WorkerLost(self._interruption.received)
        if self._runner is None or self._directory is None:
            self._open()
        assert self._runner is not None
        assert self._directory is not None
        if asked.begins_block:
            self._runner.begin_block(asked.trial.block, self._directory)
        self._runner.run(asked.trial, self._directory, self._tell)
        folder = self._directory.path / "trials" / asked.trial.id
        archive = pack(folder)
        shutil.rmtree(folder)
        return SessionAnswer(), archive

    def close(self) -> bytes:
        with self._busy:
            return self._answer(self._close)

    def _close(self) -> tuple[SessionAnswer, bytes]:
        self._is_closed = True
        self._opened.close()
        self._runner = None
        return SessionAnswer(), b""

    def stop(self, why: str) -> None:
        self._interruption.received = self._interruption.received or why

    def end_wait(self) -> None:
        self._interruption.end()

    def _answer(self, work: Callable[[], tuple[SessionAnswer, bytes]]) -> bytes:
        """Return the answer of the work, or its error, with all events since. WorkerLost if it was stopped."""
        try:
            answer, archive = work()
        except Interrupted as stopped:
            raise WorkerLost(str(stopped)) from None
        except PgstrataError as error:
            answer, archive = SessionAnswer(error=error.message, hint=error.hint), b""
        except OSError as error:
            answer, archive = SessionAnswer(error=str(error)), b""
        return render_answer(answer.model_copy(update=self._besides()), archive)

    def _besides(self) -> dict[str, object]:
        """Return the events since the last answer."""
        found: dict[str, object] = {"notices": tuple(self._notices), "clean": self._is_newly_clean}
        self._notices, self._is_newly_clean = [], False
        if self._directory is not None and self._directory.path.is_dir():
            media = read_media(FolderSource(self._directory.path))
            found["media"] = tuple(m.model_dump_json() for m in media[self._media_told :])
            self._media_told = len(media)
            found["left"] = undo_errors_of(self._directory.path, self.asked.host)
            forget_undo_errors(self._directory.path, self.asked.host)
        return found

    def _tell(self, event: Event) -> None:
        if isinstance(event, Notice):
            self._notices.append(event.text)


@contextmanager
def _fake_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pgstrata-made-up-") as folder:
        yield Path(folder)


class Sessions:
    """Sessions of one worker, by host and campaign. A thread ends those that nobody wants any more."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._sessions: dict[tuple[str, str], tuple[Session, str]] = {}
        self._changing = threading.Lock()
        self._watching = False

    def enter(self, session: Session, lease: str) -> None:
        """An earlier one of the same host and campaign is ended first: its coordinator has given it up. One of another
        campaign has the machine until nobody wants it any more."""
        with self._changing:
            before = self._sessions.pop(session.asked.key, None)
            self._sessions[session.asked.key] = (session, lease)
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="pgstrata sessions").start()
        if before is not None:
            _end(before[0], "another session")

    def find(self, key: tuple[str, str], lease: str) -> Session | None:
        """Return the session of a host and campaign; None if its coordinator gave up its lease."""
        session, held = self._sessions.get(key, (None, ""))
        return session if held == lease else None

    def leave(self, session: Session) -> bool:
        """Return True if it was still there: the caller that takes it out closes it."""
        with self._changing:
            current, _ = self._sessions.get(session.asked.key, (None, ""))
            if current is session:
                del self._sessions[session.asked.key]
            return current is session

    def stop(self, token: str) -> None:
        for session, _ in list(self._sessions.values()):
            if session.asked.token == token:
                session.stop("its coordinator")

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._changing:
                if not self._sessions:
                    self._watching = False
                    return
                current = list(self._sessions.values())
            for session, lease in current:
                if not self._is_wanted(lease):
                    if self.leave(session):
                        _end(session, "the end of its coordinator")
                elif session.is_stopping:
                    session.end_wait()

    def _is_wanted(self, lease: str) -> bool:
        return self._worker.status is Status.running and lease in self._worker.state.tasks


def _end(session: Session, why: str) -> None:
    """Stops what runs, as often as it takes, and takes everything back."""
    session.stop(why)
    closing = threading.Thread(target=session.close, name="pgstrata closing")
    closing.start()
    while closing.is_alive():
        session.end_wait()
        closing.join(LOOK_S)


_SESSIONS: WeakKeyDictionary[Worker, Sessions] = WeakKeyDictionary()
_MAKING = threading.Lock()


def _sessions_of(worker: Worker) -> Sessions:
    with _MAKING:
        return _SESSIONS.setdefault(worker, Sessions(worker))
