"""Users of a block device: everything on this machine that has it, a part of it, or what lies below it.

An exclusive open is not enough: neither a loop device nor a process that has it open claims what it sits on, and a
filesystem on a loop device over another loop device is not seen from the lower one. Everything is compared by numbers
(of devices, inodes and mounts), never by names, which links, bind mounts and other namespaces make many of.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import stat
import struct
from collections.abc import Iterator

from pgstrata.host.agent.places import decode_mount

LOOP_GET_STATUS64 = 0x4C05
_LOOP_STATUS_BYTES = 232
REMOTE = ("fuse", "nfs", "cifs", "smb", "ceph", "9p", "afs", "lustre", "glusterfs", "ocfs2", "gfs2")
"""Filesystems whose server may not answer: a stat of what lies there could wait for ever."""
SERVED = (
    "kernel/config/target/core/*/*/udev_path",
    "kernel/config/nvmet/subsystems/*/namespaces/*/device_path",
    "kernel/config/usb_gadget/*/functions/mass_storage.*/lun.*/file",
)
"""Devices and files that the kernel itself serves to other machines."""


class Mounted:
    """A line of mountinfo."""

    def __init__(self, line: str) -> None:
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        self.id = int(before[0])
        self.device = _number(before[2])
        self.target = decode_mount(before[4])
        self.fstype = after[0]
        self.source = decode_mount(after[1]) if len(after) > 1 else ""


class Occupancy:
    """One look at a device and at the machine around it. Other roots than `/proc` and `/sys` are for tests."""

    def __init__(self, number: tuple[int, int], *, proc: str = "/proc", sys: str = "/sys") -> None:
        self._proc, self._sys = proc, sys
        self._chain: set[str] = set()
        """Devices that are the looked at one or lie below it: they do not use one another."""
        self._names: dict[str, tuple[int, int]] = {}
        self._members: dict[str, tuple[int, int]] = {}
        """Devices that the looked at one is assembled from: others may be built on other parts of them."""
        self._files: dict[tuple[int, int], str] = {}
        """Backing files: (device, inode) -> path."""
        self._descend(self._name_of(number), number)

    def lasting(self) -> list[str]:
        """Uses that go on until somebody ends them."""
        return [
            *self._mounts(),
            *self._swaps(),
            *self._holders(),
            *self._loops(),
            *self._filesystems(),
            *self._servers(),
        ]

    def passing(self) -> list[str]:
        """Uses by processes; some of them only look (udev, smartd) and are gone in a moment."""
        return [*self._open(), *self._locks()]

    # ------------------------------------------------------------ what belongs to the device

    def _name_of(self, number: tuple[int, int]) -> str:
        return os.path.basename(os.path.realpath(f"{self._sys}/dev/block/{number[0]}:{number[1]}"))

    def _descend(self, name: str, number: tuple[int, int]) -> None:
        """Takes in a device, its partitions or its disk, and what is below a loop device or a mapping."""
        if name in self._chain:
            return
        self._chain.add(name)
        self._names[name] = number
        folder = os.path.realpath(f"{self._sys}/class/block/{name}")
        if os.path.exists(f"{folder}/partition"):
            disk = os.path.dirname(folder)
            self._names[os.path.basename(disk)] = self._device_of(disk)
        for entry in _listed(folder):
            if os.path.exists(f"{folder}/{entry}/partition"):
                self._names[entry] = self._device_of(f"{folder}/{entry}")
        for slave in _listed(f"{folder}/slaves"):
            self._members[slave] = self._device_of(f"{self._sys}/class/block/{slave}")
        self._descend_loop(name, folder)

    def _descend_loop(self, name: str, folder: str) -> None:
        if not os.path.isdir(f"{folder}/loop"):
            return
        backing = self._backing(name)
        if backing is None:
            return
        device, inode, below = backing
        if below is not None:
            self._descend(self._name_of(below), below)
        else:
            self._files[device, inode] = _read(f"{folder}/loop/backing_file").strip()

    def _device_of(self, folder: str) -> tuple[int, int]:
        return _number(_read(f"{folder}/dev").strip() or "0:0")

    def _backing(self, name: str) -> tuple[int, int, tuple[int, int] | None] | None:
        """File or device below a loop device: device and inode of the file, and its number where that is a device.

        Asked from the driver, because the path in sysfs is one of another namespace or of a file that was renamed.
        """
        try:
            fd = os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return self._backing_by_path(name)
        try:
            if os.fstat(fd).st_rdev != os.makedev(*self._device_of(f"{self._sys}/class/block/{name}")):
                return self._backing_by_path(name)
            answer = fcntl.ioctl(fd, LOOP_GET_STATUS64, b"\0" * _LOOP_STATUS_BYTES)
        except OSError:  # detached meanwhile
            return None
        finally:
            os.close(fd)
        device, inode, below = struct.unpack_from("=QQQ", answer)
        return device, inode, (os.major(below), os.minor(below)) if below else None

    def _backing_by_path(self, name: str) -> tuple[int, int, tuple[int, int] | None] | None:
        """The same by path, where the device node is not in /dev, as in a container."""
        path = _read(f"{self._sys}/class/block/{name}/loop/backing_file").strip()
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, _block_number(found)

    # ------------------------------------------------------------ who uses it

    def _is_ours(self, found: os.stat_result) -> str:
        """Part of what we look at that a stat leads to; empty for anything else."""
        number = _block_number(found)
        if number is None:
            return self._files.get((found.st_dev, found.st_ino), "")
        names = {**self._members, **self._names}
        return next((name for name, own in names.items() if own == number), "")

    def _path_is_ours(self, path: str) -> str:
        try:
            return self._is_ours(os.stat(path))
        except OSError:
            return ""

    def _namespaces(self) -> Iterator[tuple[str, list[Mounted]]]:
        """(identity, mounts) of each mount namespace that some process is in."""
        seen = set()
        for pid in self._pids():
            try:
                identity = os.readlink(f"{self._proc}/{pid}/ns/mnt")
            except OSError:  # ended meanwhile
                continue
            if identity not in seen:
                mounts = self._mounts_of(pid)
                if mounts:  # else it ended meanwhile: another process may show the same namespace
                    seen.add(identity)
                    yield identity, mounts

    def _mounts_of(self, pid: str) -> list[Mounted]:
        return [Mounted(line) for line in _read(f"{self._proc}/{pid}/mountinfo").splitlines() if " - " in line]

    def _mounts(self) -> Iterator[str]:
        numbers, nodes = set(self._names.values()), {f"/dev/{name}" for name in self._names}
        for _, mounts in self._namespaces():
            for mount in mounts:
                # btrfs and zfs show a device number of their own, so the source counts too
                by_source = mount.source in nodes
                if not by_source and mount.source.startswith("/dev/") and not mount.fstype.startswith(REMOTE):
                    by_source = self._path_is_ours(mount.source) in self._names
                if mount.device in numbers or by_source:
                    yield f"it is mounted at {mount.target}"
                    return

    def _swaps(self) -> Iterator[str]:
        nodes = {f"/dev/{name}": name for name in self._names}
        for line in _read(f"{self._proc}/swaps").splitlines()[1:]:
            path = decode_mount(line.split()[0])
            name = nodes.get(path) or self._path_is_ours(path)
            if name:
                yield f"{name} is swap in use"

    def _holders(self) -> Iterator[str]:
        for name in self._names:
            for holder in _listed(f"{self._sys}/class/block/{name}/holders"):
                if holder not in self._chain:
                    yield f"{holder} is built on {name}"

    def _loops(self) -> Iterator[str]:
        """Loop devices on any part of it, which no holder and no exclusive open tells of."""
        numbers = {number: name for name, number in {**self._members, **self._names}.items()}
        for loop in sorted(_listed(f"{self._sys}/block")):
            if loop in self._chain or not os.path.exists(f"{self._sys}/block/{loop}/loop/backing_file"):
                continue
            backing = self._backing(loop)
            if backing is None:
                continue
            device, inode, below = backing
            name = numbers.get(below, "") if below is not None else self._files.get((device, inode), "")
            if name:
                yield f"loop device {loop} sits on {name}"

    def _filesystems(self) -> Iterator[str]:
        """Membership that is shown in sysfs alone."""
        for name in self._names:
            for folder in glob.glob(f"{self._sys}/fs/btrfs/*/devices/{glob.escape(name)}"):
                yield f"{name} is a device of btrfs {folder.split('/')[-3]}"
            if os.path.exists(f"{self._sys}/class/block/{name}/bcache"):
                yield f"{name} is a device of bcache"

    def _servers(self) -> Iterator[str]:
        for pattern in SERVED:
            for file in glob.glob(f"{self._sys}/{pattern}"):
                name = self._path_is_ours(_read(file).strip() or "/")
                if name:
                    yield f"the kernel serves {name} to others ({file})"

    def _pids(self) -> list[str]:
        return [name for name in _listed(self._proc) if name.isdigit()]

    def _open(self) -> Iterator[str]:
        remote = {identity: _remote_mounts(mounts) for identity, mounts in self._namespaces()}
        for pid in self._pids():
            if int(pid) == os.getpid():
                continue
            name = self._opened_by(pid, remote) or self._mapped_by(pid)
            if name:
                yield f"{name} is open in {_read(f'{self._proc}/{pid}/comm').strip() or 'a process'} (pid {pid})"

    def _opened_by(self, pid: str, remote: dict[str, dict[int, tuple[int, int]]]) -> str:
        folder = f"{self._proc}/{pid}"
        try:
            away = remote.get(os.readlink(f"{folder}/ns/mnt"), {})
        except OSError:
            return ""
        for fd in _listed(f"{folder}/fd"):
            try:
                if not os.readlink(f"{folder}/fd/{fd}").startswith("/"):
                    continue  # a socket, a pipe
                mount, inode = _fdinfo(_read(f"{folder}/fdinfo/{fd}"))
                if mount in away:
                    name = self._files.get((os.makedev(*away[mount]), inode), "")
                else:
                    name = self._is_ours(os.stat(f"{folder}/fd/{fd}"))
            except OSError:  # closed meanwhile
                continue
            if name:
                return name
        return ""

    def _mapped_by(self, pid: str) -> str:
        """Shared mappings outlive the descriptor that they were made with."""
        for line in _read(f"{self._proc}/{pid}/maps").splitlines():
            fields = line.split(None, 5)
            if len(fields) < 6 or "s" not in fields[1] or not fields[5].startswith("/dev/"):
                continue
            start, _, end = fields[0].partition("-")
            name = self._path_is_ours(f"{self._proc}/{pid}/map_files/{start.lstrip('0')}-{end.lstrip('0')}")
            if name:
                return name
        return ""

    def _locks(self) -> Iterator[str]:
        """Locks whose holder is in a process that cannot be looked into."""
        ours = {f"{os.major(dev):02x}:{os.minor(dev):02x}:{inode}": path for (dev, inode), path in self._files.items()}
        for name in self._names:
            with contextlib.suppress(OSError):
                node = os.stat(f"/dev/{name}")
                if _block_number(node) == self._names[name]:
                    ours[f"{os.major(node.st_dev):02x}:{os.minor(node.st_dev):02x}:{node.st_ino}"] = name
        for line in _read(f"{self._proc}/locks").splitlines():
            fields = line.replace("->", "").split()
            if len(fields) > 5 and fields[5] in ours and fields[4] != str(os.getpid()):
                yield f"{ours[fields[5]]} is locked by process {fields[4]}"


def _number(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(":")
    return int(major), int(minor)


def _block_number(found: os.stat_result) -> tuple[int, int] | None:
    return (os.major(found.st_rdev), os.minor(found.st_rdev)) if stat.S_ISBLK(found.st_mode) else None


def _read(path: str) -> str:
    """Empty where there is nothing (more) to read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _remote_mounts(mounts: list[Mounted]) -> dict[int, tuple[int, int]]:
    return {mount.id: mount.device for mount in mounts if mount.fstype.startswith(REMOTE)}


def _fdinfo(text: str) -> tuple[int, int]:
    """Mount and inode of an open file; the inode is shown since Linux 5.14."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(fields.get("mnt_id", "0")), int(fields.get("ino", "0"))
