"""Devices that may be written to. Refuses in doubt: losing somebody's data is worse than any missing result.

Their signatures (filesystem, RAID, LVM, encryption, partition table) are read from the device itself by `wipefs` and by
the low-level probing of `blkid`, never from lsblk's FSTYPE: that comes from udev's database, and is empty without udev.

Kernel names such as /dev/sdb change between boots, so they are not ids. If a machine has nothing better (no udev, no
partition table), the path counts together with size and major:minor, which makes a mix-up visible. by-diskseq counts
devices since the boot. by-label, by-uuid and by-partlabel follow the content of any disk: a copy of a disk, or another
disk with the same label, takes over their links. They are not ids either.
"""

from __future__ import annotations

import errno
import json
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pgstrata.errors import PreflightError, TrialError, UsageError, parser_of
from pgstrata.host.protocol import Command, CommandFailed, Host, OpenDevice, command
from pgstrata.stack.place import list_partitions, sysfs_folder

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


PASSING_ATTEMPTS = 10
PASSING_PAUSE_S = 0.3
"""Seconds between attempts: whoever merely looks at a device (udev after every change, smartd) is gone in that time."""

NO_FORMAT = "data in no format that is recognised"


@dataclass(frozen=True)
class DeviceState:
    """State of a device that a stack wants to overwrite."""

    id: str
    node: str
    size_bytes: int
    in_use: tuple[str, ...]
    """Reasons why it must not be touched, whatever the campaign allows."""
    signatures: tuple[Signature, ...]
    content_at: int | None = None
    """Offset of the first byte that is not zero, on a device without signatures; None on a blank one.

    Raw data, a tar archive, what is encrypted with a detached header and the second half of an array have no
    signature that could be told from noise."""

    @property
    def carries(self) -> str:
        """Content that would be lost, for people; empty for a blank device."""
        if self.content_at is not None:
            return f"{NO_FORMAT} (from byte {self.content_at} on)"
        return ", ".join(s.shown for s in self.signatures)


@contextmanager
def opened(host: Host, node: str, *, write: bool = False) -> Iterator[OpenDevice]:
    """A device, held exclusively with `write` where nobody else holds it; waits a moment for those who only look at
    it."""
    device = _open(host, node, write=write)
    try:
        for _ in range(PASSING_ATTEMPTS):
            if device.uses or not device.passing:
                break
            host.close_device(device.handle)
            time.sleep(PASSING_PAUSE_S)
            device = _open(host, node, write=write)
        yield device
    finally:
        host.close_device(device.handle)


def _open(host: Host, node: str, *, write: bool) -> OpenDevice:
    try:
        return host.open_device(node, write=write)
    except OSError as error:
        raise PreflightError(
            f"device {node} on {host.name} cannot be opened: {error.strerror}", hint="lsblk --output NAME,ID-LINK,SIZE"
        ) from error


def inspect_device(host: Host, id_: str) -> DeviceState:
    """Looks at a device without writing to it; PreflightError when the id leads to no block device."""
    wanted = parse_device_id(id_)
    node = _find(host, wanted)
    with opened(host, node) as device:
        return _inspect(host, wanted, node, device)


def refuse_or_allow(host: Host, id_: str, erase: tuple[str, ...]) -> DeviceState:
    """The state of a device that may be overwritten; PreflightError for any other."""
    state = inspect_device(host, id_)
    _refuse(host, state, erase)
    return state


@contextmanager
def held_to_erase(host: Host, id_: str, node: str, erase: tuple[str, ...]) -> Iterator[tuple[DeviceState, OpenDevice]]:
    """The state of a device that may be overwritten, which is held exclusively until the block ends.

    `node` is where the id led to when it was looked up for the commands that will write. A handle that keeps nobody
    off stays open behind the block, for `require_same` and for the undo.
    """
    wanted = parse_device_id(id_)
    with opened(host, _find(host, wanted), write=True) as device:
        state = _inspect(host, wanted, node, device)
        _refuse(host, state, erase)
        kept = host.open_device(device.path, exclusive=False)
        try:
            require_same(host, id_, node)
            yield state, device
        except BaseException:
            host.close_device(kept.handle)
            raise


def require_same(host: Host, id_: str, node: str) -> None:
    """PreflightError unless an id and a node both still lead to the device that was inspected."""
    for path in (find_again(host, id_), node):
        if not _is_held(host, path):
            raise PreflightError(
                f"{path or id_} on {host.name} is not the device any more that was inspected as {id_}",
                hint=f"look at `ls -l {id_}`, and what has changed the names of devices",
            )


def _is_held(host: Host, path: str) -> bool:
    status = host.status(path) if path else None
    if status is None or status.kind != "block":
        return False
    device = host.open_device(path, exclusive=False)
    try:
        return host.other_handles(device.handle) != ()
    finally:
        host.close_device(device.handle)


def _inspect(host: Host, wanted: DeviceId, node: str, device: OpenDevice) -> DeviceState:
    _require_repeated(wanted, device)
    _require_kernel_name(host, node, device)
    in_use = (*device.uses, *device.passing)
    signatures = () if in_use else carried(host, node, device)
    try:
        content_at = None if in_use or signatures else host.first_content(device.handle)
    except OSError as error:
        raise PreflightError(
            f"device {wanted.text} ({node}) on {host.name} cannot be read: {error.strerror}",
            hint="run as root with CAP_SYS_ADMIN" if error.errno == errno.EACCES else "dmesg | tail",
        ) from error
    return DeviceState(wanted.text, node, device.size_bytes, in_use, signatures, content_at)


def carried(host: Host, node: str, device: OpenDevice) -> tuple[Signature, ...]:
    """Return what is written on a device; a partition is content even if nothing is found in it."""
    partitions = (Signature(f"partition {name}") for name in list_partitions(host, node))
    return (*list_signatures(host, device.path), *partitions)


def _refuse(host: Host, state: DeviceState, erase: tuple[str, ...]) -> None:
    """A device that is in use is always refused; one that carries anything unless exactly this id is in `erase`."""
    if state.in_use:
        listing = f"pgstrata doctor --host {shlex.quote(host.name)}"
        raise PreflightError(
            f"device {state.id} ({state.node}) on {host.name} is in use: {'; '.join(state.in_use)}",
            hint=f"name another device ({listing} lists them), or free this one first",
        )
    if state.carries and state.id not in erase:
        raise PreflightError(
            f"device {state.id} ({state.node}) on {host.name} carries {state.carries}: it may hold data",
            hint=f"if all of it may be destroyed, add to the campaign: erase: [{state.id!r}] "
            f"(for quick: --erase {shlex.quote(state.id)})",
        )


def wipe(host: Host, state: DeviceState, device: OpenDevice, step: str) -> None:
    """Leaves a device blank."""
    zero(host, device, f"{state.id} ({state.node})", state.node, f"step {step!r}")
    require_blank(host, state, device)


def zero(host: Host, device: OpenDevice, shown: str, node: str, part: str) -> None:
    """Clears a device. TrialError where it refuses."""
    try:
        host.zero(device.handle)
    except OSError as error:
        raise write_refused(host, shown, node, f"wiped in {part}", error.strerror or str(error)) from error


def write_refused(host: Host, shown: str, node: str, to_be: str, why: str) -> TrialError:
    """A device refuses what is written to it, as a thin one whose store is full; `to_be` says what for, and in which
    part of the trial."""
    look = f"lsblk -s {node}" if node.startswith("/dev/") else "df"
    return TrialError(
        f"device {shown} on {host.name} could not be {to_be}: {why}",
        hint=f"see what it lies on, and whether that is full: {look}; dmesg | tail",
    )


def require_blank(host: Host, state: DeviceState, device: OpenDevice) -> None:
    """TrialError when a device that was wiped still carries something: pools of zfs leave dozens of labels."""
    signatures = carried(host, state.node, device)
    content_at = None if signatures else host.first_content(device.handle)
    left = DeviceState(state.id, state.node, state.size_bytes, (), signatures, content_at).carries
    if left:
        raise TrialError(
            f"device {state.id} ({state.node}) on {host.name} still carries {left} after wiping",
            hint=f"wipefs --all {state.node}",
        )


def find_again(host: Host, id_: str) -> str:
    """The node of a device that was found before, empty when it is gone; PreflightError when it is another one now."""
    wanted = parse_device_id(id_)
    node = host.run(wanted.find_command, check=False).stdout.strip()
    if not node or host.status(node) is None:
        return ""
    if wanted.size_bytes is not None:
        device = host.open_device(node, exclusive=False)
        host.close_device(device.handle)
        _require_repeated(wanted, device)
    return node


def _find(host: Host, device: DeviceId) -> str:
    nodes = host.run(device.find_command, check=False).stdout.split()
    status = host.status(nodes[0]) if nodes else None
    if len(nodes) != 1 or status is None or status.kind != "block":
        found = f"{len(nodes)} devices" if len(nodes) > 1 else "no block device"
        raise PreflightError(
            f"{device.text} leads to {found} on {host.name}",
            hint=f"pgstrata doctor --host {shlex.quote(host.name)} lists the disks with the ids to paste",
        )
    return nodes[0]


def _require_repeated(wanted: DeviceId, device: OpenDevice) -> None:
    """A path alone is not stable, so what the user repeated must agree."""
    if wanted.size_bytes not in (None, device.size_bytes) or wanted.numbers not in (None, device.numbers):
        major, minor = device.numbers
        raise PreflightError(
            f"{wanted.text} is another device now: it has {device.size_bytes} bytes and number {major}:{minor}",
            hint="look which device is meant; names of devices change between boots",
        )


def _require_kernel_name(host: Host, node: str, device: OpenDevice) -> None:
    """Require that what sysfs is asked by the name of a node is about the device that is open."""
    named = f"{sysfs_folder(node)}/dev"
    found = host.read_text(named).strip() if host.status(named) is not None else "no device"
    major, minor = device.numbers
    if found != f"{major}:{minor}":
        raise PreflightError(
            f"{node} on {host.name} is device {major}:{minor}, but to the kernel that name is {found}",
            hint="name the device as the kernel does: lsblk --output NAME,MAJ:MIN",
        )
