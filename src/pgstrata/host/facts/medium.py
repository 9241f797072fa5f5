"""Medium that a path finally lies on, in the words of a table's head: `loop file on ext4 on /dev/vda`."""

from __future__ import annotations

import json
from typing import Any

from pgstrata.host.facts.block import Mount, read_mount_of
from pgstrata.host.facts.source import read_output
from pgstrata.host.protocol import Host

NETWORK = frozenset({"nfs", "nfs4", "cifs", "ceph", "glusterfs", "9p", "virtiofs"})
MEMORY = frozenset({"tmpfs", "ramfs"})


def parse_parents(text: str) -> tuple[tuple[str, str], ...]:
    """(path, kind) of a device and of what it is made of, down to the disks; from `lsblk -s -J -o PATH,TYPE,MODEL`."""
    found: list[tuple[str, str]] = []

    def walk(entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            model = (entry["model"] or "").strip()
            found.append((f"{entry['path']} ({model})" if model else entry["path"], entry["type"]))
            walk(entry.get("children", []))

    walk(json.loads(text)["blockdevices"])
    return tuple(dict.fromkeys(found))


def render_device(parents: tuple[tuple[str, str], ...]) -> str:
    """`/dev/mapper/vg-data (lvm) on /dev/sda, /dev/sdb`; a partition right below the filesystem is named itself."""
    disks = ", ".join(path for path, kind in parents if kind == "disk")
    layers = [f"{path} ({kind})" for path, kind in parents if kind not in ("disk", "part")]
    if layers:
        return " on ".join([*layers, disks] if disks else layers)
    path, kind = parents[0]
    model = disks.partition(" ")[2] if kind == "part" else ""
    return f"{path} {model}".strip()


def _device(host: Host, path: str) -> str:
    text = read_output(host, "lsblk", "-s", "-J", "-o", "PATH,TYPE,MODEL", path)
    return render_device(parse_parents(text)) if text else path


def _mounted(host: Host, mount: Mount) -> str:
    if mount.filesystem in MEMORY:
        return f"{mount.filesystem} (memory)"
    if mount.filesystem == "zfs":
        return f"zfs dataset {mount.source}"
    if mount.filesystem in NETWORK or not mount.source.startswith("/dev/"):
        return f"{mount.filesystem} on {mount.source}"
    return f"{mount.filesystem} on {_device(host, mount.source)}"


def medium(host: Host, path: str, *, loop: bool = True) -> str:
    """Medium that stacks under `path` are measured on.

    A block device is named itself; below a directory, existing or not, stacks are loop files unless `loop` is false
    (a stack that is an existing directory).
    """
    status = host.status(path)
    if status is not None and status.kind == "block":
        return _device(host, path)
    mount = read_mount_of(host, path)
    lower = _mounted(host, mount) if mount else "an unknown filesystem"
    return f"loop file on {lower}" if loop else lower
