"""Running commands, starting and ending programs."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from pgstrata.host.agent.places import (
    exit_file_prefix,
    new_exit_file,
    remove_empty,
    remove_ended,
    runtime_directory,
)
from pgstrata.host.agent.processes import (
    MARKER,
    POLL_S,
    UMASK,
    contents,
    descends,
    environment,
    identity,
    kill_group,
    marked_processes,
    memory_file,
    processes,
    processor_seconds,
    send_signal,
    start_time,
    started_as,
    usage,
    wait_pid,
)
from pgstrata.host.agent.source import BOOTSTRAP, bundle
from pgstrata.host.agent.wire import decode, encode, result

_EXIT_CANNOT_RUN = 126
_EXIT_NOT_FOUND = 127
NOTE_PATIENCE_S = 1.0
_KERNEL_THREADS = 2
"""The pid of kthreadd, the parent of all kernel threads."""

Waiting = Callable[[], contextlib.AbstractContextManager[None]]
"""Context manager that a wait is wrapped in."""


class Commands:
    """Operations on processes."""

    def __init__(self, trials_of: str, waiting: Waiting = contextlib.nullcontext) -> None:
        """`trials_of` is the state directory of the trials that programs are started for. Waits for programs happen
        inside `waiting()`, the only place where a signal may raise."""
        self._trials_of = trials_of
        self._foreground: dict[str, int] = {}
        self._ended_s: dict[str, float] = {}
        """Processor time of started programs that have ended, by the note of their exit code."""
        self._waiting = waiting

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
        files = [memory_file(stdin), memory_file(), memory_file()]
        began = time.monotonic()
        try:
            code, timed_out = self._run(started_as(argv, user), timeout_s, files, env or {}, cwd, token)
            return {
                "exit_code": code,
                "stdout": contents(files[1]),
                "stderr": contents(files[2]),
                "duration_s": time.monotonic() - began,
                "timed_out": timed_out,
            }
        finally:
            for fd in files:
                os.close(fd)

    def _run(
        self,
        started: dict[str, Any],
        timeout_s: float,
        files: list[int],
        env: dict[str, str],
        cwd: str | None,
        token: str,
    ) -> tuple[int, bool]:
        if cwd is not None and not os.path.isdir(cwd):
            raise NotADirectoryError(errno.ENOTDIR, "no directory to run in", cwd)
        try:
            process = subprocess.Popen(
                **started,
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                env=environment(env),
                cwd=cwd,
                start_new_session=True,
                umask=UMASK,
            )
        except (FileNotFoundError, PermissionError) as error:
            os.write(files[2], f"{started['args'][0]}: {error.strerror}\n".encode())
            return (_EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else _EXIT_CANNOT_RUN), False
        self._foreground[token] = process.pid
        try:
            with self._waiting():
                ended = wait_pid(process.pid, timeout_s)
            if not ended:
                kill_group(process)
            return process.wait(), not ended
        except BaseException:  # interrupted: nothing may go on behind our back
            kill_group(process)
            raise
        finally:
            self._foreground.pop(token, None)

    def cancel(self, token: str = "") -> None:
        """Kills the foreground command of that token; of every token when empty."""
        for name, pid in list(self._foreground.items()):
            if token in ("", name):
                send_signal(pid, signal.SIGKILL, group=True)

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
        identity(user)
        exit_file = new_exit_file(runtime_directory(), (env or {}).get(MARKER, ""), self._trials_of)
        request: dict[str, Any] = {"argv": argv, "stdout": stdout, "stderr": stderr, "stdin": stdin, "user": user}
        request.update(env=env or {}, cwd=cwd, exit_file=exit_file)
        try:
            keeper = subprocess.run(
                [sys.executable, "-I", "-S", "-c", BOOTSTRAP, "keep"],
                input=bundle() + encode(request),
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
        keeper_lives = start_time(handle["keeper"]) == handle["keeper_started"]
        try:
            with open(handle["exit_file"], encoding="ascii") as file:
                text = file.read()
        except FileNotFoundError:
            text = ""
        if text:
            code, used_s = text.split()
            self._ended_s[handle["exit_file"]] = float(used_s)
            return int(code)
        return None if keeper_lives or start_time(handle["pid"]) == handle["started"] else -signal.SIGKILL

    def wait(self, handle: dict[str, Any], timeout_s: float) -> int | None:
        """The exit code; None when it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        if self.poll(handle) is None:
            with self._waiting():
                wait_pid(handle["keeper"], timeout_s)
        while (code := self.poll(handle)) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return code

    def stop(self, handle: dict[str, Any], timeout_s: float) -> int | None:
        """SIGINT to the program, SIGKILL to its process group when it does not end in time."""
        if start_time(handle["pid"]) == handle["started"]:
            send_signal(handle["pid"], signal.SIGINT)
        code = self.wait(handle, timeout_s)
        if code is None:
            send_signal(handle["pid"], signal.SIGKILL, group=True)
            code = self.wait(handle, 10.0)
        return code

    def forget(self, handle: dict[str, Any]) -> None:
        """Removes the note of an exit code that was received."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(handle["exit_file"])
        remove_empty(os.path.dirname(handle["exit_file"]))

    def stop_marked(self, marker: str, grace_s: float, awaited: list[str]) -> list[int]:
        """Ends every process of a trial (see `marked_processes`); gives the pids that were there.

        Their notes of exit codes are removed, except the `awaited` ones.

        SIGINT first (a fast shutdown of PostgreSQL), SIGTERM after half the grace, both to the topmost ones alone:
        PostgreSQL's own children use these signals otherwise. SIGKILL to all that is left after the grace.
        """
        seen: set[int] = set()
        for number, share in ((signal.SIGINT, 0.5), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.0)):
            found = marked_processes(marker)
            seen.update(found)
            for pid, parent in found.items():
                if number == signal.SIGKILL or parent not in found:
                    send_signal(pid, number)
            deadline = time.monotonic() + max(grace_s * share, 5.0 if number == signal.SIGKILL else 0.0)
            while found and time.monotonic() < deadline:
                for pid in found:
                    wait_pid(pid, max(0.0, deadline - time.monotonic()))
                found = marked_processes(marker)
                seen.update(found)
        self._forget_marked(marker, awaited)
        return sorted(seen)

    def forget_ended(self) -> None:
        """Removes the notes of exit codes that nobody can ask for any more."""
        remove_ended(runtime_directory(), self._trials_of)

    def _forget_marked(self, marker: str, awaited: list[str]) -> None:
        """Removes the notes of exit codes that nobody will ask for any more: of programs that others started."""
        directory = runtime_directory()
        names = os.listdir(directory) if os.path.isdir(directory) else []
        deadline = time.monotonic() + NOTE_PATIENCE_S
        for name in names:
            path = os.path.join(directory, name)
            if not name.startswith(exit_file_prefix(marker)) or not name.endswith(".exit") or path in awaited:
                continue
            # A keeper that lives still writes its note; afterwards it would come back.
            with contextlib.suppress(FileNotFoundError):
                while os.path.getsize(path) == 0 and time.monotonic() < deadline:
                    time.sleep(POLL_S)
            self.forget({"exit_file": path})

    def processor_seconds(self, users: list[str], programs: list[str]) -> dict[str, Any]:
        """Processor time since boot, that of ours and of others."""
        return processor_seconds(users, programs, sum(self._ended_s.values()))

    def busiest(self, seconds: float) -> list[dict[str, Any]]:
        """Processes by what they did in the next `seconds`; this one and its descendants left out."""
        before = {pid: usage(pid) for pid, _ in processes()}
        began = time.monotonic()
        time.sleep(seconds)
        parents = dict(processes())
        elapsed_s = time.monotonic() - began
        found = []
        for pid in parents:
            then, now = before.get(pid), usage(pid)
            if then is None or now is None or descends(pid, os.getpid(), parents):
                continue
            if descends(pid, _KERNEL_THREADS, parents):  # they work for others, who are seen themselves
                continue
            cpu, moved = (now[1] - then[1]) / elapsed_s, (now[2] - then[2]) / elapsed_s
            if cpu > 0 or moved > 0:
                found.append({"pid": pid, "name": now[0], "cpu_share": cpu, "io_bytes_per_s": moved})
        return sorted(found, key=lambda busy: (busy["cpu_share"], busy["io_bytes_per_s"]), reverse=True)
