"""The operations of a host, on the machine they happen on.

One file, standard library alone (Python 3.9 and later), because its source is also sent over ssh and run there.
`Agent` has the operations; `main` speaks them as JSON lines (`serve`) or stands by a background program until it
ends and notes its exit code in a file (`keep`), so that the program survives a lost connection. Imports nothing of
ours.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARKER = "PGSTRATA_TRIAL"
READY = "pgstrata-agent-ready"
"""Start of the line that the far side prints first of all; what precedes it is noise of login start-up files."""

BOOTSTRAP = (
    "import sys;sys.stdout.write('%c" + READY + " %d.%d%c'%(10,sys.version_info[0],sys.version_info[1],10));"
    "sys.stdout.flush();i=sys.stdin.buffer;n=int(i.readline());s=i.read(n).decode();"
    "g={'__name__':'pgstrata_agent','AGENT_SOURCE':s};exec(compile(s,'agent','exec'),g);g['main'](sys.argv[1:])"
)
"""The constant program that reads this file's source from standard input and runs it; free of characters that any
login shell treats specially inside single quotes."""

_EXIT_CANNOT_RUN = 126
_EXIT_NOT_FOUND = 127
_POLL_S = 0.02


class AgentError(Exception):
    """Refused by an operation for a reason that is not an errno; `kind` says which."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def environment(extra: dict[str, str]) -> dict[str, str]:
    """The minimal environment every command gets, with `extra` on top."""
    return {"PATH": PATH, "LC_ALL": "C", **extra}


def _identity(user: str | None) -> dict[str, Any]:
    """Arguments for Popen that switch to an OS user with its groups; none when we are that user already."""
    if user is None:
        return {}
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise AgentError("user", f"there is no OS user {user}") from None
    if entry.pw_uid == os.geteuid():
        return {}
    if os.geteuid() != 0:
        raise AgentError("user", f"only root can run a command as OS user {user}")
    groups = os.getgrouplist(user, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def _memory_file(data: bytes = b"") -> int:
    """An anonymous file: output goes there and not through a pipe, so that a daemon that a command leaves behind
    (pg_ctl start) cannot keep us waiting for an end of file."""
    fd = os.memfd_create("pgstrata")
    written = 0
    while written < len(data):
        written += os.write(fd, data[written:])
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _contents(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _wait_pid(pid: int, timeout_s: float) -> bool:
    """Waits until a process has ended, child or not; False when it still runs after `timeout_s`.

    A pidfd wakes us at once, where subprocess's own wait with a timeout sleeps up to 50 ms between looks.
    """
    deadline = time.monotonic() + timeout_s
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # no pidfds before Linux 5.3, or forbidden by a sandbox
        fd = -1
    try:
        if fd >= 0:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            return bool(poller.poll(max(0.0, timeout_s) * 1000))
        while _started(pid) is not None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True
    finally:
        if fd >= 0:
            os.close(fd)


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _started(pid: int) -> int | None:
    """When a live process started (clock ticks since boot): tells it from a later one with the same pid."""
    fields = _stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def _signal(pid: int, number: int, *, group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if group else os.kill)(pid, number)


def _group_lives(group: int) -> bool:
    """Whether a process group has a member that is not merely waiting to be reaped."""
    every = (_stat_fields(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return any(fields is not None and int(fields[2]) == group and fields[0] not in "ZX" for fields in every)


def _kill_group(process: subprocess.Popen[bytes], timeout_s: float = 5.0) -> None:
    """Kills a process group, and waits until its last member is gone: it may write to a device until then."""
    deadline = time.monotonic() + timeout_s
    _signal(process.pid, signal.SIGKILL, group=True)
    process.wait()
    while _group_lives(process.pid) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _decode_mount(text: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text


def _mounts_within(path: str) -> list[str]:
    """Mount points at or below a path, bind mounts included (their st_dev would not give them away)."""
    real = os.path.realpath(path)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        points = [_decode_mount(line.split()[4]) for line in file]
    return [point for point in points if point == real or point.startswith(real.rstrip("/") + "/")]


def _processes() -> Iterator[tuple[int, int]]:
    """(pid, parent's pid) of every live process."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat_fields(int(name))
            if fields is not None and fields[0] not in "ZX":
                yield int(name), int(fields[1])


def _has_marker(pid: int, entry: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return entry in file.read().split(b"\0")
    except OSError:  # ended meanwhile, or another user's
        return False


def marked_processes(marker: str) -> dict[int, int]:
    """Live processes whose environment holds the marker, and their descendants: pid -> parent's pid.

    Descendants, because PostgreSQL overwrites the environment of its children with their process titles. Never
    this process or one it descends from.
    """
    parents = dict(_processes())
    ours = set()
    pid = os.getpid()
    while pid:
        ours.add(pid)
        pid = parents.get(pid, 0)
    entry = f"{MARKER}={marker}".encode()
    found = {p for p in parents if p not in ours and _has_marker(p, entry)}
    grown = True
    while grown:
        more = {p for p, parent in parents.items() if parent in found and p not in ours} - found
        found |= more
        grown = bool(more)
    return {p: parents[p] for p in found}


def default_state_directory() -> str:
    """Where locks and the undo journal live: outlives a reboot, because loop files and signatures do."""
    if os.geteuid() == 0:
        return "/var/lib/pgstrata"
    home = os.path.expanduser("~")
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state"), "pgstrata")


def _runtime_directory() -> str:
    """Where exit codes of background programs are noted; gone after a reboot, as the programs are."""
    if os.geteuid() == 0:
        return "/run/pgstrata"
    return os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/tmp", f"pgstrata-{os.geteuid()}")


def _new_exit_file(directory: str) -> str:
    """An empty file for an exit code: while it is there, nobody removes the directory as empty."""
    path = os.path.join(directory, f"{uuid.uuid4().hex}.exit")
    while True:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            return path
        except FileNotFoundError:  # removed in between
            continue


def _remove_empty(directory: str) -> None:
    with contextlib.suppress(OSError):  # others still use it
        os.rmdir(directory)


def _own_source() -> str:
    sent: str | None = globals().get("AGENT_SOURCE")
    if sent is not None:
        return sent
    with open(__file__, encoding="utf-8") as file:
        return file.read()


class Agent:
    """Every operation, by plain values: what goes over the wire as JSON (bytes as base64)."""

    def __init__(self, state_directory: str | None = None) -> None:
        self._state_directory = state_directory or default_state_directory()
        self._foreground: dict[str, int] = {}
        self._locks: dict[str, int] = {}

    # --- commands

    def run(
        self,
        argv: list[str],
        timeout_s: float,
        stdin: bytes = b"",
        user: str | None = None,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        token: str = "",
    ) -> dict[str, Any]:
        """Runs to the end; on a timeout the whole process group is killed and `timed_out` is true.

        A program that is not there gives exit code 127, one that cannot be executed 126, as from a shell.
        """
        files = [_memory_file(stdin), _memory_file(), _memory_file()]
        began = time.monotonic()
        try:
            code, timed_out = self._run(argv, timeout_s, files, _identity(user), env or {}, cwd, token)
            return {
                "exit_code": code,
                "stdout": _contents(files[1]),
                "stderr": _contents(files[2]),
                "duration_s": time.monotonic() - began,
                "timed_out": timed_out,
            }
        finally:
            for fd in files:
                os.close(fd)

    def _run(
        self,
        argv: list[str],
        timeout_s: float,
        files: list[int],
        identity: dict[str, Any],
        env: dict[str, str],
        cwd: str | None,
        token: str,
    ) -> tuple[int, bool]:
        if cwd is not None and not os.path.isdir(cwd):
            raise NotADirectoryError(errno.ENOTDIR, "no directory to run in", cwd)
        try:
            process = subprocess.Popen(
                argv,
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                env=environment(env),
                cwd=cwd,
                start_new_session=True,
                **identity,
            )
        except (FileNotFoundError, PermissionError) as error:
            os.write(files[2], f"{argv[0]}: {error.strerror}\n".encode())
            return (_EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else _EXIT_CANNOT_RUN), False
        self._foreground[token] = process.pid
        try:
            ended = _wait_pid(process.pid, timeout_s)
            if not ended:
                _kill_group(process)
            return process.wait(), not ended
        except BaseException:  # interrupted: nothing may go on behind our back
            _kill_group(process)
            raise
        finally:
            self._foreground.pop(token, None)

    def cancel(self, token: str = "") -> None:
        """Kills the foreground command of that token; of every token when empty."""
        for name, pid in list(self._foreground.items()):
            if token in ("", name):
                _signal(pid, signal.SIGKILL, group=True)

    # --- background programs

    def start(
        self,
        argv: list[str],
        stdout: str,
        stderr: str,
        stdin: bytes = b"",
        user: str | None = None,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
    ) -> dict[str, Any]:
        """Starts a program in a session of its own, with a keeper beside it that notes its exit code in a file."""
        _identity(user)
        exit_file = _new_exit_file(_runtime_directory())
        request: dict[str, Any] = {"argv": argv, "stdout": stdout, "stderr": stderr, "stdin": stdin, "user": user}
        request.update(env=env or {}, cwd=cwd, exit_file=exit_file)
        source = _own_source().encode()
        try:
            keeper = subprocess.run(
                [sys.executable, "-I", "-S", "-c", BOOTSTRAP, "keep"],
                input=b"%d\n" % len(source) + source + encode(request),
                stdout=subprocess.PIPE,
                env=environment({}),
                start_new_session=True,
                check=True,
                timeout=30,
            )
            handle: dict[str, Any] = result(decode(keeper.stdout.splitlines()[-1]))
        except BaseException:
            self.forget({"exit_file": exit_file})
            raise
        return handle

    def poll(self, handle: dict[str, Any]) -> int | None:
        """The exit code of a started program, or None while it runs.

        When its keeper was killed the code is unknown: the program counts as killed (-9) once it is gone.
        """
        keeper_lives = _started(handle["keeper"]) == handle["keeper_started"]
        try:
            with open(handle["exit_file"], encoding="ascii") as file:
                text = file.read()
        except FileNotFoundError:
            text = ""
        if text:
            return int(text)
        return None if keeper_lives or _started(handle["pid"]) == handle["started"] else -signal.SIGKILL

    def wait(self, handle: dict[str, Any], timeout_s: float) -> int | None:
        """The exit code; None when it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        if self.poll(handle) is None:
            _wait_pid(handle["keeper"], timeout_s)
        while (code := self.poll(handle)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return code

    def stop(self, handle: dict[str, Any], timeout_s: float) -> int | None:
        """SIGINT to the program, SIGKILL to its process group when it does not end in time."""
        if _started(handle["pid"]) == handle["started"]:
            _signal(handle["pid"], signal.SIGINT)
        code = self.wait(handle, timeout_s)
        if code is None:
            _signal(handle["pid"], signal.SIGKILL, group=True)
            code = self.wait(handle, 10.0)
        return code

    def forget(self, handle: dict[str, Any]) -> None:
        """Removes the note of an exit code that was received."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(handle["exit_file"])
        _remove_empty(os.path.dirname(handle["exit_file"]))

    def stop_marked(self, marker: str, grace_s: float) -> list[int]:
        """Ends every process of a trial (see `marked_processes`); gives the pids that were there.

        SIGINT first (a fast shutdown of PostgreSQL), SIGTERM after half the grace, both to the topmost ones alone:
        PostgreSQL's own children use these signals otherwise. SIGKILL to all that is left after the grace.
        """
        seen: set[int] = set()
        for number, share in ((signal.SIGINT, 0.5), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.0)):
            found = marked_processes(marker)
            seen.update(found)
            for pid, parent in found.items():
                if number == signal.SIGKILL or parent not in found:
                    _signal(pid, number)
            deadline = time.monotonic() + max(grace_s * share, 5.0 if number == signal.SIGKILL else 0.0)
            while found and time.monotonic() < deadline:
                for pid in found:
                    _wait_pid(pid, max(0.0, deadline - time.monotonic()))
                found = marked_processes(marker)
                seen.update(found)
        return sorted(seen)

    # --- files

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def read_chunk(self, path: str, offset: int, size: int) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, offset)

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Writes in place; `mode` is for a file that is made here. One unbuffered write, as sysfs wants."""
        existed = os.path.lexists(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            if not existed:
                os.fchmod(fd, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def write_chunk(self, path: str, offset: int, data: bytes, mode: int) -> None:
        """Part of a streamed copy; the part at offset 0 makes or truncates the file."""
        if offset == 0:
            self.write(path, data, mode)
            return
        with open(path, "r+b", buffering=0) as file:
            view = memoryview(data)
            while view:
                written = os.pwrite(file.fileno(), view, offset)
                offset += written
                view = view[written:]

    def append(self, path: str, data: bytes) -> None:
        """Appends and syncs; a file that is made here is synced in its directory too."""
        existed = os.path.exists(path)
        with open(path, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if not existed:
            directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def status(self, path: str, follow: bool) -> dict[str, Any] | None:
        try:
            found = os.stat(path, follow_symlinks=follow)
        except (FileNotFoundError, NotADirectoryError):
            return None
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFBLK: "block", stat.S_IFLNK: "symlink"}
        device = found.st_rdev if stat.S_ISBLK(found.st_mode) else found.st_dev
        return {
            "kind": kinds.get(stat.S_IFMT(found.st_mode), "other"),
            "size_bytes": found.st_size,
            "allocated_bytes": found.st_blocks * 512,
            "mode": stat.S_IMODE(found.st_mode),
            "uid": found.st_uid,
            "gid": found.st_gid,
            "device": [os.major(device), os.minor(device)],
        }

    def space(self, path: str) -> dict[str, int]:
        """Size of the filesystem at a path and what an unprivileged user can still use of it."""
        found = os.statvfs(path)
        return {"total_bytes": found.f_blocks * found.f_frsize, "free_bytes": found.f_bavail * found.f_frsize}

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str, mode: int, owner: str | None) -> None:
        """Makes it with its parents. `mode` is for a directory made here, `owner` for an existing one too."""
        if not os.path.isdir(path):
            os.makedirs(path)
            os.chmod(path, mode)
        if owner is not None:
            try:
                entry = pwd.getpwnam(owner)
            except KeyError:
                raise AgentError("user", f"there is no OS user {owner}") from None
            os.chown(path, entry.pw_uid, entry.pw_gid)

    def remove(self, path: str) -> None:
        """Removes a file, a link (not what it points to) or a tree; refuses a tree with something mounted in it."""
        if not os.path.lexists(path):
            return
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
            return
        mounted = _mounts_within(path)
        if mounted:
            raise OSError(errno.EBUSY, "not removed, because something is mounted at or below it", mounted[0])
        shutil.rmtree(path)

    # --- devices and locks

    def open_exclusive(self, device: str) -> bool:
        """Whether a block device can be opened exclusively: False while it is mounted, a PV, md member or swap."""
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
        return True

    def state_directory(self) -> str:
        return self._state_directory

    def try_lock(self, name: str, payload: str) -> str | None:
        """Takes a lock for the life of this agent; None when we have it, else what its holder wrote."""
        if name in self._locks:
            return None
        directory = os.path.join(self._state_directory, "locks")
        os.makedirs(directory, mode=0o755, exist_ok=True)
        path = self._lock_path(name)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(fd, 4096).decode(errors="replace")
                os.close(fd)
                return holder or "another process"
            # The last holder removes the file on release: a lock on a file that is no longer there is worth nothing.
            if os.path.exists(path) and os.path.samestat(os.fstat(fd), os.stat(path)):
                break
            os.close(fd)
        os.ftruncate(fd, 0)
        os.write(fd, payload.encode())
        self._locks[name] = fd
        return None

    def unlock(self, name: str) -> None:
        fd = self._locks.pop(name, None)
        if fd is not None:
            os.unlink(self._lock_path(name))
            os.close(fd)
            _remove_empty(os.path.join(self._state_directory, "locks"))

    def _lock_path(self, name: str) -> str:
        return os.path.join(self._state_directory, "locks", name.replace("/", "-"))

    def close(self) -> None:
        """Releases the locks and kills foreground commands; background programs go on."""
        self.cancel()
        for name in list(self._locks):
            self.unlock(name)

    # --- the other side of a connection

    def hello(self) -> dict[str, Any]:
        """Who answers: so that a connection that comes back can tell whether the old agent or boot is still there."""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return {"pid": os.getpid(), "started": _started(os.getpid()), "boot": boot, "uid": os.geteuid()}

    def supersede(self, pid: int, started: int, boot: str) -> None:
        """Kills an agent that outlived its connection, so that its locks come free."""
        here = self.hello()
        if boot == here["boot"] and pid != here["pid"] and _started(pid) == started:
            _signal(pid, signal.SIGTERM)
            if not _wait_pid(pid, 5.0):
                _signal(pid, signal.SIGKILL)
                _wait_pid(pid, 5.0)


OPERATIONS = frozenset(name for name in vars(Agent) if not name.startswith("_"))


# --- wire format


def _encode_value(value: object) -> object:
    if isinstance(value, (bytes, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"cannot send {type(value).__name__}")


def _decode_value(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["base64"]) if value.keys() == {"base64"} else value


def encode(message: dict[str, Any]) -> bytes:
    """A message as one line."""
    return json.dumps(message, default=_encode_value).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """A message from one line."""
    value: dict[str, Any] = json.loads(line, object_hook=_decode_value)
    return value


def call(function: Callable[[], Any]) -> dict[str, Any]:
    """The answer to a request: its value, or its error in a form that `result` raises again on the other side."""
    try:
        return {"value": function()}
    except AgentError as error:
        return {"error": {"kind": error.kind, "message": str(error)}}
    except OSError as error:
        return {
            "error": {"kind": "os", "errno": error.errno, "message": error.strerror, "path": str(error.filename or "")}
        }
    except Exception as error:  # an answer must come in any case: the other side waits for it
        return {"error": {"kind": "bug", "message": repr(error)}}


def result(answer: dict[str, Any]) -> Any:
    error = answer.get("error")
    if error is None:
        return answer["value"]
    if error["kind"] == "os":
        raise OSError(error["errno"], error["message"], error["path"])
    raise AgentError(error["kind"], error["message"])


# --- programs


def _serve(state_directory: str | None = None) -> None:
    """Answers requests from standard input until it ends; each in a thread, so that a long one blocks no other."""
    source = sys.stdin.buffer  # not a new file: this one may have read ahead of the bootstrap
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    agent, lock = Agent(state_directory), threading.Lock()

    def end(*_: object) -> None:
        agent.close()
        os._exit(0)

    def answer(request: dict[str, Any]) -> None:
        operation = request["op"]
        if operation not in OPERATIONS:
            reply = {"error": {"kind": "protocol", "message": f"no operation {operation}"}}
        else:
            reply = call(lambda: getattr(agent, operation)(**request["args"]))
        with lock, contextlib.suppress(BrokenPipeError):
            sink.write(encode({"id": request["id"], **reply}))
            sink.flush()

    signal.signal(signal.SIGTERM, end)
    for line in source:
        threading.Thread(target=answer, args=(decode(line),), daemon=True).start()
    end()


def _keep() -> None:
    """Starts one program, tells its pid, and stays until it ends to note the exit code."""
    request = decode(sys.stdin.buffer.readline())
    if os.fork():
        os._exit(0)
    process: subprocess.Popen[bytes] | None = None

    def begin() -> dict[str, Any]:
        nonlocal process
        process = _spawn(request)
        keeper = os.getpid()
        handle = {"pid": process.pid, "started": _started(process.pid) or 0, "exit_file": request["exit_file"]}
        return {**handle, "keeper": keeper, "keeper_started": _started(keeper)}

    sys.stdout.buffer.write(encode(call(begin)))
    sys.stdout.flush()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # after the program, which would inherit it
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.chdir("/")
    if process is not None:
        code = process.wait()
        part = request["exit_file"] + ".part"
        with open(part, "w", encoding="ascii") as file:
            file.write(str(code))
        os.rename(part, request["exit_file"])


def _spawn(request: dict[str, Any]) -> subprocess.Popen[bytes]:
    stdin = _memory_file(request["stdin"])
    for path in (request["stdout"], request["stderr"]):
        with open(path, "wb"):
            pass  # made empty here, so that both may name the same file below
    with open(request["stdout"], "ab") as out, open(request["stderr"], "ab") as err:
        return subprocess.Popen(
            request["argv"],
            stdin=stdin,
            stdout=out,
            stderr=err,
            env=environment(request["env"]),
            cwd=request["cwd"],
            start_new_session=True,
            **_identity(request["user"]),
        )


def main(arguments: list[str]) -> None:
    """Run as a program: `serve [STATE-DIRECTORY]` or `keep`."""
    {"serve": _serve, "keep": _keep}[arguments[0]](*arguments[1:])
