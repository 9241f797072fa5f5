"""Processes as /proc shows them: waiting for them, signalling them, finding them."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from pgstrata.host.agent.wire import AgentError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARKER = "PGSTRATA_TRIAL"
UMASK = 0o022
"""Umask of every command, whatever the caller's is: the server's user must reach folders that root has made."""
POLL_S = 0.02
_EXEC_PATIENCE_S = 1.0
_EXEC_POLL_S = 0.001
_PF_EXITING, _PF_KTHREAD = 0x4, 0x200000
"""Flags of a process (include/linux/sched.h)."""
MOST_OUTPUT_BYTES = 32 << 20
"""Most bytes of a command that is run to its end, on each of its outputs."""


def environment(extra: dict[str, str]) -> dict[str, str]:
    """The minimal environment every command gets, with `extra` on top."""
    return {"PATH": PATH, "LC_ALL": "C", **extra}


def identity(user: str | None) -> dict[str, Any]:
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


def started_as(argv: list[str], user: str | None) -> dict[str, Any]:
    """Arguments for Popen that run `argv` as an OS user, by setpriv of util-linux where there is one (that of
    BusyBox takes other options).

    Popen forks in order to switch users, and a fork copies the page tables of the caller: 36 ms of processor for a
    process of 400 MB, where setpriv, which is executed like any program, takes 3 ms.
    """
    switch = identity(user)
    setpriv = shutil.which("setpriv", path=PATH) if switch else None
    if setpriv is None or os.path.basename(os.path.realpath(setpriv)) != "setpriv":
        return {"args": argv, **switch}
    groups = ",".join(map(str, switch["extra_groups"]))
    words = [f"--reuid={switch['user']}", f"--regid={switch['group']}", f"--groups={groups}"]
    return {"args": [setpriv, *words, "--", *argv]}


def memory_file(data: bytes = b"") -> int:
    """An anonymous file: output goes there and not through a pipe, so that a daemon that a command leaves behind
    (pg_ctl start) cannot keep us waiting for an end of file."""
    fd = os.memfd_create("pgstrata")
    written = 0
    while written < len(data):
        written += os.write(fd, data[written:])
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def contents(fd: int) -> bytes:
    if os.fstat(fd).st_size > MOST_OUTPUT_BYTES:
        raise OSError(errno.EFBIG, f"the program printed more than {MOST_OUTPUT_BYTES} bytes")
    os.lseek(fd, 0, os.SEEK_SET)
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def wait_pid(pid: int, timeout_s: float) -> bool:
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
        while start_time(pid) is not None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True
    finally:
        if fd >= 0:
            os.close(fd)


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def start_time(pid: int) -> int | None:
    """When a live process started (clock ticks since boot): tells it from a later one with the same pid."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def send_signal(pid: int, number: int, *, group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if group else os.kill)(pid, number)


def _group_lives(group: int) -> bool:
    """True if a process group has a member that is not merely waiting to be reaped."""
    every = (stat_fields(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return any(fields is not None and int(fields[2]) == group and fields[0] not in "ZX" for fields in every)


def kill_group(process: subprocess.Popen[bytes], timeout_s: float = 5.0) -> None:
    """Kills a process group, and waits until its last member is gone: it may write to a device until then."""
    deadline = time.monotonic() + timeout_s
    send_signal(process.pid, signal.SIGKILL, group=True)
    process.wait()
    while _group_lives(process.pid) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def processes() -> Iterator[tuple[int, int]]:
    """(pid, parent's pid) of every live process."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields is not None and fields[0] not in "ZX":
                yield int(name), int(fields[1])


def descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor


def has_marker(pid: int, marker: str) -> bool:
    """True if the environment of a live process holds the marker.

    A program that is just being executed shows no environment yet, although whoever started it goes on already: it is
    looked at until it does, for a second at most.
    """
    entry = f"{MARKER}={marker}".encode()
    deadline = time.monotonic() + _EXEC_PATIENCE_S
    while True:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                shown = file.read()
        except OSError:  # ended meanwhile, or another user's
            return False
        if shown or not _environment_may_come(pid) or time.monotonic() >= deadline:
            return entry in shown.split(b"\0")
        time.sleep(_EXEC_POLL_S)


def _environment_may_come(pid: int) -> bool:
    """True if a process that shows no environment may have one: not a thread of the kernel, not ending, and not a
    program that was given an empty one (proc_pid_stat(5): flags, env_start, env_end)."""
    fields = stat_fields(pid)
    if fields is None or int(fields[6]) & (_PF_KTHREAD | _PF_EXITING):
        return False
    return int(fields[48]) == 0 or fields[47] != fields[48]


def marked_processes(marker: str) -> dict[int, int]:
    """Live processes whose environment holds the marker, and their descendants: pid -> parent's pid.

    Descendants, because PostgreSQL overwrites the environment of its children with their process titles. Never
    this process or one it descends from.
    """
    parents = dict(processes())
    ours = set()
    pid = os.getpid()
    while pid:
        ours.add(pid)
        pid = parents.get(pid, 0)
    found = {p for p in parents if p not in ours and has_marker(p, marker)}
    grown = True
    while grown:
        more = {p for p, parent in parents.items() if parent in found and p not in ours} - found
        found |= more
        grown = bool(more)
    return {p: parents[p] for p in found}


def processor_seconds(users: list[str], programs: list[str], ended_s: float) -> dict[str, Any]:
    """Processor time since boot: of all processors, of the kernel's threads and our own processes in it, and stolen.

    Ours are this process and its descendants, processes of the OS users, programs of these names (/proc/PID/comm), and
    programs that we started and that have ended, with `ended_s`.
    """
    uids = {pwd.getpwnam(user).pw_uid for user in users}
    with open("/proc/stat", encoding="ascii") as file:
        lines = file.read().splitlines()
    total = [int(word) for word in lines[0].split()[1:]]
    found = {int(name): stat_fields(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    every = {pid: fields for pid, fields in found.items() if fields is not None}
    parents = {pid: int(fields[1]) for pid, fields in every.items()}
    own_ticks = 0
    for pid, fields in every.items():
        own = int(fields[6]) & _PF_KTHREAD or descends(pid, os.getpid(), parents)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if own or os.stat(f"/proc/{pid}").st_uid in uids or _name(pid) in programs:
                # With those of its children that it has waited for.
                own_ticks += sum(int(field) for field in fields[11:15])
    hertz = os.sysconf("SC_CLK_TCK")
    return {
        "busy_s": sum(total[:3]) / hertz,
        "own_s": own_ticks / hertz + ended_s,
        "stolen_s": (total[7] if len(total) > 7 else 0) / hertz,
        "processors": sum(line.startswith("cpu") for line in lines) - 1,
    }


def _name(pid: int) -> str:
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def usage(pid: int) -> tuple[str, float, int] | None:
    """Name, processor seconds and storage bytes of a process so far."""
    fields = stat_fields(pid)
    if fields is None:
        return None
    moved = 0
    try:
        name = _name(pid)
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            counters = dict(line.split(": ") for line in file.read().splitlines())
        moved = int(counters["read_bytes"]) + int(counters["write_bytes"])
    except PermissionError:  # another user's: its processor time is known all the same
        pass
    except (FileNotFoundError, ProcessLookupError):
        return None
    return name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), moved
