"""The initrd of a lab machine: one static program, the few modules that reach the root disk, a constant script.

A stock initrd loads hundreds of modules and runs udev, which costs half a minute in emulation; this one takes about
a second. The machine's own files (keys, name, addresses) ride in an archive appended to it, below `seed/`.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

_ALIGN_BYTES = 4
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True)
class Entry:
    """A file or a directory of the archive; `path` without a leading slash."""

    path: str
    content: bytes = b""
    permissions: int = 0o644
    directory: bool = False

    @property
    def mode(self) -> int:
        return (stat.S_IFDIR if self.directory else stat.S_IFREG) | self.permissions


def directory(path: str, permissions: int = 0o755) -> Entry:
    """An entry for a directory."""
    return Entry(path, permissions=permissions, directory=True)


def with_parents(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries with every directory they lie in, parents first: the kernel makes none by itself."""
    found: dict[str, Entry] = {}
    for entry in entries:
        parts = entry.path.split("/")
        for depth in range(1, len(parts)):
            path = "/".join(parts[:depth])
            found.setdefault(path, directory(path))
        found[entry.path] = entry
    return tuple(found.values())


def render_cpio(entries: Iterable[Entry]) -> bytes:
    """One archive, owned by root, with no timestamps, so that equal content gives equal bytes."""
    everything = (*entries, Entry(_TRAILER, permissions=0))
    return b"".join(_render_entry(number, entry) for number, entry in enumerate(everything, start=1))


def _render_entry(number: int, entry: Entry) -> bytes:
    name = entry.path.encode() + b"\0"
    mode = 0 if entry.path == _TRAILER else entry.mode
    links = 2 if entry.directory else 1
    # ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
    fields = (number, mode, 0, 0, links, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGN_BYTES)


# ---------------------------------------------------------------- the initrd

ROOT_SERIAL = "pgstrata-root"
READY_LINE = "pgstrata: initrd runs"
"""First line that the script writes to the console: the sign that this kernel runs under this accelerator."""

WANTED_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "ext4", "virtio_rng", "crc32c_generic")

INIT = f"""#!/bin/busybox sh
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /newroot
busybox mount -t devtmpfs dev /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
echo "{READY_LINE}" > /dev/console
busybox grep -q pgstrata.probe /proc/cmdline && busybox poweroff -f
while read -r module; do busybox insmod "/modules/$module"; done < /modules/order
find_root() {{
    for disk in /sys/block/vd*; do
        [ "$(busybox cat "$disk/serial")" = {ROOT_SERIAL} ] && root="/dev/${{disk##*/}}"
    done
}}
root=
tries=0
while [ -z "$root" ] && [ "$tries" -lt 100 ]; do find_root; tries=$((tries + 1)); busybox sleep 0.1; done
busybox mount -t ext4 -o rw,noatime "$root" /newroot
busybox cp -a /seed/. /newroot/
while read -r interface address; do
    busybox ip link set dev "$interface" up
    busybox ip address add "$address" dev "$interface"
done < /seed/etc/pgstrata/addresses
busybox ip link set dev lo up
busybox umount /proc
busybox umount /sys
exec /bin/busybox switch_root /newroot /lib/systemd/systemd
"""


def parse_modules_dep(text: str) -> dict[str, tuple[str, ...]]:
    """The content of modules.dep: each module's path and those it needs (modules.dep(5)); a bad line is an error."""
    found = {}
    for line in text.splitlines():
        path, colon, needs = line.partition(":")
        if not colon:
            raise ValueError(f"not a line of modules.dep: {line!r}")
        found[path] = tuple(needs.split())
    return found


def module_name(path: str) -> str:
    """`kernel/drivers/block/virtio_blk.ko` -> `virtio_blk`."""
    return PurePosixPath(path).name.partition(".ko")[0].replace("-", "_")


def insertion_order(dependencies: Mapping[str, tuple[str, ...]], wanted: Iterable[str]) -> tuple[str, ...]:
    """Paths of the wanted modules and all they need, each behind what it needs; what is built in has no file."""
    paths = {module_name(path): path for path in dependencies}
    order: dict[str, None] = {}

    def add(path: str) -> None:
        for need in dependencies[path]:
            if need not in order:
                add(need)
        order[path] = None

    for name in wanted:
        if name in paths:
            add(paths[name])
    return tuple(order)


def render_initrd(busybox: bytes, modules: Mapping[str, bytes]) -> bytes:
    """The archive all machines share; `modules` by file name, in the order of insertion."""
    order = "".join(f"{name}\n" for name in modules)
    files = [Entry("bin/busybox", busybox, 0o755), Entry("init", INIT.encode(), 0o755)]
    files += [Entry(f"modules/{name}", content) for name, content in modules.items()]
    return render_cpio(with_parents((directory("dev"), *files, Entry("modules/order", order.encode()))))


def render_seed(files: Iterable[Entry]) -> bytes:
    """The archive of a machine's own files, to be appended; paths are those in the machine."""
    return render_cpio(
        with_parents(Entry(f"seed/{entry.path}", entry.content, entry.permissions, entry.directory) for entry in files)
    )
