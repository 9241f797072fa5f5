"""Block devices (lsblk), what is mounted where (findmnt), and the medium that a path finally lies on, in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pgstrata.errors import parser_of
from pgstrata.host.facts.system import read_file, read_output
from pgstrata.host.protocol import Host

COLUMNS = "KNAME,PATH,TYPE,SIZE,RO,ROTA,MODEL,TRAN,LOG-SEC,PHY-SEC,MOUNTPOINT,PKNAME"
"""MOUNTPOINT and not MOUNTPOINTS, which util-linux has since 2.37 only."""


@dataclass(frozen=True)
class BlockDevice:
    name: str
    path: str
    kind: str
    """disk, part, lvm, raid1, loop, crypt, ..."""
    size_bytes: int
    read_only: bool
    rotational: bool
    """True if the kernel believes that it rotates; virtual disks often claim to."""
    model: str | None
    transport: str | None
    logical_sector_bytes: int
    physical_sector_bytes: int
    mountpoint: str | None
    parent: str | None


@parser_of("lsblk")
def parse_lsblk(text: str) -> tuple[BlockDevice, ...]:
    """From `lsblk -J -b -l -o COLUMNS`; a device with several parents comes once for each."""
    return tuple(_parse_device(entry) for entry in json.loads(text)["blockdevices"])


def _parse_device(entry: dict[str, Any]) -> BlockDevice:
    return BlockDevice(
        name=entry["kname"],
        path=entry["path"],
        kind=entry["type"],
        size_bytes=int(entry["size"] or 0),
        read_only=_flag(entry["ro"]),
        rotational=_flag(entry["rota"]),
        model=(entry["model"] or "").strip() or None,
        transport=entry["tran"],
        logical_sector_bytes=int(entry["log-sec"]),
        physical_sector_bytes=int(entry["phy-sec"]),
        mountpoint=entry["mountpoint"],
        parent=entry["pkname"],
    )


def _flag(value: object) -> bool:
    return value in (True, "1", 1)  # util-linux before 2.33 prints strings


def read_block_devices(host: Host) -> tuple[BlockDevice, ...]:
    """Block devices with a size; none where there is no lsblk."""
    text = read_output(host, "lsblk", "-J", "-b", "-l", "-o", COLUMNS)
    return tuple(device for device in parse_lsblk(text) if device.size_bytes > 0) if text else ()


def read_write_cache(host: Host, name: str) -> str | None:
    """`write back` (volatile unless the device has protection, which it does not tell) or `write through`."""
    return read_file(host, f"/sys/class/block/{name}/queue/write_cache")


# ---------------------------------------------------------------- mounts

MOUNT_COLUMNS = "TARGET,SOURCE,FSTYPE,OPTIONS"


@dataclass(frozen=True)
class Mount:
    target: str
    source: str
    """Source as findmnt gives it; a subvolume or bind mount in brackets behind the device is cut off."""
    filesystem: str
    options: tuple[str, ...]


@parser_of("findmnt")
def parse_findmnt(text: str) -> tuple[Mount, ...]:
    """From `findmnt -J -o MOUNT_COLUMNS`, parents before children."""
    found: list[Mount] = []

    def walk(entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            source = (entry["source"] or "").partition("[")[0]
            found.append(Mount(entry["target"], source, entry["fstype"], tuple((entry["options"] or "").split(","))))
            walk(entry.get("children", []))

    walk(json.loads(text)["filesystems"])
    return tuple(found)


def read_mount_of(host: Host, path: str) -> Mount | None:
    """The mount that holds a path, or will hold it once it is made."""
    while host.status(path) is None and path not in ("/", ""):
        path = path.rstrip("/").rpartition("/")[0] or "/"
    text = read_output(host, "findmnt", "-J", "-o", MOUNT_COLUMNS, "-T", path)
    return parse_findmnt(text)[-1] if text else None


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
