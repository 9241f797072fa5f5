"""Operations of every host: the types shared by local, ssh and fake hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pgstrata.errors import PgstrataError
from pgstrata.host.agent.processes import MARKER

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


class Process(Protocol):
    """A program started in the background, with its output in files on its host."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        ...

    def wait(self, timeout_s: float) -> int:
        """The exit code; CommandFailed (timed out) when it still runs after `timeout_s`."""
        ...

    def stop(self, timeout_s: float = 10.0) -> int:
        """Ask it to end (SIGINT), then kill it; returns the exit code."""
        ...


class Host(Protocol):
    """A machine. Paths are paths over there.

    File operations raise OSError (FileNotFoundError, PermissionError, ...) wherever the host is; a program that is
    not there ends with exit code 127. HostLost when the connection breaks.
    """

    @property
    def name(self) -> str:
        """`local`, `ssh://...` or `lab/NAME`."""
        ...

    @property
    def peer_address(self) -> str:
        """By which other hosts of the same kind reach it; empty where that is nothing that is known beforehand."""
        ...

    @property
    def kind(self) -> HostKind:
        """`emulated` marks results as functional-only everywhere."""
        ...

    def run(self, command: Command, *, check: bool = True) -> Completed:
        """Runs to the end. With `check`, raises CommandFailed on another exit code than 0; always on a timeout."""
        ...

    def start(self, command: Command, *, stdout: str, stderr: str) -> Process:
        """Starts in the background, in a session of its own; output goes to new files, which are the caller's.

        FileExistsError when there is one already; both may be the same, and /dev/null.
        """
        ...

    def read_text(self, path: str, *, owner: str | None = None) -> str:
        """`owner` is an OS user who may change the folders on the way: the file must be a plain one of that user's,
        or PermissionError."""
        ...

    def write_text(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Writes in place (also sysfs and proc files)."""
        ...

    def append_text(self, path: str, text: str) -> None:
        """Appends and makes it durable (fsync) before returning."""
        ...

    def write_new(self, path: str, text: str) -> None:
        """Makes a durable file that is there with its whole text or not at all; FileExistsError. What a kill leaves
        is called `path` with `.new` behind it."""
        ...

    def status(self, path: str, *, follow: bool = True) -> FileStatus | None:
        """None when there is nothing at that path."""
        ...

    def space(self, path: str) -> Space: ...

    def list_directory(self, path: str) -> tuple[str, ...]: ...

    def read_ahead(self, path: str, *, most_bytes: int) -> None:
        """Begins to fetch the files of a tree into the page cache, up to `most_bytes`, for those who read them next."""
        ...

    def make_directory(
        self, path: str, *, mode: int = 0o755, owner: str | None = None, group: str | None = None, new: bool = False
    ) -> None:
        """Makes it with its parents; an existing one is fine, unless `new` asks for FileExistsError.

        `owner` is the OS user it is to belong to, `group` one whose group it gets when it is made here.
        """
        ...

    def remove(self, path: str) -> None:
        """Removes a file or a whole tree; nothing there is fine. OSError (EBUSY), with nothing removed, when
        something is mounted at or below it."""
        ...

    def fetch(self, path: str, to: str, *, owner: str | None = None, most_bytes: int = MOST_FETCHED_BYTES) -> int:
        """Copies a file from the host to a local path where there is none yet (streamed); gives its size.

        OSError when it cannot be read there (`owner` as for `read_text`) or is longer than `most_bytes`, RecordError
        when it cannot be written here.
        """
        ...

    def send(self, local: str, path: str, *, mode: int = 0o644) -> None:
        """Copies a local file to the host (streamed)."""
        ...

    def stop_marked(self, marker: str, grace_s: float = 30.0) -> tuple[int, ...]:
        """Ends every process with PGSTRATA_TRIAL=`marker` in its environment, and their children: SIGINT (a fast
        shutdown of PostgreSQL), SIGTERM, after `grace_s` SIGKILL. Gives the pids that were found."""
        ...

    def forget_ended(self) -> None:
        """Removes what is noted of background programs that have ended, where those who started them are gone."""
        ...

    def mark(self, marker: str) -> None:
        """Every command from now on has PGSTRATA_TRIAL=`marker` in its environment, unless it brings its own: one
        that runs on after pgstrata was killed is found by it."""
        ...

    def interruptible(self, waiting: Waiting) -> None:
        """From now on waits for commands and programs happen inside `waiting()`, which may raise when a signal comes.
        A command that is being waited for is killed then."""
        ...

    def end_waits(self) -> None:
        """Ends the commands and marked programs that another thread waits for."""
        ...

    def watched(self, watcher: Watcher | None) -> None:
        """From now on every command and program is told to `watcher`; None ends that."""
        ...

    def looking(self) -> AbstractContextManager[None]:
        """Inside the block commands only read: they are told to the watcher as looks."""
        ...

    def undisturbed(self) -> AbstractContextManager[None]:
        """Inside the block no wait is interrupted: what takes things back must come to its end."""
        ...

    def pause(self, seconds: float) -> None:
        """Sleeps, as a wait that a signal may end."""
        ...

    def state_directory(self) -> str:
        """Directory of pgstrata's locks and undo journal over there: /var/lib/pgstrata for root."""
        ...

    def try_lock(self, name: str, payload: str) -> str | None:
        """Takes an advisory lock, held until `unlock` or the end of the connection. None when we have it, else the
        `payload` of its holder."""
        ...

    def lock_holder(self, name: str) -> str | None:
        """The `payload` of a lock's holder, be it this program; None when nobody has it."""
        ...

    def unlock(self, name: str) -> None:
        """Gives a lock back; one that is not held is fine."""
        ...

    def open_device(self, path: str, *, write: bool = False, exclusive: bool = True) -> OpenDevice:
        """Opens a block device, to be closed by its handle. Only an exclusive opening looks for uses; one that
        cannot be had exclusively is opened all the same, with that among `passing`. It is held only with `write`."""
        ...

    def close_device(self, handle: int) -> None:
        """Closes a device; one that is not open is fine."""
        ...

    def other_handles(self, handle: int) -> tuple[int, ...]:
        """Further handles of the same device: this program has had it open since they were opened."""
        ...

    def first_content(self, handle: int) -> int | None:
        """The offset of the first byte that is not zero, of all that are looked at: the whole of a small device, both
        ends and samples of a large one. None when all are zero."""
        ...

    def zero(self, handle: int) -> None:
        """Zeroes exactly what `first_content` looks at, the start of the device last."""
        ...

    def processor_seconds(self, users: Sequence[str], programs: Sequence[str]) -> ProcessorSeconds:
        """Processor time since boot. Ours are pgstrata's own processes, those of the OS users, and these programs."""
        ...

    def busiest(self, seconds: float) -> tuple[Busy, ...]:
        """Watches all processes for that long; those that did something and are not ours, the busiest first."""
        ...

    def reconnect(self, timeout_s: float = 300.0) -> bool:
        """After HostLost: reaches the host again and takes its locks back; HostLost when that fails. Commands that
        were running have been killed, background programs go on. True when the machine was not rebooted meanwhile."""
        ...

    def close(self) -> None: ...
