"""Recovers states of recorded disks one after the other, and reports each. Run on the host as root; standard library
only.

A worker is a function of its job: the event log, the states that are its share, and the commands that mount and recover
one. It requests the disks of a state from a daemon of its own. It attaches and mounts them in its own mount namespace,
at the places of the recorded stack, so that workers do not conflict and links between volumes stay valid. Its mounts
are released when it ends. Each state prints a line of JSON on standard output.

A job without a server has one state, which is brought up visible to all and left so.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pwd
import re
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

PATIENCE_S = 300.0
BUSY_ATTEMPTS = 500
BUSY_PAUSE_S = 0.01
UNMOUNT_ATTEMPTS, FREE_EVERY = 1000, 210
CLONE_NEWNS, CLONE_NEWIPC = 0x20000, 0x08000000
MS_PRIVATE_EVERYWHERE = 0x4000 | 0x40000
MNT_DETACH = 2
LOOP_CLR_FD, LOOP_CONFIGURE, LOOP_CTL_GET_FREE = 0x4C01, 0x4C0A, 0x4C82
LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO = 4, 16
NOT_UP = 127
"""The exit code of a program that could not be run."""
REPAIRED = {"e2fsck": (1, 2)}
"""Exit codes of tools that repaired what they found, which is success; e2fsck(8)."""
FS_IOC_SHUTDOWN, SHUTDOWN_NOLOGFLUSH = 0x8004587D, 2
PIPE_BYTES = 65536
SAID = 400
"""Characters kept of a tool's last output."""

libc = ctypes.CDLL(None, use_errno=True)


class Broken(Exception):
    """An error of the worker itself, which says nothing about the state."""


def checked(code: int, what: str) -> None:
    if code != 0:
        raise Broken(f"{what}: {os.strerror(ctypes.get_errno())}")


class Daemon:
    """The control socket of the daemon that provides the disks of a state; its path may be longer than an address."""

    def __init__(self, folder: str) -> None:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(PATIENCE_S)
            self._socket.connect(f"/proc/self/fd/{opened}/control")
        finally:
            os.close(opened)
        self._answers = self._socket.makefile("rb")

    def ask(self, **asked: Any) -> dict[str, Any]:
        self._socket.sendall(json.dumps(asked).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._answers.readline() or b"{}")
        if not answer.get("ok"):
            raise Broken(f"{asked['op']} {asked.get('disk', '')}: {answer.get('error', 'no answer')}")
        return answer

    def largest_bytes(self) -> int:
        """Peak memory of the daemon."""
        pid = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


# ---------------------------------------------------------------- devices and mounts


class Loop:
    """A loop device of ours. It is held locked until it is detached, so that udev leaves it alone and assembles nothing
    that is on it: https://systemd.io/BLOCK_DEVICE_LOCKING

    The kernel detaches it when nothing has it open or mounted any more. A worker that is killed takes its mount
    namespace with it, and then no path leads to the backing file, by which an undo could find the device."""

    def __init__(self, node: str, file: int) -> None:
        self.node = node
        self.file = file


def attach(path: str, block_bytes: int) -> Loop:
    """Attaches the file as a loop device with direct I/O and this logical block. Another program may take the free one
    first."""
    backing = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(BUSY_ATTEMPTS):
            number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
            node = f"/dev/loop{number}"
            loop = configured(node, backing, path, block_bytes)
            if loop is not None:
                return Loop(node, loop)
            time.sleep(BUSY_PAUSE_S)
    finally:
        os.close(control)
        os.close(backing)
    raise Broken(f"no loop device for {path} could be had")


def configured(node: str, backing: int, path: str, block_bytes: int) -> int | None:
    """The open and locked loop device if it is ours now. struct loop_config: fd, block size, struct loop_info64,
    reserved."""
    name = path.encode()[-63:]
    flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO
    info = struct.pack("5Q4I64s64s32s2Q", 0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)
    try:
        loop = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(loop, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.ioctl(loop, LOOP_CONFIGURE, struct.pack("II", backing, block_bytes) + info + bytes(64))
    except OSError:
        os.close(loop)
        return None
    return loop


def release(loop: Loop) -> None:
    """OSError once nothing is attached. As long as udev has the device open too, which it does to see that it is
    locked, this only marks it; were the lock given up then, udev would assemble an array of it that keeps it open."""
    for attempt in range(BUSY_ATTEMPTS):
        fcntl.ioctl(loop.file, LOOP_CLR_FD)
        if attempt > 0:  # the first time does not tell whether somebody else has it open
            time.sleep(BUSY_PAUSE_S)


def detach(loop: Loop, why: str = "") -> None:
    """Returns once nothing is attached: a device that another process has open is detached when it is closed. `why` is
    the earlier error."""
    node = loop.node
    try:
        with suppress(OSError):
            release(loop)
    finally:
        os.close(loop.file)
    backing = f"/sys/block/{os.path.basename(node)}/loop/backing_file"
    for _ in range(BUSY_ATTEMPTS):
        if not os.path.exists(backing):
            return
        time.sleep(BUSY_PAUSE_S)
    raise Broken(f"{node} stays open: {why}" if why else f"{node} stays open")


def unmount(target: str, free: Callable[[], object] | None = None) -> None:
    """Unmounts the target; calls `free` every two seconds while it is busy."""
    for attempt in range(1, UNMOUNT_ATTEMPTS + 1):
        if libc.umount2(target.encode(), 0) == 0:
            return
        time.sleep(BUSY_PAUSE_S)
        if free is not None and attempt % FREE_EVERY == 0:
            free()
    raise Broken(f"{target} stays mounted: {os.strerror(ctypes.get_errno())}")


def abandon(target: str) -> None:
    """Stops a filesystem's writes, so that unmounting does not wait for data that is never read. A filesystem without
    this operation is unmounted as it is."""
    folder = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.ioctl(folder, FS_IOC_SHUTDOWN, struct.pack("I", SHUTDOWN_NOLOGFLUSH))
    finally:
        os.close(folder)


def own_memory() -> None:
    """The shared memory of a server that is killed goes with its process. No other program may have this: lvm waits for
    udev at a semaphore, which both must see."""
    checked(libc.unshare(CLONE_NEWIPC), "shared memory of its own")


def own_mounts(needed: list[str]) -> None:
    """Makes later mounts visible only to this process and its children."""
    checked(libc.unshare(CLONE_NEWNS), "a mount namespace of its own")
    checked(libc.mount(b"none", b"/", None, MS_PRIVATE_EVERYWHERE, None), "a private mount namespace")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for target in others(mounts.read(), needed):
            libc.umount2(os.fsencode(target), MNT_DETACH)


def make_places(root: str, folders: list[str]) -> None:
    """Creates the recorded mount points on another machine, visible only to this process."""
    checked(libc.mount(b"none", os.fsencode(root), b"tmpfs", 0, b"mode=0755"), f"places below {root}")
    for folder in folders:
        os.makedirs(folder, mode=0o755)


def others(mountinfo: str, needed: list[str]) -> list[str]:
    """Mount points of loop devices' filesystems that are not needed here, the last one first. While this process had
    them too, their owner could not detach the devices."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        target = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])
        on_loop = after.split()[1].startswith("/dev/loop")
        if on_loop and not any(path == target or path.startswith(target.rstrip("/") + "/") for path in needed):
            found.append(target)
    return found[::-1]


# ---------------------------------------------------------------- one state


class Look:
    """One state, from its disks to its report, and back to nothing."""

    def __init__(self, job: dict[str, Any], daemon: Daemon) -> None:
        self.job = job
        self.daemon = daemon
        self.disks: list[str] = []
        self.loops: list[Loop] = []
        self.nodes: dict[str, str] = {}
        self.stages: list[dict[str, Any]] = []
        self.mounted: list[str] = []
        self.seen: dict[str, Any] = {"mounted": -1, "mount_error": "", "server": None}
        self.seen |= {"stdout": "", "stderr": "", "mended": ""}
        self.seen |= {"deep": False, "examined": []}
        self.parts_s: dict[str, float] = {}

    def look(self, state: dict[str, Any]) -> dict[str, Any]:
        problem, left = "", False
        self.seen["deep"] = state["id"] in self.job["examined"]
        try:
            begin, end = self.job["marks"]
            try:
                self._timed("attach", self._attach, state)
                self.daemon.ask(op="mark", text=begin)
                up = self._timed("mount", self._bring_up)
                left = up and self.job["server"] is None
                if up and not left:
                    self._timed("recover", self._recover)
                self.daemon.ask(op="mark", text=end)
            finally:
                if not left:
                    self._timed("take down", self._take_down)
        except (Broken, OSError) as error:
            problem = str(error)
        return {**self.seen, "problem": problem, "parts_s": self.parts_s, "memory_bytes": self._memory_bytes()}

    def _memory_bytes(self) -> int:
        """Peak memory of the daemon, this worker and its largest child so far."""
        processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return self.daemon.largest_bytes() + sum(resource.getrusage(of).ru_maxrss << 10 for of in processes)

    def _timed(self, part: str, act: Any, *arguments: Any) -> Any:
        began_s = time.monotonic()
        try:
            return act(*arguments)
        finally:
            self.parts_s[part] = round(time.monotonic() - began_s, 6)

    def _attach(self, state: dict[str, Any]) -> None:
        for disk in self.job["disks"]:
            left = {"log": self.job["log"], "of": disk["of"], "state": state}
            nature = self.daemon.ask(op="add", disk=disk["of"], state=left)["nature"]
            self.disks.append(disk["of"])
            loop = attach(f"{self.job['daemon']}/disks/{disk['of']}", nature["block"])
            self.loops.append(loop)
            self.nodes[disk["node"]] = loop.node

    def _bring_up(self) -> bool:
        self.seen["mounted"] = 0
        return all(self._bring_stage_up(stage) for stage in self.job["stages"])

    def _bring_stage_up(self, stage: dict[str, Any]) -> bool:
        """Brings a stage up; if that fails, runs its repair tools and checks the result."""
        self.stages.append(stage)
        code, printed, error = self._run_all(stage["up"])
        if code != 0:
            if code == NOT_UP:
                raise Broken(error)
            if self.seen["mounted"] == 0:
                self.seen.update(mounted=code, mount_error=error)
            self._run_all(stage["mend"])
            again, printed, _ = self._run_all(stage["up"]) if stage["mend"] else (code, "", "")
            if again != 0:
                self.seen["mended"] = ""  # what was mended below did not help
                return False
            mended = [" ".join(argv) for argv in stage["mend"]]
            self.seen["mended"] = "; ".join([*filter(None, [self.seen["mended"]]), *mended])
        if stage["binds"]:
            self.nodes[stage["binds"]] = printed.strip()
        if stage["mount_point"]:
            self.mounted.append(stage["mount_point"])
        return True

    def _run_all(self, commands: Sequence[list[str]]) -> tuple[int | None, str, str]:
        """Runs commands until one fails; returns the last output, and the reason of the failure."""
        printed = ""
        for argv in commands:
            code, printed, error = run([self._known(word) for word in argv], PATIENCE_S)
            if code != 0 and code not in REPAIRED.get(argv[0], ()):
                return code, printed, error.strip() or f"{argv[0]} ended with {code}"
        return 0, printed, ""

    def _known(self, word: str) -> str:
        for name, node in self.nodes.items():
            word = word.replace(f"<{name}>", node)
        return word

    def _recover(self) -> None:
        server = self.job["server"]
        with suppress(OSError):  # of a cluster that is not there the server tells
            read_ahead(server["data"])

        def become_user() -> None:
            own_memory()
            become(server["user"])
            for path in server["remove"]:
                with suppress(OSError):
                    os.unlink(path)

        stdin, until = server["stdin"], server["until"]
        if self.seen["deep"]:  # it ends by itself, and so shuts down as it should
            stdin, until = self.job["examiner"]["stdin"], ""
        code, out, err = run(server["argv"], server["timeout_s"], stdin, become_user, until)
        self.seen.update(server=code, stdout=out, stderr=err)
        if self._examines():
            for argv in self.job["examiner"]["after"]:
                if os.access(argv[0], os.X_OK):  # not every tree has it
                    self._examine(argv, partial(become, server["user"]))

    def _examines(self) -> bool:
        """True if files and filesystems are read; those of a server that ended badly are inconsistent by nature."""
        return bool(self.seen["deep"]) and self.seen["server"] == 0

    def _examine(self, argv: list[str], first: Callable[[], None] | None = None) -> None:
        code, out, err = run([self._known(word) for word in argv], PATIENCE_S, first=first)
        self.seen["examined"].append([os.path.basename(argv[0]), code, (out + err)[-SAID:] if code != 0 else ""])

    def _take_down(self) -> None:
        errors = ""
        frees: list[list[str]] = []
        for stage in reversed(self.stages):
            if stage["mount_point"] in self.mounted:
                if not self._examines():
                    abandon(stage["mount_point"])
                unmount(stage["mount_point"], partial(self._run_all, tuple(frees)))
                for argv in stage["examine"] if self._examines() else ():
                    self._examine(argv)
            errors = self._run_all(stage["down"])[2] or errors
            frees += stage["frees"]
        for loop in self.loops:
            detach(loop, errors)
        for disk in self.disks:
            self.daemon.ask(op="remove", disk=disk, force=True)


def read_ahead(data: str) -> None:
    """Has the kernel fetch the catalogs and tables of the newest database all at once; the server would wait for one
    page after the other."""
    databases = [name for name in os.listdir(f"{data}/base") if name.isdecimal()]
    for folder in (f"{data}/global", *(f"{data}/base/{name}" for name in sorted(databases, key=int)[-1:])):
        for entry in os.scandir(folder):
            if entry.is_file(follow_symlinks=False):
                file = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
                os.close(file)


def become(user: str) -> None:
    """Drops root privileges permanently."""
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)


def run(
    argv: list[str], timeout_s: float, stdin: str = "", first: Callable[[], None] | None = None, until: str = ""
) -> tuple[int | None, str, str]:
    """Exit code (None on timeout), output and errors of a program; `first` runs in its process. A program that has
    printed `until` is killed and counts as successful: its shutdown after the last answer is not awaited.
    """
    given, errors = (os.memfd_create("pgstrata") for _ in range(2))
    reader, writer = os.pipe()
    os.write(given, stdin.encode())
    os.lseek(given, 0, os.SEEK_SET)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.chdir("/")
            if first is not None:
                first()
            for number, file in enumerate((given, writer, errors)):
                os.dup2(file, number)
            os.execvp(argv[0], argv)
        finally:
            os._exit(127)
    os.close(writer)
    code, out = followed(pid, reader, timeout_s, until.encode())
    err = contents(errors)
    for file in (given, reader, errors):
        os.close(file)
    return code, out.decode(errors="replace"), err


def contents(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), "rb") as opened:
        return opened.read().decode(errors="replace")


def followed(pid: int, reader: int, timeout_s: float, until: bytes) -> tuple[int | None, bytes]:
    """The exit code of a child, None if it was killed on timeout, and its output."""
    killed = []

    def kill(*_: object) -> None:
        killed.append(pid)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    out, answered = b"", False
    try:
        while piece := os.read(reader, PIPE_BYTES):
            out += piece
            if until and until in out:
                answered = True
                break
        if answered:
            kill()
        _, status = os.waitpid(pid, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if answered:
        return 0, out
    return None if killed else os.waitstatus_to_exitcode(status), out


def main(arguments: list[str]) -> int:
    with open(arguments[0], encoding="utf-8") as file:
        job = json.load(file)
    until_s = None if job["seconds"] is None else time.monotonic() + job["seconds"]
    if job["server"] is not None and not job["in_sight"]:
        own_mounts([job["daemon"], job["log"], sys.executable, *job["server"]["argv"][:1]])
    if job["places"] is not None:
        make_places(job["places"]["root"], job["places"]["folders"])
    daemon = Daemon(job["daemon"])
    for state in job["states"]:
        if until_s is not None and time.monotonic() > until_s:
            break
        told = Look(job, daemon).look(state)
        print(json.dumps(told), flush=True)
        if told["problem"]:  # what is left of this state would be in the way of the next one
            daemon.close()
            return 1
    daemon.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
