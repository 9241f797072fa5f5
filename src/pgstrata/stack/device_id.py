"""Stable names of block devices: accepted spellings for real devices, and lookup of their nodes.

Kernel names such as /dev/sdb change between boots, so they are not ids. If a machine has nothing better (no udev, no
partition table), the path counts together with size and major:minor, which makes a mix-up visible.

by-diskseq counts devices since the boot. by-label, by-uuid and by-partlabel follow the content of any disk: a copy of a
disk, or another disk with the same label, takes over their links. They are not ids either.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pgstrata.errors import UsageError
from pgstrata.host.protocol import Command, Host

_LINK = re.compile(r"^/dev/disk/by-(id|path|partuuid)/[^/]+$")
_PARTUUID = re.compile(r"^PARTUUID=[0-9A-Fa-f-]+$")
_REPEATED = re.compile(r"^(?P<path>/dev/[^+]+)\+(?P<size>\d+)\+(?P<major>\d+):(?P<minor>\d+)$")

_READLINK = ("readlink", "--canonicalize-existing")

HINT = (
    "name it by /dev/disk/by-id/..., /dev/disk/by-path/..., PARTUUID=..., the backing file of a loop device, "
    "or PATH+SIZE_BYTES+MAJOR:MINOR, for example /dev/vdb+10737418240+254:16; pgstrata doctor lists the disks so"
)


@dataclass(frozen=True)
class DeviceId:
    """A parsed id. `find_argv` prints the device node; size and numbers are set if the user repeated them."""

    text: str
    find_argv: tuple[str, ...]
    size_bytes: int | None = None
    numbers: tuple[int, int] | None = None

    @property
    def find_command(self) -> Command:
        return Command(self.find_argv)


def parse_device_id(text: str) -> DeviceId:
    """Parse an id; UsageError when it is not stable (such as /dev/sdb)."""
    if _LINK.match(text):
        return DeviceId(text, (*_READLINK, text))
    if _PARTUUID.match(text):
        return DeviceId(text, ("findfs", text))
    repeated = _REPEATED.match(text)
    if repeated:
        path = repeated["path"]
        return DeviceId(
            text,
            (*_READLINK, path),
            size_bytes=int(repeated["size"]),
            numbers=(int(repeated["major"]), int(repeated["minor"])),
        )
    if is_backing_file(text):
        return DeviceId(text, ("losetup", "--associated", text, "--noheadings", "--output", "NAME"))
    raise UsageError(f"{text} is no stable id of a device", hint=HINT)


def is_backing_file(text: str) -> bool:
    """Return True if an id is a path that can be that of a loop device's backing file."""
    return text.startswith("/") and not text.startswith("/dev/")


def find_nodes(host: Host, ids: Sequence[str]) -> dict[str, str]:
    """Return the current node of each id, empty if it leads nowhere; one program looks up all paths."""
    devices = [parse_device_id(id_) for id_ in ids]
    paths = [device for device in devices if device.find_argv[:-1] == _READLINK]
    together = Command((*_READLINK, *(device.find_argv[-1] for device in paths)))
    lines = host.run(together, check=False).stdout.splitlines() if len(paths) > 1 else []
    # a line is missing for each path that is, and nothing says which
    found = dict(zip((d.text for d in paths), lines, strict=True)) if len(lines) == len(paths) else {}
    return {d.text: found.get(d.text) or host.run(d.find_command, check=False).stdout.strip() for d in devices}
