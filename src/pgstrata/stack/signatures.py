"""Content of a block device: filesystem, RAID, LVM, encryption and partition-table signatures.

Read from the device itself by `wipefs` and by the low-level probing of `blkid`, never from lsblk's FSTYPE, which
comes from udev's database and is empty where there is no udev.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pgstrata.errors import parser_of
from pgstrata.host.protocol import CommandFailed, Host, command

LABEL = "pgstrata"
"""Label of every filesystem that pgstrata makes."""

_NOTHING_FOUND = 2
_AMBIVALENT = 8
"""Exit codes of `blkid --probe` (blkid(8)): nothing recognised; several signatures that contradict each other."""


@dataclass(frozen=True)
class Signature:
    """One magic string, or one result of probing."""

    type: str
    offset_bytes: int | None = None
    label: str = ""
    uuid: str = ""

    @property
    def identity(self) -> str:
        """Tells it from another one of the same type and label, where that type has UUIDs."""
        return f"{self.type} {self.label!r} {self.uuid}".rstrip()

    @property
    def shown(self) -> str:
        return f"{self.type} {self.label!r}" if self.label else self.type


@parser_of("wipefs")
def parse_wipefs(text: str) -> tuple[Signature, ...]:
    """The output of `wipefs --no-act --json`; it is empty when there are none."""
    if not text.strip():
        return ()
    return tuple(
        Signature(entry["type"], int(str(entry["offset"]), 0), entry.get("label") or "", entry.get("uuid") or "")
        for entry in json.loads(text)["signatures"]
    )


@parser_of("blkid")
def parse_blkid(text: str) -> tuple[Signature, ...]:
    """The output of `blkid --probe --output export`: what is on the device, and its partition table."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    label = fields.get("LABEL", "")
    found = [Signature(fields["TYPE"], None, label, fields.get("UUID", ""))] if "TYPE" in fields else []
    found += [Signature(fields["PTTYPE"], uuid=fields.get("PTUUID", ""))] if "PTTYPE" in fields else []
    return tuple(found)


def list_signatures(host: Host, node: str) -> tuple[Signature, ...]:
    """Everything that either tool finds on a device, each type and label once."""
    wiped = host.run(command("wipefs", "--no-act", "--json", node))
    probed = host.run(command("blkid", "--probe", ["--output", "export"], node), check=False)
    if probed.exit_code not in (0, _NOTHING_FOUND, _AMBIVALENT):
        raise CommandFailed(host.name, probed)
    ambivalent = (Signature("several signatures"),) if probed.exit_code == _AMBIVALENT else ()
    found = (*parse_wipefs(wiped.stdout), *parse_blkid(probed.stdout), *ambivalent)
    return tuple({(s.type, s.label): s for s in reversed(found)}.values())[::-1]
