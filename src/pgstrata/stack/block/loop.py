"""Loop devices over sparse files, with direct I/O so that the host's page cache is not measured."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pgstrata.errors import PgstrataError, parser_of
from pgstrata.host.capabilities import UTIL_LINUX, Capability, kernel_has, openable, program_path, writable
from pgstrata.host.facts.system import read_names
from pgstrata.host.facts.tools import driver_available
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.devices import LoopDevice
from pgstrata.stack.kind import Below, DeviceKind, PlannedLayer
from pgstrata.stack.mounts import find_mount, list_mounts
from pgstrata.stack.place import Place, read_size_bytes, sysfs_folder
from pgstrata.stack.step import Attested, Ref, Step, planned, told
from pgstrata.stack.undo import RemovePath, Undo
from pgstrata.stack.undoing import BUSY_ATTEMPTS, BUSY_PAUSE_S


def plan_loop(device: LoopDevice, place: Place) -> PlannedLayer:
    """Plan a sparse file and a loop device for each of `device.count`; binds `ROLE.0`, `ROLE.1`, ... The files lie in a
    folder that nobody else can read, because they may contain the user's own data.

    One program makes all files and one detaches all loop devices: under emulation, one program per device takes a
    minute for 25 devices.
    """
    size_bytes = device.size or place.loop_size_bytes
    nodes = tuple(Ref(f"{place.role}.{i}") for i in range(device.count))
    files = tuple(place.backing_file(i) for i in range(device.count))
    make = Step(
        name=f"backing files for {place.role}",
        commands=(
            planned("mkdir", ["--mode", "0700"], place.backing_folder),
            planned("truncate", f"--size={size_bytes}", files),
        ),
        undo=(RemovePath(path=place.backing_folder), DetachLoops(backing_files=files)),
    )
    attach = (plan_attach(file, node) for file, node in zip(files, nodes, strict=True))
    return PlannedLayer((make, *attach), Below(nodes=nodes, media=nodes), (LoopCheck(nodes, files, size_bytes),))


def plan_attach(backing_file: str, node: Ref) -> Step:
    """Attach a file to a free loop device and bind the device to `node`."""
    attach = planned("losetup", "--find", "--show", "--direct-io=on", backing_file)
    return Step(name=f"loop device {node.name}", commands=(attach,), binds=node.name)


@dataclass(frozen=True)
class LoopState:
    """State of one loop device as listed by losetup."""

    node: str
    backing_file: str
    direct_io: bool
    logical_sector_bytes: int


@parser_of("losetup")
def parse_losetup(text: str) -> tuple[LoopState, ...]:
    """Parse `losetup --json --list --output NAME,BACK-FILE,DIO,LOG-SEC`; empty when there are no loop devices."""
    if not text.strip():
        return ()
    return tuple(
        LoopState(
            node=entry["name"],
            # the kernel marks a deleted backing file in the name itself
            backing_file=str(entry["back-file"] or ""),
            direct_io=entry["dio"] in (True, 1, "1"),
            logical_sector_bytes=int(entry["log-sec"] or 0),  # null while somebody detaches it
        )
        for entry in json.loads(text)["loopdevices"]
    )


def list_loops(host: Host) -> tuple[LoopState, ...]:
    """List all loop devices in use on the host."""
    listing = command("losetup", "--json", "--list", ["--output", "NAME,BACK-FILE,DIO,LOG-SEC"])
    return parse_losetup(host.run(listing).stdout)


LOST_FOR_S = 3.0
"""The kernel itself detaches the device of a worker that was killed with its daemon, a moment later."""


def lost_loops(host: Host) -> tuple[LoopState, ...]:
    """List the loop devices whose backing filesystem has ended, as a killed strata-disk leaves them. No undo can find
    such a device, because no path leads to its file."""
    if program_path(host, "losetup") is None or not (lost := _lost_now(host)):
        return ()
    host.pause(LOST_FOR_S)
    return tuple(loop for loop in _lost_now(host) if loop in lost)


def _lost_now(host: Host) -> list[LoopState]:
    return [loop for loop in list_loops(host) if _is_lost(host, loop)]


def _is_lost(host: Host, loop: LoopState) -> bool:
    """The path leads nowhere, the kernel cannot tell the inode of the file, and reads fail: a file that is deleted or
    in another mount namespace has an inode. It is not read before, because a daemon that stands still would not answer.
    """
    try:
        if host.status(loop.backing_file) is not None:
            return False
    except OSError:  # the dead filesystem is still mounted there
        return False
    inode = command("losetup", "--list", "--noheadings", ["--output", "BACK-INO"], loop.node)
    if host.run(inode, check=False).stdout.strip():
        return False
    read = command("dd", f"if={loop.node}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none")
    return "Input/output error" in host.run(read, check=False).stderr


def backing_file_of(host: Host, node: str) -> str | None:
    """Return the backing file of a loop device from sysfs, without starting a program; None when it is not attached."""
    try:
        return host.read_text(f"{sysfs_folder(node)}/loop/backing_file").strip()
    except FileNotFoundError:
        return None


def shown_size_bytes(host: Host, node: str) -> str:
    """Return the size that the kernel shows; empty when it has no such node."""
    try:
        return str(read_size_bytes(host, node))
    except FileNotFoundError:
        return ""


@dataclass(frozen=True)
class LoopCheck:
    """Checks backing file, size and direct I/O of each loop device; records the filesystem of the file.

    One check, with one program run, covers all devices of a part.
    """

    nodes: tuple[Ref, ...]
    backing_files: tuple[str, ...]
    size_bytes: int

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        loops, mounts = {loop.node: loop for loop in list_loops(host)}, list_mounts(host)
        rows: list[Attested] = []
        for ref, backing_file in zip(self.nodes, self.backing_files, strict=True):
            node, what = ref.resolve(bindings), f"loop {ref.name}"
            found = loops.get(node)
            rows += (
                Attested(f"{what} backing_file", backing_file, found.backing_file if found else "not attached"),
                Attested(f"{what} direct_io", "on", "on" if found and found.direct_io else "off"),
                Attested(f"{what} size_bytes", str(self.size_bytes), shown_size_bytes(host, node)),
            )
            mount = find_mount(mounts, backing_file)
            if mount is not None:
                rows += (
                    told(f"{what} file fstype", mount.fstype),
                    told(f"{what} file mount options", ",".join(dict.fromkeys(mount.options))),
                )
        return tuple(rows)


class DetachLoops(Undo):
    """Detach every loop device whose backing file is one of these."""

    kind: Literal["detach_loops"] = "detach_loops"
    backing_files: tuple[str, ...]


def _detach_loops(host: Host, undo: DetachLoops) -> str:
    names = {name for file in undo.backing_files for name in (file, f"{file} (deleted)")}
    nodes = [loop.node for loop in list_loops(host) if loop.backing_file in names]
    if not nodes:
        return ""
    # one that the kernel detaches meanwhile makes losetup fail, and of one that somebody has open, which is detached
    # when it is closed, losetup says nothing
    host.run(command("losetup", "--detach", nodes), check=False)
    attached = nodes
    for _ in range(BUSY_ATTEMPTS):
        attached = [node for node in attached if backing_file_of(host, node) in names]
        if not attached:
            return f"detached {', '.join(nodes)} from {', '.join(undo.backing_files)}"
        time.sleep(BUSY_PAUSE_S)
    raise PgstrataError(
        f"loop device {', '.join(attached)} of {undo.backing_files[0]} is still open",
        hint=f"fuser --verbose {attached[0]}",
    )


def _free_nodes(host: Host) -> list[str]:
    """Return the nodes of the kernel's loop devices that are not attached, last the one that is taken next. If all are
    attached, the kernel makes another one, whose node appears where theirs did: then those that are missing."""
    names = [name for name in read_names(host, "/sys/block") if name.startswith("loop")]
    free = [name for name in names if host.status(f"/sys/block/{name}/loop/backing_file") is None]
    free = free or [name for name in names if host.status(f"/dev/{name}") is None]
    return [f"/dev/{name}" for name in sorted(free, key=lambda name: (len(name), name), reverse=True)]


ATTACHABLE = (
    openable("/dev/loop-control"),
    writable(
        _free_nodes, "a container needs --privileged, or --device /dev/loopN and --device-cgroup-rule 'b 7:* rwm'"
    ),
)
"""Needed to attach a loop device."""

KIND = DeviceKind(
    LoopDevice,
    plan_loop,
    capabilities=(
        Capability(
            LoopDevice.capability,
            "attach files as block devices",
            (
                kernel_has(lambda host: driver_available(host, "loop", "loop"), "loop devices"),
                *ATTACHABLE,
                *UTIL_LINUX,
            ),
        ),
    ),
    undos={DetachLoops: _detach_loops},
)
