"""Recovers states of recorded disks, one after the other, and tells what was seen in each. Run on the host as root;
standard library only.

A worker is a function of its job: the event log, the states that are its share, and the commands that mount and
recover one. It asks a daemon of its own for the disks of a state, attaches and mounts them in a mount namespace of its
own, at the places that the recorded stack had, so that workers are not in each other's way and links between volumes
lead where they led. What it mounted goes with it when it ends. Each state gives a line of JSON on standard output.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pwd
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

PATIENCE_S = 300.0
BUSY_ATTEMPTS = 500
BUSY_PAUSE_S = 0.01
CLONE_NEWNS = 0x20000
MS_PRIVATE_EVERYWHERE = 0x4000 | 0x40000
LOOP_CLR_FD, LOOP_CONFIGURE, LOOP_CTL_GET_FREE = 0x4C01, 0x4C0A, 0x4C82
LO_FLAGS_DIRECT_IO = 16

libc = ctypes.CDLL(None, use_errno=True)


class Broken(Exception):
    """Something of the worker's own went wrong, which says nothing about the state."""


def checked(code: int, what: str) -> None:
    if code != 0:
        raise Broken(f"{what}: {os.strerror(ctypes.get_errno())}")


class Daemon:
    """The control socket of the daemon that has the disks of a state; its path may be longer than an address."""

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

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


# ---------------------------------------------------------------- devices and mounts


def attach(path: str) -> str:
    """The file as a loop device with direct I/O; another program may take the free one before us."""
    backing = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(BUSY_ATTEMPTS):
            number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
            node = f"/dev/loop{number}"
            if configured(node, backing, path):
                return node
            time.sleep(BUSY_PAUSE_S)
    finally:
        os.close(control)
        os.close(backing)
    raise Broken(f"no loop device for {path} could be had")


def configured(node: str, backing: int, path: str) -> bool:
    """Whether the loop device is ours now. struct loop_config: fd, block size, struct loop_info64, reserved."""
    name = path.encode()[-63:]
    info = struct.pack("5Q4I64s64s32s2Q", 0, 0, 0, 0, 0, 0, 0, 0, LO_FLAGS_DIRECT_IO, name, b"", b"", 0, 0)
    try:
        loop = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.ioctl(loop, LOOP_CONFIGURE, struct.pack("II", backing, 0) + info + bytes(64))
    except OSError:
        return False
    finally:
        os.close(loop)
    return True


def detach(node: str) -> None:
    """Returns once nothing is attached: a device that somebody still has open is detached when it is closed."""
    loop = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.ioctl(loop, LOOP_CLR_FD)
    finally:
        os.close(loop)
    backing = f"/sys/block/{os.path.basename(node)}/loop/backing_file"
    for _ in range(BUSY_ATTEMPTS):
        if not os.path.exists(backing):
            return
        time.sleep(BUSY_PAUSE_S)
    raise Broken(f"{node} stays open")


def unmount(target: str) -> None:
    for _ in range(BUSY_ATTEMPTS):
        if libc.umount2(target.encode(), 0) == 0:
            return
        time.sleep(BUSY_PAUSE_S)
    raise Broken(f"{target} stays mounted: {os.strerror(ctypes.get_errno())}")


def own_mounts() -> None:
    """Mounts from here on are seen by this process and those that it starts alone."""
    checked(libc.unshare(CLONE_NEWNS), "a mount namespace")
    checked(libc.mount(b"none", b"/", None, MS_PRIVATE_EVERYWHERE, None), "a private mount namespace")


# ---------------------------------------------------------------- one state


class Look:
    """One state from its disks to what was seen, and back to nothing."""

    def __init__(self, job: dict[str, Any], daemon: Daemon) -> None:
        self.job = job
        self.daemon = daemon
        self.disks: list[str] = []
        self.nodes: dict[str, str] = {}
        self.mounted: list[str] = []
        self.seen: dict[str, Any] = {"mounted": -1, "mount_error": "", "server": None, "stdout": "", "stderr": ""}
        self.parts_s: dict[str, float] = {}

    def look(self, state: dict[str, Any]) -> dict[str, Any]:
        problem = ""
        try:
            try:
                self._timed("attach", self._attach, state)
                if self._timed("mount", self._mount):
                    self._timed("recover", self._recover)
            finally:
                self._timed("take down", self._take_down)
        except (Broken, OSError) as error:
            problem = str(error)
        return {**self.seen, "problem": problem, "parts_s": self.parts_s}

    def _timed(self, part: str, act: Any, *arguments: Any) -> Any:
        began_s = time.monotonic()
        try:
            return act(*arguments)
        finally:
            self.parts_s[part] = round(time.monotonic() - began_s, 6)

    def _attach(self, state: dict[str, Any]) -> None:
        for disk in self.job["disks"]:
            left = {"log": self.job["log"], "of": disk["of"], "state": state}
            self.daemon.ask(op="add", disk=disk["of"], state=left)
            self.disks.append(disk["of"])
            self.nodes[disk["node"]] = attach(f"{self.job['daemon']}/disks/{disk['of']}")

    def _mount(self) -> bool:
        for step in self.job["mounts"]:
            for argv in step["commands"]:
                code, _, error = run([self._known(word) for word in argv], PATIENCE_S)
                if code != 0:
                    self.seen.update(mounted=code, mount_error=error.strip())
                    return False
            self.mounted.append(step["mount_point"])
        self.seen["mounted"] = 0
        return True

    def _known(self, word: str) -> str:
        for name, node in self.nodes.items():
            word = word.replace(f"<{name}>", node)
        return word

    def _recover(self) -> None:
        server = self.job["server"]

        def become_user() -> None:
            become(server["user"])
            for path in server["remove"]:
                with suppress(OSError):
                    os.unlink(path)

        code, out, err = run(server["argv"], server["timeout_s"], server["stdin"], become_user)
        self.seen.update(server=code, stdout=out, stderr=err)

    def _take_down(self) -> None:
        for target in reversed(self.mounted):
            unmount(target)
        for argv in self.job["forget"]:
            run([self._known(word) for word in argv], PATIENCE_S)
        for node in self.nodes.values():
            detach(node)
        for disk in self.disks:
            self.daemon.ask(op="remove", disk=disk, force=True)


def become(user: str) -> None:
    """Gives root up for good."""
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)


def run(
    argv: list[str], timeout_s: float, stdin: str = "", first: Callable[[], None] | None = None
) -> tuple[int | None, str, str]:
    """Exit code (none when it did not end in time), output and errors of a program; `first` is done in its process."""
    files = [os.memfd_create("pgstrata") for _ in range(3)]
    os.write(files[0], stdin.encode())
    os.lseek(files[0], 0, os.SEEK_SET)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.chdir("/")
            if first is not None:
                first()
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.execvp(argv[0], argv)
        finally:
            os._exit(127)
    code = wait(pid, timeout_s)
    out, err = (contents(file) for file in files[1:])
    for file in files:
        os.close(file)
    return code, out, err


def contents(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), "rb") as opened:
        return opened.read().decode(errors="replace")


def wait(pid: int, timeout_s: float) -> int | None:
    """The exit code of a child; none when it had to be killed because its time was up."""
    killed = []

    def late(*_: object) -> None:
        killed.append(pid)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        _, status = os.waitpid(pid, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None if killed else os.waitstatus_to_exitcode(status)


def main(arguments: list[str]) -> int:
    with open(arguments[0], encoding="utf-8") as file:
        job = json.load(file)
    until_s = None if job["seconds"] is None else time.monotonic() + job["seconds"]
    own_mounts()
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
