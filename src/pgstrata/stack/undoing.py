"""Runs one undo. Each tolerates that its step was never begun, half done, or already undone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import CommandFailed, Completed, Host, OpenDevice, command
from pgstrata.stack import undo as kinds
from pgstrata.stack.block.loop import backing_file_of, list_loops
from pgstrata.stack.block.md import find_arrays, parse_array_name
from pgstrata.stack.fs.zfs_labels import wipe_member
from pgstrata.stack.mounts import mount_at
from pgstrata.stack.safety import NO_FORMAT, find_again, opened
from pgstrata.stack.signatures import LABEL, Signature, list_signatures
from pgstrata.stack.tuning.holding import give_back

OURS = "pgstrata-"
"""Every folder, volume group, array and pool that pgstrata makes begins so; nothing else is ever removed."""

BY_HAND = "the journal was changed: undo by hand what it names, and remove it"

BUSY_ATTEMPTS = 20
BUSY_PAUSE_S = 0.5
UNMOUNT_TIMEOUT_S = 600.0
"""Unmounting writes everything back that is still in memory."""

_COMMAND_NOT_FOUND = 127


def run_undo(host: Host, undo: kinds.Undo, *, same_boot: bool) -> str:
    """Takes one step back and says what was done; empty when there was nothing to do.

    `same_boot` is false after a reboot of the host: settings of the kernel and processes are gone by then, and what
    now has their names is not ours. Raises PgstrataError or OSError when it could not be done.
    """
    if isinstance(undo, kinds.StopProcesses | kinds.GiveBackSetting) and not same_boot:
        return ""
    if isinstance(undo, kinds.RemovePath) and undo.mount_source and not same_boot:
        return _remove_from_export(host, undo)
    return _RUN[undo.kind](host, undo)


def _stop_processes(host: Host, undo: kinds.StopProcesses) -> str:
    pids = host.stop_marked(undo.marker)
    return f"ended {len(pids)} processes of trial {undo.marker}" if pids else ""


def _unmount(host: Host, undo: kinds.Unmount) -> str:
    times = 0
    while mount_at(host, undo.target) is not None:
        _unmount_once(host, undo.target)
        times += 1
    return f"unmounted {undo.target}" if times else ""


def _unmount_once(host: Host, target: str) -> None:
    """Never lazily: that would hide who still writes to the device."""
    for attempt in range(BUSY_ATTEMPTS):
        ended = host.run(command("umount", target, timeout_s=UNMOUNT_TIMEOUT_S), check=False)
        if ended.exit_code == 0:
            return
        if "busy" not in ended.stderr or attempt == BUSY_ATTEMPTS - 1:
            raise CommandFailed(host.name, ended, hint=f"fuser --verbose --mount {target}")
        time.sleep(BUSY_PAUSE_S)


def _detach_loops(host: Host, undo: kinds.DetachLoops) -> str:
    names = {name for file in undo.backing_files for name in (file, f"{file} (deleted)")}
    nodes = [loop.node for loop in list_loops(host) if loop.backing_file in names]
    if not nodes:
        return ""
    host.run(command("losetup", "--detach", nodes))
    # a device that somebody has open is detached when it is closed, and losetup does not say so
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


def is_ours(path: str) -> bool:
    """Whether a path is, or lies in, a folder that pgstrata made."""
    parts = path.split("/")
    return path.startswith("/") and ".." not in parts and any(part.startswith(OURS) for part in parts)


def _remove_path(host: Host, undo: kinds.RemovePath) -> str:
    if not is_ours(undo.path):
        raise PgstrataError(f"{undo.path} is not in a folder that pgstrata made, so it is not removed", hint=BY_HAND)
    found = host.status(undo.path, follow=False)
    if found is None:
        return ""
    if undo.uid is not None and found.uid != undo.uid:
        return f"left {undo.path} alone: it belongs to somebody else"
    host.remove(undo.path)
    return f"removed {undo.path}"


def _remove_empty_folder(host: Host, undo: kinds.RemoveEmptyFolder) -> str:
    found = host.status(undo.path, follow=False)
    if found is None or found.kind != "directory" or (found.device, found.inode) != (undo.device, undo.inode):
        return ""
    host.run(command("rmdir", "--ignore-fail-on-non-empty", undo.path))
    return f"removed {undo.path}" if host.status(undo.path, follow=False) is None else ""


def _remove_from_export(host: Host, undo: kinds.RemovePath) -> str:
    """After a reboot the export is not mounted any more, but what lies in it is still there."""
    folder, name = undo.path.rsplit("/", 1)
    if mount_at(host, folder) is not None:
        return _remove_path(host, undo)
    raise PgstrataError(
        f"{name} may still lie in {undo.mount_source}, which is not mounted since the host was started anew",
        hint=f"mkdir --parents {folder}; mount {undo.mount_source} {folder}; pgstrata clean --host {host.name}",
    )


def _wipe_device(host: Host, undo: kinds.WipeDevice) -> str:
    """Wipes what is ours for certain: signatures with our label, and what has none on a device that was held all the
    time. Anything else was there before, or may have been put there since."""
    node = find_again(host, undo.id)
    if not node:
        return ""
    with opened(host, node, write=True) as device:
        since_built = host.other_handles(device.handle)
        line = _wipe_ours(host, undo, node, device, held=since_built != ())
        for handle in since_built:
            host.close_device(handle)
        return line


def _wipe_ours(host: Host, undo: kinds.WipeDevice, node: str, device: OpenDevice, *, held: bool) -> str:
    signatures = list_signatures(host, device.path)
    earlier = [s for s in signatures if s.identity in undo.before]
    foreign = [s for s in signatures if s.label != LABEL or s in earlier]
    if earlier == list(signatures) != []:
        shown = ", ".join(s.shown for s in signatures)
        return f"left {undo.id} alone: it carries {shown} as before the trial, which had not begun to wipe it"
    if foreign:
        shown = ", ".join(s.shown for s in foreign)
        raise PgstrataError(
            f"{undo.id} was not wiped: it carries {shown}, which does not look like made by pgstrata",
            hint=f"if nothing on it is needed: wipefs --all {node}",
        )
    if not signatures and host.first_content(device.handle) is None:
        return ""
    if not signatures and not held:
        return f"left {undo.id} alone: it carries {NO_FORMAT}, which may be somebody else's"
    blank(host, node, device)
    return f"wiped {undo.id}"


def blank(host: Host, node: str, device: OpenDevice) -> None:
    """Leaves a device that is held such that it is found blank when it is looked at again."""
    if device.uses or device.passing:
        raise PgstrataError(
            f"{node} was not wiped: {'; '.join((*device.uses, *device.passing))}", hint=f"fuser --verbose {node}"
        )
    host.zero(device.handle)


def _give_back_setting(host: Host, undo: kinds.GiveBackSetting) -> str:
    return give_back(host, undo.trial, undo.group)


def _require_ours(name: str) -> None:
    if not name.rsplit("/", 1)[-1].startswith(OURS):
        raise PgstrataError(f"{name} was not made by pgstrata, so it is not removed", hint=BY_HAND)


def _remove_vg(host: Host, undo: kinds.RemoveVg) -> str:
    _require_ours(undo.vg)
    found = _tool(host, "pvs", "--noheadings", ["--options", "pv_name"], ["--select", f"vg_name={undo.vg}"])
    pvs = found.stdout.split()
    if pvs:
        host.run(command("vgremove", "--force", "--force", "--yes", undo.vg))
    # a kill between the two leaves PVs that belong to no group
    real = dict(_members(host, undo.devices, "LVM2_member"))
    ours = [node for node, signatures in real.items() if any(s.uuid in undo.pv_uuids for s in signatures)]
    others = [node for node in real if node not in (*ours, *pvs)]
    pvs += [node for node in ours if node not in pvs]
    done = [f"left {node} alone: it has become another PV" for node in others]
    if pvs:
        host.run(command("pvremove", "--yes", pvs))
        for node in set(pvs) & real.keys():
            _blank_member(host, node)
        done.append(f"removed volume group {undo.vg}")
    return "; ".join(done)


def _blank_member(host: Host, node: str) -> None:
    """Once it is certain whose member a device was, nothing on it is anybody else's."""
    with opened(host, node, write=True) as device:
        blank(host, node, device)


def _members(host: Host, ids: tuple[str, ...], kind: str) -> list[tuple[str, tuple[Signature, ...]]]:
    """Nodes of those devices that carry such a signature, with what they carry."""
    nodes = [find_again(host, id_) for id_ in ids]
    found = [(node, list_signatures(host, node)) for node in nodes if node]
    return [(node, signatures) for node, signatures in found if any(s.type == kind for s in signatures)]


def _stop_md(host: Host, undo: kinds.StopMd) -> str:
    _require_ours(undo.array)
    name, done = undo.array.rsplit("/", 1)[-1], []
    for node in find_arrays(host, name):
        host.run(command("mdadm", "--stop", node))
        done.append(f"stopped {undo.array} ({node})")
    for node, _ in _members(host, undo.devices, "linux_raid_member"):
        member_of = parse_array_name(host.run(command("mdadm", "--examine", "--export", node), check=False).stdout)
        if member_of == name:
            host.run(command("mdadm", "--zero-superblock", node))
            _blank_member(host, node)
            done.append(f"wiped the md superblock of {node}")
        else:
            done.append(f"left {node} alone: it has become a member of array {member_of or 'unknown'}")
    return "; ".join(done)


def _destroy_pool(host: Host, undo: kinds.DestroyPool) -> str:
    _require_ours(undo.pool)
    done = []
    if _tool(host, "zpool", "list", "-H", ["-o", "name"], undo.pool).exit_code == 0:
        host.run(command("zpool", "destroy", "-f", undo.pool, timeout_s=UNMOUNT_TIMEOUT_S))
        done.append(f"destroyed pool {undo.pool}")
    for id_ in undo.devices:
        node = find_again(host, id_)
        if node and wipe_member(host, node, undo.pool):
            _blank_member(host, node)
            done.append(f"wiped the zfs labels of {id_}")
    return "; ".join(done)


def _stop_unit(host: Host, undo: kinds.StopUnit) -> str:
    if host.status(undo.marker_file) is None:
        return ""
    asked = host.run(command("systemctl", "show", ["--property", "LoadState"], "--value", undo.unit))
    known = asked.stdout.strip() != "not-found"
    if known:
        host.run(command("systemctl", "stop", undo.unit, timeout_s=UNMOUNT_TIMEOUT_S))
    host.remove(undo.marker_file)
    return f"stopped {undo.unit}" if known else ""


def _unexport(host: Host, undo: kinds.Unexport) -> str:
    exported = _tool(host, "exportfs", "-s").stdout
    if not re.search(rf"^{re.escape(undo.path)}\s", exported, re.MULTILINE):
        return ""
    host.run(command("exportfs", "-u", f"{undo.client}:{undo.path}"))
    return f"withdrew the export of {undo.path}"


def _tool(host: Host, *argv: str | list[str]) -> Completed:
    """Asks a tool about its own things; where the tool is missing, it has none."""
    ended = host.run(command(*argv), check=False)
    return ended if ended.exit_code != _COMMAND_NOT_FOUND else Completed(ended.argv, _COMMAND_NOT_FOUND, "", "", 0.0)


# The key is the discriminator of the model that its function takes; Callable cannot say so.
_RUN: dict[str, Callable[[Host, Any], str]] = {
    "stop_processes": _stop_processes,
    "unmount": _unmount,
    "detach_loops": _detach_loops,
    "remove_path": _remove_path,
    "remove_empty_folder": _remove_empty_folder,
    "wipe_device": _wipe_device,
    "give_back_setting": _give_back_setting,
    "remove_vg": _remove_vg,
    "stop_md": _stop_md,
    "destroy_pool": _destroy_pool,
    "stop_unit": _stop_unit,
    "unexport": _unexport,
}
