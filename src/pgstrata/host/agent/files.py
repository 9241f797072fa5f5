"""Files, directories and device nodes."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
from typing import Any

from pgstrata.host.agent.places import make_parents, mounts_within
from pgstrata.host.agent.wire import AgentError

READ_AHEAD_BYTES = 1 << 20


def _sync_directory(path: str) -> None:
    """Makes the name of a new file durable."""
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class Files:
    """Operations on paths."""

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
            _sync_directory(path)

    def write_new(self, path: str, data: bytes) -> None:
        """Makes a file that is there with all of `data` or not at all, whenever the power goes; FileExistsError."""
        part = path + ".new"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        try:
            os.link(part, path)
        finally:
            os.unlink(part)
        _sync_directory(path)

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

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def read_ahead(self, path: str, most_bytes: int) -> None:
        """Has the kernel fetch the first `most_bytes` of a tree's files into the page cache, without waiting for them.

        In steps, because the kernel fetches no more than about a request of the device at each call.
        """
        left = most_bytes
        for folder, _, names in os.walk(path):
            for name in names:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    size = min(os.fstat(fd).st_size, left)
                    for offset in range(0, size, READ_AHEAD_BYTES):
                        os.posix_fadvise(fd, offset, READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
                finally:
                    os.close(fd)
                left -= size

    def make_directory(self, path: str, mode: int, owner: str | None) -> None:
        """Makes it with its parents. `mode` is for a directory made here, `owner` for an existing one too.

        One that somebody else made (in /tmp anybody can make one of a name that we will use) is not taken over.
        """
        if not os.path.isdir(path):
            make_parents(path)
            os.mkdir(path)
            os.chmod(path, mode)
        if owner is not None:
            try:
                entry = pwd.getpwnam(owner)
            except KeyError:
                raise AgentError("user", f"there is no OS user {owner}") from None
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode) or found.st_uid not in (os.geteuid(), entry.pw_uid):
                raise OSError(errno.EPERM, "not taken over, because it is a link or belongs to somebody else", path)
            os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)

    def remove(self, path: str) -> None:
        """Removes a file, a link (not what it points to) or a tree; refuses a tree with something mounted in it."""
        if not os.path.lexists(path):
            return
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
            return
        mounted = mounts_within(path)
        if mounted:
            raise OSError(errno.EBUSY, "not removed, because something is mounted at or below it", mounted[0])
        shutil.rmtree(path)
