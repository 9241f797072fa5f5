"""Stable names of block devices: what a user may write for a real device, and how its node is found.

Kernel names such as /dev/sdb change between boots, so they are no ids. Where a machine has nothing better (no udev,
no partition table), the path counts together with size and major:minor, which makes a mix-up visible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgstrata.errors import UsageError
from pgstrata.host.protocol import Command

_LINK = re.compile(r"^/dev/disk/by-(id|path|partuuid|partlabel|diskseq)/[^/]+$")
_PARTUUID = re.compile(r"^PARTUUID=[0-9A-Fa-f-]+$")
_REPEATED = re.compile(r"^(?P<path>/dev/[^+]+)\+(?P<size>\d+)\+(?P<major>\d+):(?P<minor>\d+)$")

HINT = (
    "name it by /dev/disk/by-id/..., /dev/disk/by-path/..., PARTUUID=..., the backing file of a loop device, "
    "or PATH+SIZE_BYTES+MAJOR:MINOR, for example /dev/vdb+10737418240+254:16"
)


@dataclass(frozen=True)
class DeviceId:
    """A parsed id. `find_argv` prints the device node; size and numbers are set where the user repeated them."""

    text: str
    find_argv: tuple[str, ...]
    size_bytes: int | None = None
    numbers: tuple[int, int] | None = None

    @property
    def find_command(self) -> Command:
        return Command(self.find_argv)


def parse_device_id(text: str) -> DeviceId:
    """The id that `text` is; UsageError when it is not stable (such as /dev/sdb)."""
    if _LINK.match(text):
        return DeviceId(text, ("readlink", "--canonicalize-existing", text))
    if _PARTUUID.match(text):
        return DeviceId(text, ("findfs", text))
    repeated = _REPEATED.match(text)
    if repeated:
        path = repeated["path"]
        return DeviceId(
            text,
            ("readlink", "--canonicalize-existing", path),
            size_bytes=int(repeated["size"]),
            numbers=(int(repeated["major"]), int(repeated["minor"])),
        )
    if text.startswith("/") and not text.startswith("/dev/"):
        return DeviceId(text, ("losetup", "--associated", text, "--noheadings", "--output", "NAME"))
    raise UsageError(f"{text} is no stable id of a device", hint=HINT)
