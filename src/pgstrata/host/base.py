"""A host in front of an agent: turns the protocol's calls into the agent's operations, near (this machine) or far."""

from __future__ import annotations

import errno
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from pgstrata.errors import PgstrataError, PreflightError, writing
from pgstrata.host.agent.files import CHUNK_BYTES
from pgstrata.host.agent.operations import Agent
from pgstrata.host.agent.processes import MARKER
from pgstrata.host.agent.wire import AgentError
from pgstrata.host.protocol import (
    MOST_FETCHED_BYTES,
    Busy,
    Command,
    CommandFailed,
    Completed,
    FileStatus,
    HostKind,
    OpenDevice,
    Process,
    ProcessorSeconds,
    Space,
    Waiting,
    Watcher,
)

Call = Callable[..., Any]
"""Runs one operation of the agent: `call("read", path=...)`."""


def refuse(host: str, error: AgentError) -> PgstrataError:
    """An agent's refusal as an error for the user."""
    if error.kind == "user":
        hint = "run pgstrata as root, or connect as root" if "only root" in str(error) else ""
        return PreflightError(f"refused on {host}: {error}", hint=hint)
    return PgstrataError(f"the agent on {host} failed: {error}")


Notes = dict[str, tuple[str, "AgentProcess"]]
"""Notes of exit codes that are still awaited, with the marker of their program: kept on this side, because an agent may
be lost and replaced."""

NOTE_PATIENCE_S = 10.0
"""For a keeper to write down how its program has ended."""


class AgentProcess:
    """A program that the agent started."""

    def __init__(
        self,
        host: str,
        call: Call,
        handle: dict[str, Any],
        command: Command,
        notes: Notes,
        ended: Callable[[int], None],
    ) -> None:
        """`notes` are the notes of exit codes that are still awaited; this program's own is among them. `ended` is
        called once, with the exit code."""
        self._host = host
        self._call = call
        self._handle = handle
        self._notes = notes
        self._command = command
        self._ended = ended
        self._code: int | None = None

    @property
    def pid(self) -> int:
        return int(self._handle["pid"])

    def poll(self) -> int | None:
        return self._note(self._call("poll", handle=self._handle) if self._code is None else self._code)

    def wait(self, timeout_s: float) -> int:
        if self._code is None:
            self._note(self._call("wait", handle=self._handle, timeout_s=timeout_s, patience_s=timeout_s))
        if self._code is None:
            late = Completed(self._command.argv, -1, "", "it still runs", timeout_s)
            raise CommandFailed(self._host, late, timed_out=True)
        return self._code

    def learn(self) -> None:
        """The exit code of a program that has been ended, before anybody asks: its note over there goes with it."""
        self._note(self._call("wait", handle=self._handle, timeout_s=NOTE_PATIENCE_S, patience_s=NOTE_PATIENCE_S))

    def stop(self, timeout_s: float = 10.0) -> int:
        if self._code is None:
            patience_s = timeout_s + 10.0
            self._note(self._call("stop", handle=self._handle, timeout_s=timeout_s, patience_s=patience_s))
        if self._code is None:
            raise PgstrataError(f"process {self.pid} on {self._host} does not end, not even by SIGKILL")
        return self._code

    def _note(self, code: int | None) -> int | None:
        if code is not None and self._code is None:
            self._code = code
            self._call("forget", handle=self._handle)
            self._notes.pop(self._handle["exit_file"], None)
            self._ended(code)
        return code


class AgentHost(ABC):
    """The `Host` protocol over `_call`, which a kind of host supplies."""

    def __init__(self, name: str, kind: HostKind = "native", peer_address: str = "") -> None:
        self._name = name
        self._peer_address = peer_address
        self._kind: HostKind = kind
        self._marker = ""
        self._waiting: Waiting = nullcontext
        self._notes: Notes = {}
        self._watcher: Watcher | None = None
        self._looking = False

    @abstractmethod
    def _call(self, operation: str, *, patience_s: float = 60.0, **arguments: Any) -> Any:
        """Runs one operation; `patience_s` is how long it may take by its nature."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def peer_address(self) -> str:
        return self._peer_address

    @property
    def kind(self) -> HostKind:
        return self._kind

    def mark(self, marker: str) -> None:
        self._marker = marker

    def interruptible(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def end_waits(self) -> None:
        self._call("cancel")
        if self._marker:
            awaited = sorted(self._notes)
            self._call("stop_marked", marker=self._marker, grace_s=0.0, awaited=awaited, patience_s=30.0)

    def watched(self, watcher: Watcher | None) -> None:
        self._watcher = watcher

    @contextmanager
    def looking(self) -> Iterator[None]:
        before, self._looking = self._looking, True
        try:
            yield
        finally:
            self._looking = before

    def _begin(self, command: Command) -> Callable[[int | None, float], None]:
        """Tells the watcher; what is returned tells it of the end."""
        watcher = self._watcher
        if watcher is None:
            return lambda exit_code, duration_s: None
        number = watcher.begin(command, look=self._looking)
        return lambda exit_code, duration_s: watcher.end(number, exit_code, duration_s)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        waiting, self._waiting = self._waiting, nullcontext
        try:
            yield
        finally:
            self._waiting = waiting

    def pause(self, seconds: float) -> None:
        with self._waiting():
            time.sleep(seconds)

    def _what(self, command: Command) -> dict[str, Any]:
        marked = {MARKER: self._marker} if self._marker else {}
        return {
            "argv": list(command.argv),
            "stdin": command.stdin.encode(),
            "user": command.user,
            "env": {**marked, **dict(command.env)},
            "cwd": command.cwd,
        }

    def run(self, command: Command, *, check: bool = True) -> Completed:
        end = self._begin(command)
        answer = self._call(
            "run",
            patience_s=command.timeout_s,
            timeout_s=command.timeout_s,
            token=uuid.uuid4().hex,
            **self._what(command),
        )
        completed = Completed(
            command.argv,
            answer["exit_code"],
            answer["stdout"].decode(errors="replace"),
            answer["stderr"].decode(errors="replace"),
            answer["duration_s"],
        )
        end(None if answer["timed_out"] else completed.exit_code, completed.duration_s)
        if answer["timed_out"]:
            raise CommandFailed(self._name, completed, timed_out=True)
        if check and completed.exit_code != 0:
            raise CommandFailed(self._name, completed)
        return completed

    def start(self, command: Command, *, stdout: str, stderr: str) -> Process:
        """Raises OSError when the program or its output files cannot be opened."""
        end, began_s = self._begin(command), time.monotonic()
        what = self._what(command)
        try:
            handle = self._call("start", stdout=stdout, stderr=stderr, **what)
        except OSError:
            end(None, 0.0)
            raise

        def ended(code: int) -> None:
            end(code, time.monotonic() - began_s)

        process = AgentProcess(self._name, self._call, handle, command, self._notes, ended)
        self._notes[handle["exit_file"]] = (what["env"].get(MARKER, ""), process)
        return process

    def read_text(self, path: str, *, owner: str | None = None) -> str:
        if owner is None:
            data: bytes = self._call("read", path=path)
        else:
            data = b"".join(self._parts(path, owner, MOST_FETCHED_BYTES))
        return data.decode(errors="replace")

    def _parts(self, path: str, owner: str | None, most_bytes: int) -> Iterator[bytes]:
        """A file in pieces; OSError when there is more than `most_bytes` of it."""
        offset = 0
        while part := self._call("read_chunk", path=path, offset=offset, size=CHUNK_BYTES, owner=owner):
            offset += len(part)
            if offset > most_bytes:
                raise OSError(errno.EFBIG, f"longer than {most_bytes} bytes", path)
            yield part

    def write_text(self, path: str, text: str, *, mode: int = 0o644) -> None:
        self._call("write", path=path, data=text.encode(), mode=mode)

    def append_text(self, path: str, text: str) -> None:
        self._call("append", path=path, data=text.encode())

    def write_new(self, path: str, text: str) -> None:
        self._call("write_new", path=path, data=text.encode())

    def status(self, path: str, *, follow: bool = True) -> FileStatus | None:
        found = self._call("status", path=path, follow=follow)
        if found is None:
            return None
        return FileStatus(**{**found, "device": tuple(found["device"])})

    def space(self, path: str) -> Space:
        return Space(**self._call("space", path=path))

    def list_directory(self, path: str) -> tuple[str, ...]:
        return tuple(self._call("list_directory", path=path))

    def read_ahead(self, path: str, *, most_bytes: int) -> None:
        self._call("read_ahead", path=path, most_bytes=most_bytes, patience_s=600.0)

    def make_directory(
        self, path: str, *, mode: int = 0o755, owner: str | None = None, group: str | None = None, new: bool = False
    ) -> None:
        self._call("make_directory", path=path, mode=mode, owner=owner, group=group, new=new)

    def remove(self, path: str) -> None:
        self._call("remove", path=path, patience_s=600.0)

    def fetch(self, path: str, to: str, *, owner: str | None = None, most_bytes: int = MOST_FETCHED_BYTES) -> int:
        with writing(Path(to)):
            file = Path(to).open("xb")  # noqa: SIM115 - closed below, where an error is one of this machine too
        size = 0
        try:
            for part in self._parts(path, owner, most_bytes):
                with writing(Path(to)):
                    file.write(part)
                size += len(part)
        finally:
            with writing(Path(to)):
                file.close()
        return size

    def send(self, local: str, path: str, *, mode: int = 0o644) -> None:
        with Path(local).open("rb") as file:
            part, offset = file.read(CHUNK_BYTES), 0
            while part or offset == 0:
                self._call("write_chunk", path=path, offset=offset, data=part, mode=mode)
                offset += len(part)
                part = file.read(CHUNK_BYTES)
                if not part:
                    return

    def stop_marked(self, marker: str, grace_s: float = 30.0) -> tuple[int, ...]:
        awaited = sorted(self._notes)
        patience_s = grace_s + 10.0
        ended = self._call("stop_marked", marker=marker, grace_s=grace_s, awaited=awaited, patience_s=patience_s)
        for process in [process for owner, process in self._notes.values() if owner == marker]:
            process.learn()
        return tuple(ended)

    def forget_ended(self) -> None:
        self._call("forget_ended")

    def state_directory(self) -> str:
        return str(self._call("state_directory"))

    def try_lock(self, name: str, payload: str) -> str | None:
        holder: str | None = self._call("try_lock", name=name, payload=payload)
        return holder

    def lock_holder(self, name: str) -> str | None:
        holder: str | None = self._call("lock_holder", name=name)
        return holder

    def unlock(self, name: str) -> None:
        self._call("unlock", name=name)

    def open_device(self, path: str, *, write: bool = False, exclusive: bool = True) -> OpenDevice:
        found = self._call("open_device", path=path, write=write, exclusive=exclusive, patience_s=120.0)
        found = {**found, "numbers": tuple(found["numbers"]), "uses": tuple(found["uses"])}
        return OpenDevice(**{**found, "passing": tuple(found["passing"])})

    def close_device(self, handle: int) -> None:
        self._call("close_device", handle=handle)

    def other_handles(self, handle: int) -> tuple[int, ...]:
        return tuple(self._call("other_handles", handle=handle))

    def first_content(self, handle: int) -> int | None:
        found: int | None = self._call("first_content", handle=handle, patience_s=600.0)
        return found

    def zero(self, handle: int) -> None:
        self._call("zero", handle=handle, patience_s=600.0)

    def processor_seconds(self, users: Sequence[str], programs: Sequence[str]) -> ProcessorSeconds:
        return ProcessorSeconds(**self._call("processor_seconds", users=list(users), programs=list(programs)))

    def busiest(self, seconds: float) -> tuple[Busy, ...]:
        return tuple(Busy(**busy) for busy in self._call("busiest", seconds=seconds, patience_s=60.0 + seconds))

    def reconnect(self, timeout_s: float = 300.0) -> bool:
        """Nothing to do where there is no connection."""
        return True

    def close(self) -> None:
        self._call("close")


class LocalHost(AgentHost):
    """Calls the agent in this process. `state_directory` overrides where locks and the journal live; `name` is what a
    campaign on several hosts calls this machine."""

    def __init__(self, *, state_directory: str | None = None, name: str = "local") -> None:
        super().__init__(name)
        self._agent = Agent(state_directory, lambda: self._waiting())

    def _call(self, operation: str, *, patience_s: float = 60.0, **arguments: Any) -> Any:
        try:
            return getattr(self._agent, operation)(**arguments)
        except AgentError as error:
            raise refuse(self._name, error) from None


def become(argv: Sequence[str]) -> NoReturn:
    """Replaces this process; PreflightError when the program is not there."""
    try:
        os.execvp(argv[0], list(argv))
    except OSError as error:
        raise PreflightError(
            f"cannot start {argv[0]}: {error.strerror}", hint=f"install {argv[0]}, or see to the PATH"
        ) from error
