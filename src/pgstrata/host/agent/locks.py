"""Advisory locks, held as long as the agent lives."""

from __future__ import annotations

import contextlib
import fcntl
import os

from pgstrata.host.agent.places import default_state_directory, make_parents, remove_empty


class Locks:
    """Locks are files in the state directory; the kernel releases them when their holder ends, however it ends."""

    def __init__(self, state_directory: str | None = None) -> None:
        self._state_directory = state_directory or default_state_directory()
        self._locks: dict[str, int] = {}

    def state_directory(self) -> str:
        return self._state_directory

    def try_lock(self, name: str, payload: str) -> str | None:
        """Takes a lock for the life of this agent; None when we have it, else what its holder wrote."""
        if name in self._locks:
            return None
        path = self._lock_path(name)
        while True:
            fd = self._open(path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(fd, 4096).decode(errors="replace")
                os.close(fd)
                return holder or "another process"
            # The last holder removes the file on release: a lock on a file that is no longer there is worth nothing.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    break
            os.close(fd)
        os.ftruncate(fd, 0)
        os.write(fd, payload.encode())
        self._locks[name] = fd
        return None

    def lock_holder(self, name: str) -> str | None:
        """Text that the holder of a lock wrote, be it this agent; None when nobody has it."""
        if name in self._locks:
            return os.pread(self._locks[name], 4096, 0).decode(errors="replace")
        try:
            fd = os.open(self._lock_path(name), os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.read(fd, 4096).decode(errors="replace") or "another process"
        finally:
            os.close(fd)
        return None

    def unlock(self, name: str) -> None:
        fd = self._locks.pop(name, None)
        if fd is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._lock_path(name))
            os.close(fd)
            remove_empty(self._folder)

    @property
    def _folder(self) -> str:
        return os.path.join(self._state_directory, "locks")

    def _lock_path(self, name: str) -> str:
        return os.path.join(self._folder, name.replace("/", "-"))

    def _open(self, path: str) -> int:
        """A lock's file, that nobody else can open: whoever can open a file can lock it, and would keep us from it."""
        while True:
            make_parents(path)
            with contextlib.suppress(FileNotFoundError):  # its last user removes the folder
                os.chmod(self._folder, 0o700)
                return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
