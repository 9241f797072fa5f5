"""Disks of a host as listed by `doctor` and refusals: stable name and content of each. Read-only."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.protocol import Host, command
from pgstrata.spec.printable import one_line
from pgstrata.spec.units import render_size
from pgstrata.stack.safety import DeviceState, find_nodes, inspect_device, is_backing_file, refuse_or_allow
from pgstrata.stack.undo import OURS

State = Literal["blank", "carries data", "in use", "not known"]

COLUMNS = "PATH,TYPE,SIZE,MODEL,RO,MAJ:MIN"
_LINKS = ("/dev/disk/by-id", "/dev/disk/by-path", "/dev/disk/by-partuuid")
"""Folders of stable names, the best first."""
_NUMBERS_ONLY = ("wwn-", "nvme-eui.", "nvme-nvme.", "scsi-3", "scsi-0")
"""Prefixes of names that mean nothing to people; used if the folder has no other."""
MOST_LISTED = 6
"""Maximum lines in a refusal; `doctor` lists all disks."""
_FREE_FIRST: tuple[State, ...] = ("blank", "carries data", "not known", "in use")
_NOT_DISKS = ("/dev/zram", "/dev/ram", "/dev/fd")


@dataclass(frozen=True)
class Disk:
    """A disk, partition or loop device. `id` is its name in a campaign."""

    node: str
    id: str
    kind: Literal["disk", "part", "loop"]
    size_bytes: int
    model: str
    state: State
    what: str
    """Its content, its users, or why it could not be read; empty for a blank disk."""


def list_disks(host: Host) -> tuple[Disk, ...]:
    """List disks, partitions and loop devices, each inspected as before writing; empty if lsblk is missing. Loop
    devices of running trials are left out: an inspection asks for a device exclusively, which may be in their way."""
    listed = host.run(command("lsblk", "--json", "--bytes", "--list", ["--output", COLUMNS]), check=False)
    if listed.exit_code != 0:
        return ()
    entries = parse_disks(listed.stdout)
    files = _backing_files(host, entries)
    names = _lasting_names(host) | {node: file for node, file in files.items() if _leads_to(host, file, node)}
    return tuple(
        _inspected(host, entry, names) for entry in entries if f"/{OURS}" not in files.get(str(entry["path"]), "")
    )


def render_own_id(host: Host, typed: str) -> tuple[str, ...]:
    """Render the id of a device that was named otherwise, with the options that take it; empty if it is not listed."""
    node = host.run(command("readlink", "--canonicalize", typed), check=False).stdout.strip()
    return tuple(
        f"the id of {typed} is {disk.id}: --device {disk.id}"
        + (f", and as it carries {disk.what}, --erase {disk.id}" if disk.state == "carries data" else "")
        for disk in list_disks(host)
        if disk.node == node
    )


def allow_or_list(host: Host, id_: str, erase: tuple[str, ...]) -> DeviceState:
    """Return the state of a device that may be overwritten; otherwise PreflightError, with the available disks."""
    try:
        return refuse_or_allow(host, id_, erase)
    except PreflightError as error:
        listed = render_disks(host.name, list_disks(host))
        raise PreflightError(error.message, hint="\n".join((error.hint, *listed))) from error


def render_disks(host: str, disks: Sequence[Disk]) -> tuple[str, ...]:
    """Render a few lines on the disks of a host: usable ones first, with how to write them."""
    if not disks:
        return ()
    ordered = sorted(disks, key=lambda disk: _FREE_FIRST.index(disk.state))
    more = len(ordered) - MOST_LISTED
    return (
        f"disks of {host} (in a stack: disk(ID)/ext4, for quick: --device ID):",
        *(f"  {_line(disk)}" for disk in ordered[:MOST_LISTED]),
        *([f"  and {more} more: pgstrata doctor --host {shlex.quote(host)}"] if more > 0 else []),
    )


def _line(disk: Disk) -> str:
    what = f"{disk.state}: {disk.what}" if disk.what else disk.state
    told = (disk.id, render_size(disk.size_bytes), disk.model, what)
    return one_line("  ".join(word for word in told if word))


def parse_disks(text: str) -> tuple[Mapping[str, Any], ...]:
    """Parse the writable entries of `lsblk --json --bytes --list --output COLUMNS`, each node once."""
    entries = {
        entry["path"]: entry
        for entry in json.loads(text)["blockdevices"]
        if entry["type"] in ("disk", "part", "loop") and entry["size"] and not entry["path"].startswith(_NOT_DISKS)
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
    """Classify a device: usable, usable with `erase`, or not usable."""
    if state.in_use:
        return "in use", "; ".join(state.in_use)
    return ("carries data", state.carries) if state.carries else ("blank", "")


def _backing_files(host: Host, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the backing file of each loop device, as the kernel knows it."""
    nodes = [str(entry["path"]) for entry in entries if entry["type"] == "loop"]
    files = {node: f"/sys/block/{node.rpartition('/')[2]}/loop/backing_file" for node in nodes}
    return {node: host.read_text(path).strip() for node, path in files.items() if host.status(path) is not None}


def _leads_to(host: Host, file: str, node: str) -> bool:
    return is_backing_file(file) and find_nodes(host, [file])[file] == node


def _lasting_names(host: Host) -> dict[str, str]:
    """Return the best stable name of each node that has one."""
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
