"""The disks of a host, as `doctor` lists them: what each is called for good, and what is on it. Looks, never writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import Host, command
from pgstrata.stack.safety import DeviceState, inspect_device

State = Literal["blank", "carries data", "in use", "not known"]

COLUMNS = "PATH,TYPE,SIZE,MODEL,RO,MAJ:MIN"
_LINKS = ("/dev/disk/by-id", "/dev/disk/by-path", "/dev/disk/by-partuuid")
"""Folders of names that stay, the best first."""
_NUMBERS_ONLY = ("wwn-", "nvme-eui.", "nvme-nvme.", "scsi-3", "scsi-0")
"""Beginnings of names that say nothing to people; taken where there is no other in that folder."""
_NOT_DISKS = ("/dev/zram", "/dev/ram", "/dev/fd")


@dataclass(frozen=True)
class Disk:
    """A disk or partition. `id` is what a campaign calls it."""

    node: str
    id: str
    kind: Literal["disk", "part"]
    size_bytes: int
    model: str
    state: State
    what: str
    """What it carries, who uses it, or why that could not be seen; empty for a blank one."""


def list_disks(host: Host) -> tuple[Disk, ...]:
    """Disks and partitions, each inspected as before it would be written to; empty where lsblk is missing."""
    listed = host.run(command("lsblk", "--json", "--bytes", "--list", ["--output", COLUMNS]), check=False)
    if listed.exit_code != 0:
        return ()
    names = _lasting_names(host)
    return tuple(_inspected(host, entry, names) for entry in parse_disks(listed.stdout))


def parse_disks(text: str) -> tuple[Mapping[str, Any], ...]:
    """Entries of `lsblk --json --bytes --list --output COLUMNS` that could be written to, each node once."""
    entries = {
        entry["path"]: entry
        for entry in json.loads(text)["blockdevices"]
        if entry["type"] in ("disk", "part") and entry["size"] and not entry["path"].startswith(_NOT_DISKS)
    }
    return tuple(entries.values())


def _inspected(host: Host, entry: Mapping[str, Any], names: Mapping[str, str]) -> Disk:
    node = str(entry["path"])
    id_ = names.get(node) or f"{node}+{entry['size']}+{entry['maj:min']}"
    state, what = _look(host, id_)
    if state == "blank" and entry["ro"]:
        state, what = "in use", "read-only"
    model = str(entry["model"] or "").strip()
    return Disk(node, id_, entry["type"], int(entry["size"]), model, state, what)


def _look(host: Host, id_: str) -> tuple[State, str]:
    try:
        return judged(inspect_device(host, id_))
    except PgstrataError as error:
        return "not known", error.message


def judged(state: DeviceState) -> tuple[State, str]:
    """What a campaign may do with a device: take it, take it with `erase`, or not at all."""
    if state.in_use:
        return "in use", "; ".join(state.in_use)
    return ("carries data", state.carries) if state.carries else ("blank", "")


def _lasting_names(host: Host) -> dict[str, str]:
    """The best lasting name of each node that has one."""
    links = [
        f"{folder}/{name}"
        for folder in _LINKS
        if host.status(folder) is not None
        for name in sorted(host.list_directory(folder), key=lambda name: (name.startswith(_NUMBERS_ONLY), name))
    ]
    nodes = host.run(command("readlink", "--canonicalize", "--zero", links)).stdout.split("\0") if links else []
    found: dict[str, str] = {}
    for link, node in zip(links, nodes, strict=False):  # behind the last one is an empty one
        found.setdefault(node, link)
    return found
