"""Operations of every host, which are those of an agent there, near or far, and their types."""

from __future__ import annotations

import errno
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pgstrata.errors import PgstrataError, PreflightError, writing
from pgstrata.host.agent.files import CHUNK_BYTES
from pgstrata.host.agent.processes import MARKER
from pgstrata.host.agent.wire import AgentError

HostKind = Literal["native", "emulated"]

DEFAULT_TIMEOUT_S = 60.0
MOST_FETCHED_BYTES = 1 << 30

Waiting = Callable[[], AbstractContextManager[None]]
"""Context manager that a wait for a command is wrapped in: inside it a signal may raise."""


def marked(marker: str) -> tuple[tuple[str, str], ...]:
    """Entry in the environment of a trial's process, so that it is found again; nothing without a marker."""
    return ((MARKER, marker),) if marker else ()


def unmarked() -> tuple[tuple[str, str], ...]:
    """Entry in the environment of a process that is not ended with the trial's others."""
    return ((MARKER, ""),)


@dataclass(frozen=True)
class Command:
    """One program with its arguments; never a shell string.

    `user` runs it as that OS user. `env` is added to a minimal environment (PATH, LC_ALL=C).
    """

    argv: tuple[str, ...]
    timeout_s: float = DEFAULT_TIMEOUT_S
    stdin: str = ""
    user: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None

    @property
    def text(self) -> str:
        """The command as a shell would read it, for people."""
        import shlex

        return shlex.join(self.argv)


def command(*argv: str | Sequence[str], timeout_s: float = DEFAULT_TIMEOUT_S, stdin: str = "") -> Command:
    """A command from arguments and lists of arguments (so that option and value stay together on a line)."""
    flat: list[str] = []
    for part in argv:
        flat += [part] if isinstance(part, str) else list(part)
    return Command(tuple(flat), timeout_s=timeout_s, stdin=stdin)


@dataclass(frozen=True)
class Completed:
    """Result of a command that ended."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    duration_s: float


class CommandFailed(PgstrataError):
    """A command ended with another exit code than 0, or not in time (`exit_code` None in `completed`)."""

    def __init__(self, host: str, completed: Completed, *, timed_out: bool = False, hint: str = "") -> None:
        tail = "\n".join((completed.stderr.strip() or completed.stdout.strip()).splitlines()[-5:])
        how = f"did not end within {completed.duration_s:.0f} s" if timed_out else f"exit code {completed.exit_code}"
        shown = Command(completed.argv).text
        super().__init__(f"command failed on {host}: {shown}: {how}: {tail}", hint=hint)
        self.host = host
        self.completed = completed
        self.timed_out = timed_out


class HostLost(PgstrataError):
    """The connection to a host broke; what it was doing is unknown until it is reached again."""


@dataclass(frozen=True)
class FileStatus:
    """Status of a path, from stat."""

    kind: Literal["file", "directory", "block", "symlink", "other"]
    size_bytes: int
    allocated_bytes: int
    mode: int
    uid: int
    gid: int
    device: tuple[int, int] = field(default=(0, 0))
    """major and minor of a device node; of the filesystem's device otherwise."""
    inode: int = 0


@dataclass(frozen=True)
class Space:
    """Size of the filesystem at a path, and what an unprivileged user can still use of it."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class OpenDevice:
    """A block device that is held open on its host."""

    handle: int
    path: str
    """Leads to the open device and no other, whatever becomes of the name it was opened by."""
    numbers: tuple[int, int]
    size_bytes: int
    sequence: int
    """Counts up whenever a device or its medium comes new; 0 where the kernel does not say."""
    uses: tuple[str, ...] = ()
    """Uses of it that go on until somebody ends them."""
    passing: tuple[str, ...] = ()
    """Uses by processes that have it open or locked at this moment: perhaps only to look."""

    @property
    def identity(self) -> tuple[tuple[int, int], int, int]:
        """The same for the same device only, until the machine is started anew."""
        return self.numbers, self.size_bytes, self.sequence


@dataclass(frozen=True)
class Busy:
    """Activity of a process while it was watched."""

    pid: int
    name: str
    cpu_share: float
    """Share of one processor."""
    io_bytes_per_s: float
    """Read and written on storage; 0 where the process belongs to another user and we are not root."""

    @property
    def text(self) -> str:
        moved = f", {self.io_bytes_per_s / 1e6:.0f} MB/s" if self.io_bytes_per_s >= 1e6 else ""
        return f"{self.name} (pid {self.pid}: {self.cpu_share:.0%} of a CPU{moved})"


@dataclass(frozen=True)
class ProcessorSeconds:
    """Processor time of a host since boot, in seconds."""

    busy_s: float
    """Processor time of all processes and of the kernel's threads."""
    own_s: float
    """The part of the kernel's threads and of processes that are ours."""
    stolen_s: float
    """Withheld by the hypervisor."""
    processors: int


class Watcher(Protocol):
    """Is told of every command and program of a host, in the order in which they begin. A `look` only reads."""

    def begin(self, command: Command, *, look: bool) -> int:
        """Before it runs; what this raises keeps it from running. The number is handed to `end`."""
        ...

    def end(self, number: int, exit_code: int | None, duration_s: float) -> None:
        """After it has ended, or could not be started (exit code None). Not called when the host is lost meanwhile."""
        ...


Call = Callable[..., Any]
"""Runs one operation of the agent: `call("read", path=...)`."""


def refuse(host: str, error: AgentError) -> PgstrataError:
    """An agent's refusal as an error for the user."""
    if error.kind == "user":
        hint = "run pgstrata as root, or connect as root" if "only root" in str(error) else ""
        return PreflightError(f"refused on {host}: {error}", hint=hint)
    return PgstrataError(f"the agent on {host} failed: {error}")


Notes = dict[str, tuple[str, "Process"]]
"""Notes of exit codes that are still awaited, with the marker of their program: kept on this side, because an agent may
be lost and replaced."""

NOTE_PATIENCE_S = 10.0
"""For a keeper to write down how its program has ended."""


class Process:
    """A program started in the background by the agent, with its output in files on its host."""

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
        """The exit code, or None while it runs."""
        return self._note(self._call("poll", handle=self._handle) if self._code is None else self._code)

    def wait(self, timeout_s: float) -> int:
        """The exit code; CommandFailed (timed out) when it still runs after `timeout_s`."""
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
        """Ask it to end (SIGINT), then kill it; returns the exit code."""
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


class Host(ABC):
    """A machine: its operations are those of an agent there, which `_call` of a kind of host reaches. Paths are paths
    over there.

    File operations raise OSError (FileNotFoundError, PermissionError, ...) wherever the host is; a program that is
    not there ends with exit code 127. HostLost when the connection breaks.
    """

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
        """`local`, `ssh://...` or `lab/NAME`."""
        return self._name

    @property
    def peer_address(self) -> str:
        """By which other hosts of the same kind reach it; empty where that is nothing that is known beforehand."""
        return self._peer_address

    @property
    def kind(self) -> HostKind:
        """`emulated` marks results as functional-only everywhere."""
        return self._kind

    def mark(self, marker: str) -> None:
        """Every command from now on has PGSTRATA_TRIAL=`marker` in its environment, unless it brings its own: one
        that runs on after pgstrata was killed is found by it."""
        self._marker = marker

    def interruptible(self, waiting: Waiting) -> None:
        """From now on waits for commands and programs happen inside `waiting()`, which may raise when a signal comes.
        A command that is being waited for is killed then."""
        self._waiting = waiting

    def end_waits(self) -> None:
        """Ends the commands and marked programs that another thread waits for."""
        self._call("cancel")
        if self._marker:
            awaited = sorted(self._notes)
            self._call("stop_marked", marker=self._marker, grace_s=0.0, awaited=awaited, patience_s=30.0)

    def watched(self, watcher: Watcher | None) -> None:
        """From now on every command and program is told to `watcher`; None ends that."""
        self._watcher = watcher

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Inside the block commands only read: they are told to the watcher as looks."""
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
        """Inside the block no wait is interrupted: what takes things back must come to its end."""
        waiting, self._waiting = self._waiting, nullcontext
        try:
            yield
        finally:
            self._waiting = waiting

    def pause(self, seconds: float) -> None:
        """Sleeps, as a wait that a signal may end."""
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
        """Runs to the end. With `check`, raises CommandFailed on another exit code than 0; always on a timeout."""
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
        """Starts in the background, in a session of its own; output goes to new files, which are the caller's.

        FileExistsError when there is one already; both may be the same, and /dev/null.
        """
        end, began_s = self._begin(command), time.monotonic()
        what = self._what(command)
        try:
            handle = self._call("start", stdout=stdout, stderr=stderr, **what)
        except OSError:
            end(None, 0.0)
            raise

        def ended(code: int) -> None:
            end(code, time.monotonic() - began_s)

        process = Process(self._name, self._call, handle, command, self._notes, ended)
        self._notes[handle["exit_file"]] = (what["env"].get(MARKER, ""), process)
        return process

    def read_text(self, path: str, *, owner: str | None = None) -> str:
        """`owner` is an OS user who may change the folders on the way: the file must be a plain one of that user's,
        or PermissionError."""
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
        """Writes in place (also sysfs and proc files)."""
        self._call("write", path=path, data=text.encode(), mode=mode)

    def append_text(self, path: str, text: str) -> None:
        """Appends and makes it durable (fsync) before returning."""
        self._call("append", path=path, data=text.encode())

    def write_new(self, path: str, text: str) -> None:
        """Makes a durable file that is there with its whole text or not at all; FileExistsError. What a kill leaves
        is called `path` with `.new` behind it."""
        self._call("write_new", path=path, data=text.encode())

    def status(self, path: str, *, follow: bool = True) -> FileStatus | None:
        """None when there is nothing at that path."""
        found = self._call("status", path=path, follow=follow)
        if found is None:
            return None
        return FileStatus(**{**found, "device": tuple(found["device"])})

    def space(self, path: str) -> Space:
        return Space(**self._call("space", path=path))

    def list_directory(self, path: str) -> tuple[str, ...]:
        return tuple(self._call("list_directory", path=path))

    def read_ahead(self, path: str, *, most_bytes: int) -> None:
        """Begins to fetch the files of a tree into the page cache, up to `most_bytes`, for those who read them next."""
        self._call("read_ahead", path=path, most_bytes=most_bytes, patience_s=600.0)

    def make_directory(
        self, path: str, *, mode: int = 0o755, owner: str | None = None, group: str | None = None, new: bool = False
    ) -> None:
        """Makes it with its parents; an existing one is fine, unless `new` asks for FileExistsError.

        `owner` is the OS user it is to belong to, `group` one whose group it gets when it is made here.
        """
        self._call("make_directory", path=path, mode=mode, owner=owner, group=group, new=new)

    def remove(self, path: str) -> None:
        """Removes a file or a whole tree; nothing there is fine. OSError (EBUSY), with nothing removed, when
        something is mounted at or below it."""
        self._call("remove", path=path, patience_s=600.0)

    def fetch(self, path: str, to: str, *, owner: str | None = None, most_bytes: int = MOST_FETCHED_BYTES) -> int:
        """Copies a file from the host to a local path where there is none yet (streamed); gives its size.

        OSError when it cannot be read there (`owner` as for `read_text`) or is longer than `most_bytes`, RecordError
        when it cannot be written here.
        """
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
        """Copies a local file to the host (streamed)."""
        with Path(local).open("rb") as file:
            part, offset = file.read(CHUNK_BYTES), 0
            while part or offset == 0:
                self._call("write_chunk", path=path, offset=offset, data=part, mode=mode)
                offset += len(part)
                part = file.read(CHUNK_BYTES)
                if not part:
                    return

    def stop_marked(self, marker: str, grace_s: float = 30.0) -> tuple[int, ...]:
        """Ends every process with PGSTRATA_TRIAL=`marker` in its environment, and their children: SIGINT (a fast
        shutdown of PostgreSQL), SIGTERM, after `grace_s` SIGKILL. Gives the pids that were found."""
        awaited = sorted(self._notes)
        patience_s = grace_s + 10.0
        ended = self._call("stop_marked", marker=marker, grace_s=grace_s, awaited=awaited, patience_s=patience_s)
        for process in [process for owner, process in self._notes.values() if owner == marker]:
            process.learn()
        return tuple(ended)

    def forget_ended(self) -> None:
        """Removes what is noted of background programs that have ended, where those who started them are gone."""
        self._call("forget_ended")

    def state_directory(self) -> str:
        """Directory of pgstrata's locks and undo journal over there: /var/lib/pgstrata for root."""
        return str(self._call("state_directory"))

    def try_lock(self, name: str, payload: str) -> str | None:
        """Takes an advisory lock, held until `unlock` or the end of the connection. None when we have it, else the
        `payload` of its holder."""
        holder: str | None = self._call("try_lock", name=name, payload=payload)
        return holder

    def lock_holder(self, name: str) -> str | None:
        """The `payload` of a lock's holder, be it this program; None when nobody has it."""
        holder: str | None = self._call("lock_holder", name=name)
        return holder

    def unlock(self, name: str) -> None:
        """Gives a lock back; one that is not held is fine."""
        self._call("unlock", name=name)

    def open_device(self, path: str, *, write: bool = False, exclusive: bool = True) -> OpenDevice:
        """Opens a block device, to be closed by its handle. Only an exclusive opening looks for uses; one that
        cannot be had exclusively is opened all the same, with that among `passing`. It is held only with `write`."""
        found = self._call("open_device", path=path, write=write, exclusive=exclusive, patience_s=120.0)
        found = {**found, "numbers": tuple(found["numbers"]), "uses": tuple(found["uses"])}
        return OpenDevice(**{**found, "passing": tuple(found["passing"])})

    def close_device(self, handle: int) -> None:
        """Closes a device; one that is not open is fine."""
        self._call("close_device", handle=handle)

    def other_handles(self, handle: int) -> tuple[int, ...]:
        """Further handles of the same device: this program has had it open since they were opened."""
        return tuple(self._call("other_handles", handle=handle))

    def first_content(self, handle: int) -> int | None:
        """The offset of the first byte that is not zero, of all that are looked at: the whole of a small device, both
        ends and samples of a large one. None when all are zero."""
        found: int | None = self._call("first_content", handle=handle, patience_s=600.0)
        return found

    def zero(self, handle: int) -> None:
        """Zeroes exactly what `first_content` looks at, the start of the device last."""
        self._call("zero", handle=handle, patience_s=600.0)

    def processor_seconds(self, users: Sequence[str], programs: Sequence[str]) -> ProcessorSeconds:
        """Processor time since boot. Ours are pgstrata's own processes, those of the OS users, and these programs."""
        return ProcessorSeconds(**self._call("processor_seconds", users=list(users), programs=list(programs)))

    def busiest(self, seconds: float) -> tuple[Busy, ...]:
        """Watches all processes for that long; those that did something and are not ours, the busiest first."""
        return tuple(Busy(**busy) for busy in self._call("busiest", seconds=seconds, patience_s=60.0 + seconds))

    def reconnect(self, timeout_s: float = 300.0) -> bool:
        """After HostLost: reaches the host again and takes its locks back; HostLost when that fails. Commands that
        were running have been killed, background programs go on. True when the machine was not rebooted meanwhile."""
        return True

    def close(self) -> None:
        self._call("close")
