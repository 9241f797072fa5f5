"""Places where things are kept on a host, and what is mounted where."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import uuid

from pgstrata.host.agent.processes import start_time

_NOTE = re.compile(r"(?:.*\.)?([0-9a-f]{8})\.(\d+)\.(\d+)\.[0-9a-f]{32}\.exit(?:\.part)?")
"""Name of a file with an exit code: marker, state directory, pid and start of the process that asked for it."""


def default_state_directory() -> str:
    """Directory of locks and the undo journal: outlives a reboot, because loop files and signatures do.

    PGSTRATA_STATE_DIRECTORY moves it, for example where /var is read-only.
    """
    chosen = os.environ.get("PGSTRATA_STATE_DIRECTORY")
    if chosen:
        return chosen
    if os.geteuid() == 0:
        return "/var/lib/pgstrata"
    home = os.path.expanduser("~")
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state"), "pgstrata")


def runtime_directory() -> str:
    """Directory where exit codes of background programs are noted.

    Not XDG_RUNTIME_DIR: that goes away with the last session of its user, and with it what a lost connection left.
    """
    return "/run/pgstrata" if os.geteuid() == 0 else os.path.join(default_state_directory(), "run")


def new_exit_file(directory: str, marker: str, state_directory: str) -> str:
    """An empty file for an exit code: while it is there, nobody removes the directory as empty.

    Its name begins with the marker of its trial, so that it can be removed with the trial, and says whose trials those
    are (by their state directory) and who asked for it: when that process is gone, nobody will.
    """
    owner = f"{_digest(state_directory)}.{os.getpid()}.{start_time(os.getpid())}"
    path = os.path.join(directory, f"{exit_file_prefix(marker)}{owner}.{uuid.uuid4().hex}.exit")
    while True:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            return path
        except FileNotFoundError:  # removed in between
            continue


def exit_file_prefix(marker: str) -> str:
    return f"{marker.replace('/', '-')}." if marker else ""


def _digest(state_directory: str) -> str:
    return hashlib.sha256(os.path.realpath(state_directory).encode()).hexdigest()[:8]


def remove_ended(directory: str, state_directory: str) -> None:
    """Removes the exit codes of programs that have ended and of which those who started them are gone."""
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        note = _NOTE.fullmatch(name)
        if note is None or note[1] != _digest(state_directory) or start_time(int(note[2])) == int(note[3]):
            continue
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # its keeper holds it while the program runs
            path = os.path.join(directory, name)
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(fd)
    remove_empty(directory)


def remove_empty(directory: str) -> None:
    with contextlib.suppress(OSError):  # others still use it
        os.rmdir(directory)


def decode_mount(text: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text


def mounts_within(path: str) -> list[str]:
    """Mount points at or below a path, bind mounts included (their st_dev would not give them away)."""
    real = os.path.realpath(path)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        points = [decode_mount(line.split()[4]) for line in file]
    return [point for point in points if point == real or point.startswith(real.rstrip("/") + "/")]


def make_parents(path: str) -> None:
    """Makes the folders above `path` that are missing, open to all (0755) whatever the umask."""
    parent = os.path.dirname(path)
    if not parent or os.path.isdir(parent):
        return
    make_parents(parent)
    with contextlib.suppress(FileExistsError):  # made by another process meanwhile
        os.close(new_directory(parent, 0o755))


def new_directory(path: str, mode: int) -> int:
    """Makes a folder that is not there yet; a descriptor of it, whatever somebody puts in its place meanwhile."""
    os.mkdir(path, 0o700)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if os.fstat(fd).st_uid != os.geteuid():
        os.close(fd)
        raise OSError(errno.EPERM, "somebody else put another one in the place of the new folder", path)
    os.fchmod(fd, mode)
    return fd
