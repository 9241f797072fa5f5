"""Files, directories and device nodes."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pwd
import shutil
import stat
from typing import Any

from pgstrata.host.agent.places import make_parents, mounts_within, new_directory
from pgstrata.host.agent.wire import AgentError

READ_AHEAD_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20
"""Size of a piece of a file that is copied in pieces."""
READ_BYTES = 64 << 10
"""At a time: some files of the kernel are made in memory for as much as is asked for."""
MOST_READ_BYTES = 64 << 20
"""Most bytes of a file that is read in one piece."""
MOST_NAMES = 1_000_000


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise AgentError("user", f"there is no OS user {user}") from None


def _open_of(path: str, owner: str) -> int:
    """A descriptor to read a file that lies where an OS user may put anything: only a plain file of that user's own.

    What belongs to the user can be read by the user, wherever a link in the path leads. It is looked at before it is
    opened, because opening a device or pipe does something by itself.
    """
    seen = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        found = os.fstat(seen)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != _account(owner).pw_uid or found.st_nlink != 1:
            raise OSError(errno.EPERM, f"not read, because it is no plain file of user {owner} with one name", path)
        return os.open(f"/proc/self/fd/{seen}", os.O_RDONLY)
    finally:
        os.close(seen)


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
        """A file of the kernel whose device or process goes away while it is read is not found."""
        data = bytearray()
        try:
            with open(path, "rb", buffering=0) as file:
                while part := file.read(READ_BYTES):
                    data += part
                    if len(data) > MOST_READ_BYTES:
                        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.ESRCH) and path.startswith(("/sys/", "/proc/")):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
            raise
        return bytes(data)

    def read_chunk(self, path: str, offset: int, size: int, owner: str | None = None) -> bytes:
        """`owner` is the OS user who may change the folders above: the file must be a plain one of that user's."""
        fd = os.open(path, os.O_RDONLY) if owner is None else _open_of(path, owner)
        try:
            return os.pread(fd, size, offset)
        finally:
            os.close(fd)

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
            "inode": found.st_ino,
            "device": [os.major(device), os.minor(device)],
        }

    def space(self, path: str) -> dict[str, int]:
        """Size of the filesystem at a path and what an unprivileged user can still use of it."""
        found = os.statvfs(path)
        return {"total_bytes": found.f_blocks * found.f_frsize, "free_bytes": found.f_bavail * found.f_frsize}

    def list_directory(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            names = [entry.name for entry in itertools.islice(entries, MOST_NAMES + 1)]
        if len(names) > MOST_NAMES:
            raise OSError(errno.EFBIG, "more names than pgstrata reads", path)
        return sorted(names)

    def read_ahead(self, path: str, most_bytes: int) -> None:
        """Has the kernel fetch the first `most_bytes` of a tree's files into the page cache, without waiting for them.

        In steps, because the kernel fetches no more than about a request of the device at each call.
        """
        left = most_bytes
        for _, _, names, folder in os.fwalk(path):  # by descriptors: a folder that becomes a link is not followed
            for name in names:
                if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    continue
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                try:
                    size = min(os.fstat(fd).st_size, left)
                    for offset in range(0, size, READ_AHEAD_BYTES):
                        os.posix_fadvise(fd, offset, READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
                finally:
                    os.close(fd)
                left -= size

    def make_directory(
        self, path: str, mode: int, owner: str | None, group: str | None = None, new: bool = False
    ) -> None:
        """Makes it with its parents. `mode` and `group` are for a directory made here, `owner` for an existing one too.

        `group` is the OS user whose group it gets. With `new`, FileExistsError when there is one. One that somebody
        else made (in /tmp anybody can make one of a name that we will use) is not taken over.
        """
        made = new or not os.path.isdir(path)
        if made:
            make_parents(path)
        elif owner is None:
            return
        fd = new_directory(path, mode) if made else os.open(path, os.O_PATH | os.O_NOFOLLOW)
        try:
            if made and group is not None:
                os.fchown(fd, -1, _account(group).pw_gid)
            if owner is not None:
                self._hand_over(fd, path, _account(owner))
        finally:
            os.close(fd)

    def _hand_over(self, fd: int, path: str, account: pwd.struct_passwd) -> None:
        found = os.fstat(fd)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), account.pw_uid):
            raise OSError(errno.EPERM, "not taken over, because it is a link or belongs to somebody else", path)
        if found.st_uid != account.pw_uid:
            os.chown(f"/proc/self/fd/{fd}", account.pw_uid, account.pw_gid)

    def remove(self, path: str) -> None:
        """Removes a file, a link (not what it points to) or a tree; refuses a tree with something mounted in it."""
        if not os.path.lexists(path):
            return
        if os.path.islink(path) or not os.path.isdir(path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        mounted = mounts_within(path)
        if mounted:
            raise OSError(errno.EBUSY, "not removed, because something is mounted at or below it", mounted[0])
        shutil.rmtree(path, onerror=_unless_gone)


def _unless_gone(function: object, path: str, failed: tuple[type[BaseException], BaseException, object]) -> None:
    """Let pass what somebody else removes at the same moment: it is gone as well."""
    if not isinstance(failed[1], FileNotFoundError):
        raise failed[1]
