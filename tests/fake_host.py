"""A host that exists in memory: answers commands with what was recorded, keeps files in a dictionary.

It remembers what was asked.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from pgstrata.errors import PgstrataError, writing
from pgstrata.host.protocol import (
    MOST_FETCHED_BYTES,
    Busy,
    Command,
    CommandFailed,
    Completed,
    FileStatus,
    Host,
    HostKind,
    OpenDevice,
    Process,
    ProcessorSeconds,
    Space,
    Waiting,
    Watcher,
)

Answer = Callable[[Command], Completed | None]
"""How a command ends; None when this answer does not know it."""


class UnrecordedCommand(PgstrataError):
    """A command that nothing was recorded for."""


def completed(argv: tuple[str, ...], stdout: str = "", *, exit_code: int = 0, stderr: str = "") -> Completed:
    """A recorded end of a command."""
    return Completed(argv, exit_code, stdout, stderr, 0.0)


def opening(path: str) -> tuple[str, ...]:
    """The command that opens a file of the kernel for writing, and writes nothing."""
    return ("dd", "if=/dev/null", f"of={path}", "conv=nocreat,notrunc", "status=none")


def refused(path: str, why: str) -> Completed:
    """Its recorded refusal."""
    return completed(opening(path), exit_code=1, stderr=f"dd: failed to open '{path}': {why}\n")


class FakeProcess(Process):
    """A program that runs until it is waited for."""

    def __init__(self, pid: int, exit_code: int) -> None:
        self._pid = pid
        self._exit_code = exit_code
        self._is_over = False

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        return self._exit_code if self._is_over else None

    def wait(self, timeout_s: float) -> int:
        self._is_over = True
        return self._exit_code

    def stop(self, timeout_s: float = 10.0) -> int:
        return self.wait(timeout_s)


class FakeHost(Host):
    """`commands` are answered by exact argv, others by `answer`; what neither knows raises UnrecordedCommand, or ends
    with 127 (as a program that is not there) when `missing_programs` is true.
    """

    def __init__(
        self,
        commands: Mapping[Any, Completed] | None = None,
        *,
        files: Mapping[str, str] | None = None,
        answer: Answer | None = None,
        missing_programs: bool = False,
        uses: Mapping[str, tuple[str, ...]] | None = None,
        contents: Mapping[str, int] | None = None,
        locks: Mapping[str, str] | None = None,
        busy: tuple[Busy, ...] = (),
        name: str = "fake",
        kind: HostKind = "native",
    ) -> None:
        self._name = name
        self._kind: HostKind = kind
        self._recorded: dict[tuple[str, ...], Completed] = dict(commands or {})
        self._answer = answer
        self._missing_programs = missing_programs
        self._uses = dict(uses or {})
        self._contents = dict(contents or {})
        self._handles: dict[int, str] = {}
        self._others_locks = dict(locks or {})
        self._busy = busy
        self._pids = itertools.count(1000)
        self._watcher: Watcher | None = None
        self._looking = False
        self.asked: list[Command] = []
        self.stopped_markers: list[str] = []
        self.files: dict[str, bytes] = {}
        self.modes: dict[str, int] = {"/": 0o755}
        for path, text in (files or {}).items():
            self.make_directory(str(PurePosixPath(path).parent))
            self.write_text(path, text)

    def _call(self, operation: str, *, patience_s: float = 60.0, **arguments: Any) -> Any:
        raise AssertionError(f"{operation}: a made-up host has no agent")

    @property
    def name(self) -> str:
        return self._name

    @property
    def peer_address(self) -> str:
        return ""

    @property
    def kind(self) -> HostKind:
        return self._kind

    def run(self, command: Command, *, check: bool = True) -> Completed:
        done = self._end_of(command)
        if check and done.exit_code != 0:
            raise CommandFailed(self._name, done)
        return done

    def _end_of(self, command: Command) -> Completed:
        if self._watcher is not None:
            number = self._watcher.begin(command, look=self._looking)
            done = self._answer_of(command)
            self._watcher.end(number, done.exit_code, done.duration_s)
            return done
        return self._answer_of(command)

    def _answer_of(self, command: Command) -> Completed:
        self.asked.append(command)
        done = self._recorded.get(command.argv)
        if done is None and self._answer is not None:
            done = self._answer(command)
        if done is None and self._missing_programs:
            done = completed(command.argv, exit_code=127, stderr=f"{command.argv[0]}: No such file or directory")
        if done is None:
            raise UnrecordedCommand(f"nothing is recorded for this command: {command.text}")
        return done

    def start(self, command: Command, *, stdout: str, stderr: str) -> Process:
        done = self._end_of(command)
        self.write_text(stdout, done.stdout)
        if stderr != stdout:
            self.write_text(stderr, done.stderr)
        return FakeProcess(next(self._pids), done.exit_code)

    def read_text(self, path: str, *, owner: str | None = None) -> str:
        return self._bytes(path).decode()

    def _bytes(self, path: str) -> bytes:
        if path not in self.files:
            kind = errno.EISDIR if path in self.modes else errno.ENOENT
            raise OSError(kind, os.strerror(kind), path)
        return self.files[path]

    def _put(self, path: str, data: bytes, mode: int) -> None:
        parent = str(PurePosixPath(path).parent)
        if parent not in self.modes or parent in self.files:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if path in self.modes and path not in self.files:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.modes.setdefault(path, mode)
        self.files[path] = data

    def write_text(self, path: str, text: str, *, mode: int = 0o644) -> None:
        self._put(path, text.encode(), mode)

    def append_text(self, path: str, text: str) -> None:
        self._put(path, self.files.get(path, b"") + text.encode(), 0o644)

    def write_new(self, path: str, text: str) -> None:
        if path in self.modes:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._put(path, text.encode(), 0o600)

    def status(self, path: str, *, follow: bool = True) -> FileStatus | None:
        if path not in self.modes:
            return None
        size = len(self.files.get(path, b""))
        return FileStatus("file" if path in self.files else "directory", size, size, self.modes[path], 0, 0)

    def space(self, path: str) -> Space:
        return Space(total_bytes=1 << 40, free_bytes=1 << 39)

    def list_directory(self, path: str) -> tuple[str, ...]:
        if path not in self.modes or path in self.files:
            kind = errno.ENOTDIR if path in self.files else errno.ENOENT
            raise OSError(kind, os.strerror(kind), path)
        return tuple(sorted(PurePosixPath(p).name for p in self.modes if p != "/" and _parent(p) == path))

    def read_ahead(self, path: str, *, most_bytes: int) -> None:
        """There is no page cache here."""

    def make_directory(
        self, path: str, *, mode: int = 0o755, owner: str | None = None, group: str | None = None, new: bool = False
    ) -> None:
        if new and path in self.modes:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        for parent in (*reversed(PurePosixPath(path).parents), PurePosixPath(path)):
            if str(parent) in self.files:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(parent))
            self.modes.setdefault(str(parent), mode if str(parent) == path else 0o755)

    def remove(self, path: str) -> None:
        for gone in [p for p in self.modes if p == path or p.startswith(path.rstrip("/") + "/")]:
            del self.modes[gone]
            self.files.pop(gone, None)

    def fetch(self, path: str, to: str, *, owner: str | None = None, most_bytes: int = MOST_FETCHED_BYTES) -> int:
        data = self._bytes(path)
        if len(data) > most_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        with writing(Path(to)), Path(to).open("xb") as file:
            return file.write(data)

    def send(self, local: str, path: str, *, mode: int = 0o644) -> None:
        self._put(path, Path(local).read_bytes(), mode)

    def mark(self, marker: str) -> None:
        """Commands do not run here."""

    def interruptible(self, waiting: Waiting) -> None:
        """Nothing is waited for here."""

    def end_waits(self) -> None:
        """Nothing is waited for."""

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        yield

    def pause(self, seconds: float) -> None:
        """Time does not pass here."""

    def stop_marked(self, marker: str, grace_s: float = 30.0) -> tuple[int, ...]:
        self.stopped_markers.append(marker)
        return ()

    def forget_ended(self) -> None:
        """Nothing is noted here."""

    def state_directory(self) -> str:
        return "/var/lib/pgstrata"

    def try_lock(self, name: str, payload: str) -> str | None:
        return self._others_locks.get(name)

    def lock_holder(self, name: str) -> str | None:
        return self._others_locks.get(name)

    def unlock(self, name: str) -> None:
        """Locks of this host itself are always free."""

    def open_device(self, path: str, *, write: bool = False, exclusive: bool = True) -> OpenDevice:
        status = self.status(path)
        if status is None or status.kind != "block":
            raise OSError(errno.ENOTBLK, os.strerror(errno.ENOTBLK), path)
        handle = next(self._pids)
        self._handles[handle] = path
        sectors = self.read_text(f"/sys/class/block/{PurePosixPath(path).name}/size")
        return OpenDevice(handle, path, status.device, 512 * int(sectors), 0, self._uses.get(path, ()))

    def close_device(self, handle: int) -> None:
        self._handles.pop(handle, None)

    def other_handles(self, handle: int) -> tuple[int, ...]:
        return tuple(h for h, path in self._handles.items() if h != handle and path == self._handles[handle])

    def first_content(self, handle: int) -> int | None:
        return self._contents.get(self._handles[handle])

    def zero(self, handle: int) -> None:
        self._contents.pop(self._handles[handle], None)

    def processor_seconds(self, users: Sequence[str], programs: Sequence[str]) -> ProcessorSeconds:
        return ProcessorSeconds(0.0, 0.0, 0.0, 2)

    def busiest(self, seconds: float) -> tuple[Busy, ...]:
        return self._busy

    def reconnect(self, timeout_s: float = 300.0) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)
