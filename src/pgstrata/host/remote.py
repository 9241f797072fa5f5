"""A machine or container reached through another program: ssh, or one that runs a command there.

One session stays open for the life of the host; in it runs the package `agent`, sent over at the start, so that a
command costs one round trip and no login. What start-up files over there print is skipped: nothing counts before the
agent's own line.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host import agent_schema
from pgstrata.host.agent import source, wire
from pgstrata.host.protocol import Host, HostKind, HostLost, refuse

PYTHON_WANTED = (3, 9)
READY_S = 60.0
"""For the login and the agent's first line, start-up files included."""
ANSWER_SLACK_S = 60.0
"""Longest time in seconds that an operation may take beyond its own limit before the host counts as lost."""
WAITS = frozenset({"run", "wait"})
"""Operations that wait for a program: a signal may end them at any moment."""
MOST_SAID_BYTES = 16 << 20
"""On standard error of a session, which is kept in a file here."""
SHOWN_BYTES = 4096
MOST_NOISE_LINES = 10_000
LONGEST_NOISE_BYTES = 64 << 10
DIRECTORY_PREFIX = "pgstrata-ssh-"

_READY = re.compile(rb"\s*%b (\d{1,3})\.(\d{1,3})\s*" % re.escape(source.READY.encode()))


@dataclass(frozen=True)
class Far:
    """The far end of a session: its name as the user writes it, the program that leads there, and its errors."""

    text: str
    program: str
    explain: Callable[[int | None, str], PreflightError]
    """Return the reason why the agent did not start, from exit code (None where it was too late) and last output."""


def _make_directory() -> Path:
    """A private directory (0700) for the control socket; those of processes that were killed are taken away.

    Short, because the path of a socket is limited to 107 bytes and ssh puts 57 of its own behind it.
    """
    parent = tempfile.gettempdir() if len(tempfile.gettempdir()) <= 20 else "/tmp"
    for left in Path(parent).glob(f"{DIRECTORY_PREFIX}*-*"):
        pid = left.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)  # fails, as it should, where it is another user's
    return Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-", dir=parent))


class _Session:
    """One agent at the far end of one program: sends requests, hands answers to whom they belong."""

    def __init__(self, far: Far, argv: Sequence[str], directory: Path) -> None:
        self._far = far
        self._stderr = directory / "stderr"
        with self._stderr.open("wb") as stderr:
            self._program = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        with contextlib.suppress(ProcessLookupError):  # what the far side says must not fill the disk here
            resource.prlimit(self._program.pid, resource.RLIMIT_FSIZE, (MOST_SAID_BYTES, MOST_SAID_BYTES))
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._sink, self._source = self._program.stdin, self._program.stdout
        self._lock = threading.Lock()
        self._next_id = 0
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._lost = False
        self._wrong = ""
        """Output that was no answer, and ended the session; empty if there was none."""
        self._reader: threading.Thread | None = None
        try:
            self._introduce()
        except BaseException:
            self.close()
            raise
        self._reader = threading.Thread(target=self._read, name=f"pgstrata {far.text}", daemon=True)
        self._reader.start()

    def _introduce(self) -> None:
        """Waits for the agent's line, checks its Python and sends the agent's source."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._program.kill()

        watch = threading.Timer(READY_S, give_up)
        watch.start()
        try:
            version = self._ready_version()
        finally:
            watch.cancel()
            watch.join()
        if version is None:
            code = self._program.wait()
            raise self._far.explain(None if late.is_set() else code, self._said())
        if version < PYTHON_WANTED:
            found, wanted = (".".join(map(str, v)) for v in (version, PYTHON_WANTED))
            raise PreflightError(
                f"python3 on {self._far.text} is {found}, {wanted} or later is needed",
                hint="install a later python3 over there, first in the PATH",
            )
        with contextlib.suppress(BrokenPipeError):
            self._sink.write(source.bundle())
            self._sink.flush()

    def _ready_version(self) -> tuple[int, ...] | None:
        for _ in range(MOST_NOISE_LINES):
            line = self._source.readline(LONGEST_NOISE_BYTES)
            if found := _READY.fullmatch(line):
                return int(found[1]), int(found[2])
            if not line:
                return None
        self._program.kill()
        return None

    def _read(self) -> None:
        with contextlib.suppress(ValueError, OSError):  # a pipe closed under us: lost all the same
            try:
                while line := self._source.readline(agent_schema.MOST_LINE_BYTES):
                    answer = agent_schema.read_answer(line)
                    waiting = self._waiting.pop(answer["id"], None)
                    if waiting is not None:
                        waiting.put(answer)
            except agent_schema.WrongAnswer as error:
                self._wrong = f"its agent sent {error}"
                self._program.kill()
        with self._lock:
            self._lost = True
            waiting_now = list(self._waiting.values())
            self._waiting.clear()
        for waiting in waiting_now:
            waiting.put(None)

    def post(self, operation: str, arguments: dict[str, Any]) -> queue.SimpleQueue[dict[str, Any] | None]:
        """Sends a request; the queue gets its answer, or None when the connection is lost first."""
        box: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with self._lock:
            if self._lost:
                box.put(None)
                return box
            self._next_id += 1
            self._waiting[self._next_id] = box
            with contextlib.suppress(OSError, ValueError):  # the reader notices, too
                self._sink.write(wire.encode({"id": self._next_id, "op": operation, "args": arguments}))
                self._sink.flush()
        return box

    def why_lost(self) -> str:
        said = self._said().strip().splitlines()
        return self._wrong or (said[-1] if said else f"{self._far.program} ended")

    def _said(self) -> str:
        """The end of what the program and the login shell said."""
        with self._stderr.open("rb") as file:
            file.seek(max(0, self._stderr.stat().st_size - SHOWN_BYTES))
            return file.read(SHOWN_BYTES).decode(errors="replace")

    def close(self) -> None:
        """Ends the agent by the end of its input, and waits for it: its locks are free afterwards."""
        with contextlib.suppress(OSError):
            self._sink.close()
        try:
            self._program.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            self._program.kill()
            self._program.wait()
        if self._reader is not None:
            self._reader.join(timeout=10.0)
        if self._reader is None or not self._reader.is_alive():
            self._source.close()


class RemoteHost(Host):
    """A host behind a program.

    Raises PreflightError when no connection can be made. When it breaks later, every operation raises HostLost
    until `reconnect`; programs started in the background go on over there.
    """

    def __init__(
        self,
        far: Far,
        *,
        name: str | None = None,
        kind: HostKind = "native",
        state_directory: str | None = None,
        peer_address: str = "",
    ) -> None:
        super().__init__(name or far.text, kind, peer_address)
        self._reached = far
        self._agent = ("python3", "-I", "-u", "-c", source.BOOTSTRAP, "serve", *filter(None, [state_directory]))
        self._held: dict[str, str] = {}
        self._directory = _make_directory()
        try:
            self._session = self._open()
        except BaseException:
            self._clear()
            raise
        try:
            self._far = self._call("hello")
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _argv(self) -> Sequence[str]:
        """Return the program here that runs the agent over there."""

    def _open(self) -> _Session:
        argv = self._argv()
        if shutil.which(argv[0]) is None:
            package = "openssh-client" if argv[0] == "ssh" else argv[0]
            raise PreflightError(f"{argv[0]} is missing here", hint=f"apt-get install {package}")
        return _Session(self._reached, argv, self._directory)

    def _call(self, operation: str, *, patience_s: float = 60.0, **arguments: Any) -> Any:
        box = self._session.post(operation, arguments)
        try:
            with self._waiting() if operation in WAITS else contextlib.nullcontext():
                answer = box.get(timeout=patience_s + ANSWER_SLACK_S)
        except queue.Empty:
            raise HostLost(f"no answer from {self._name} to {operation}", hint="is the machine still up?") from None
        except BaseException:
            if "token" in arguments:  # interrupted: the command must not go on over there
                self._session.post("cancel", {"token": arguments["token"]})
            raise
        if answer is None:
            raise HostLost(f"connection to {self._name} was lost: {self._session.why_lost()}")
        try:
            return agent_schema.checked(operation, wire.result(answer))
        except wire.AgentError as error:
            raise refuse(self._name, error) from None
        except agent_schema.WrongAnswer as error:
            raise PgstrataError(
                f"the agent on {self._name} is not ours: {error}", hint="is that the machine you think it is?"
            ) from None

    def try_lock(self, name: str, payload: str) -> str | None:
        holder = super().try_lock(name, payload)
        if holder is None:
            self._held[name] = payload
        return holder

    def unlock(self, name: str) -> None:
        self._held.pop(name, None)
        super().unlock(name)

    def reconnect(self, timeout_s: float = 300.0) -> bool:
        """Connects again, trying until `timeout_s` has passed; ends what is left of the old agent and its foreground
        commands and takes the locks back. True when the machine was not rebooted meanwhile.

        Raises HostLost when it cannot be reached in time or another run has taken a lock.
        """
        deadline = time.monotonic() + timeout_s
        self._drop_connection()  # first, because a dead network lets nothing else end by itself
        self._session.close()
        while True:
            try:
                self._session = self._open()
                break
            except PreflightError as error:
                if time.monotonic() >= deadline:
                    raise HostLost(f"{self._name} did not come back: {error.message}", hint=error.hint) from None
                self.pause(1.0)
        old, self._far = self._far, self._call("hello")
        self._call("supersede", pid=old["pid"], started=old["started"], boot=old["boot"])
        for name, payload in self._held.items():
            holder = super().try_lock(name, payload)
            if holder is not None:
                raise HostLost(f"lock {name} on {self._name} was taken by {holder} while it was away")
        return bool(old["boot"] == self._far["boot"])

    def close(self) -> None:
        self._session.close()
        self._clear()

    def _clear(self) -> None:
        self._drop_connection()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _drop_connection(self) -> None:
        """End what outlives a session; nothing by itself."""
