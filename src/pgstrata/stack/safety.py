"""Which devices may be written to. Refuses in doubt: losing somebody's data is worse than any missing result."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.errors import PreflightError, TrialError
from pgstrata.host.protocol import FileStatus, Host, command
from pgstrata.stack.device_id import DeviceId, parse_device_id
from pgstrata.stack.mounts import parse_mountinfo
from pgstrata.stack.nodes import list_partitions, read_size_bytes, sysfs_folder
from pgstrata.stack.signatures import Signature, list_signatures


@dataclass(frozen=True)
class DeviceState:
    """What is known of a device that a stack wants to overwrite."""

    id: str
    node: str
    size_bytes: int
    in_use: tuple[str, ...]
    """Why it must not be touched, whatever the campaign allows."""
    signatures: tuple[Signature, ...]


def inspect_device(host: Host, id_: str) -> DeviceState:
    """Looks at a device without writing to it; PreflightError when the id leads to no block device."""
    device = parse_device_id(id_)
    node, status = _find(host, device)
    size_bytes = read_size_bytes(host, node)
    _require_repeated(device, status, size_bytes)
    family = _family(host, node, status.device)
    in_use = (
        *_mounted(host, family),
        *_swaps(host, family),
        *_holders(host, family),
        *(() if host.open_exclusive(node) else ("it cannot be opened exclusively, so something uses it",)),
    )
    return DeviceState(id_, node, size_bytes, in_use, _carried(host, node))


def _carried(host: Host, node: str) -> tuple[Signature, ...]:
    """What is written on a device; a partition is content even where nothing is found in it."""
    partitions = (Signature(f"partition {name}") for name in list_partitions(host, node))
    return (*list_signatures(host, node), *partitions)


def refuse_or_allow(host: Host, id_: str, erase: tuple[str, ...]) -> DeviceState:
    """The state of a device that may be overwritten; PreflightError for any other.

    A device that is in use is always refused; one that carries a signature unless exactly this id is in `erase`.
    """
    state = inspect_device(host, id_)
    if state.in_use:
        raise PreflightError(
            f"device {id_} ({state.node}) on {host.name} is in use: {'; '.join(state.in_use)}",
            hint="name another device, or free this one first",
        )
    if state.signatures and id_ not in erase:
        carries = ", ".join(s.shown for s in state.signatures)
        raise PreflightError(
            f"device {id_} ({state.node}) on {host.name} carries {carries}: it may hold data",
            hint=f"if all of it may be destroyed, add to the campaign: erase: [{id_!r}]",
        )
    return state


def require_blank(host: Host, device: DeviceState) -> None:
    """TrialError when a device that was wiped still carries a signature: pools of zfs leave dozens of them."""
    carried = _carried(host, device.node)
    if carried:
        left = ", ".join(s.shown for s in carried)
        raise TrialError(
            f"device {device.id} ({device.node}) on {host.name} still carries {left} after wiping",
            hint=f"wipefs --all {device.node}",
        )


def find_again(host: Host, id_: str) -> str:
    """The node of a device that was found before, empty when it is gone; PreflightError when it is another one now."""
    device = parse_device_id(id_)
    node = host.run(device.find_command, check=False).stdout.strip()
    status = host.status(node) if node else None
    if status is None:
        return ""
    if device.size_bytes is not None:
        _require_repeated(device, status, read_size_bytes(host, node))
    return node


def _find(host: Host, device: DeviceId) -> tuple[str, FileStatus]:
    nodes = host.run(device.find_command, check=False).stdout.split()
    status = host.status(nodes[0]) if nodes else None
    if len(nodes) != 1 or status is None or status.kind != "block":
        found = f"{len(nodes)} devices" if len(nodes) > 1 else "no block device"
        raise PreflightError(
            f"{device.text} leads to {found} on {host.name}",
            hint="ls -l /dev/disk/by-id, or lsblk --bytes --output NAME,SIZE,MAJ:MIN",
        )
    return nodes[0], status


def _require_repeated(device: DeviceId, status: FileStatus, size_bytes: int) -> None:
    """A path alone is not stable, so what the user repeated must agree."""
    if device.size_bytes not in (None, size_bytes) or device.numbers not in (None, status.device):
        major, minor = status.device
        raise PreflightError(
            f"{device.text} is another device now: it has {size_bytes} bytes and number {major}:{minor}",
            hint="look which device is meant; names of devices change between boots",
        )


def _family(host: Host, node: str, numbers: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """The device and its partitions: kernel name -> device numbers."""
    folder = sysfs_folder(node)
    family = {folder.rsplit("/", 1)[-1]: numbers}
    for name in list_partitions(host, node):
        major, minor = host.read_text(f"{folder}/{name}/dev").strip().split(":")
        family[name] = (int(major), int(minor))
    return family


def _mounted(host: Host, family: dict[str, tuple[int, int]]) -> tuple[str, ...]:
    """Mounts in the mount namespace of any process, as a container may hold one that we do not see."""
    numbers = set(family.values())
    nodes = {f"/dev/{name}" for name in family}
    for text in _mountinfos(host):
        for mount in parse_mountinfo(text):
            # btrfs and zfs show a device number of their own, so the source counts too
            if mount.device in numbers or mount.source in nodes:
                return (f"it is mounted at {mount.target}",)
    return ()


def _mountinfos(host: Host) -> tuple[str, ...]:
    """One mountinfo for each mount namespace that can be reached."""
    # `--dereference` prints device:inode of the namespace itself
    pids = [name for name in host.list_directory("/proc") if name.isdigit()]
    listed = host.run(
        command("stat", "--dereference", ["--format", "%i %n"], [f"/proc/{pid}/ns/mnt" for pid in pids]), check=False
    )
    namespaces: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        inode, _, path = line.partition(" ")
        namespaces.setdefault(inode, path.split("/")[2])
    texts = [host.read_text("/proc/self/mountinfo")]
    for pid in namespaces.values():
        try:
            texts.append(host.read_text(f"/proc/{pid}/mountinfo"))
        except OSError:  # ended meanwhile
            continue
    return tuple(texts)


def _swaps(host: Host, family: dict[str, tuple[int, int]]) -> tuple[str, ...]:
    lines = host.read_text("/proc/swaps").splitlines()[1:]
    used = {line.split()[0] for line in lines if line.strip()}
    return tuple(f"{name} is swap in use" for name in family if f"/dev/{name}" in used)


def _holders(host: Host, family: dict[str, tuple[int, int]]) -> tuple[str, ...]:
    found = []
    for name in family:
        folder = f"/sys/class/block/{name}/holders"
        holders = host.list_directory(folder) if host.status(folder) is not None else ()
        found += [f"{holder} is built on {name}" for holder in holders]
    return tuple(found)
