"""Runs one undo. Each tolerates that its step was never begun, half done, or already undone."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import Command, CommandFailed, Completed, Host, OpenDevice, command
from pgstrata.stack import undo as kinds
from pgstrata.stack.mounts import mount_at
from pgstrata.stack.safety import LABEL, NO_FORMAT, Signature, find_again, list_signatures, opened, zero
from pgstrata.stack.tuning.setting import give_back

BUSY_ATTEMPTS = 60
BUSY_PAUSE_S = 0.5

_SAYS_BUSY = ("busy", "in use by the system", "exclusively")
"""mount, umount, mdadm and most mkfs print the text of EBUSY; mke2fs and pvcreate have words of their own."""


def again_while_busy(ended: Completed, again: Callable[[], Completed]) -> Completed:
    """Try a command again while it says that something is busy, for half a minute at most; return how it ends."""
    for _ in range(BUSY_ATTEMPTS - 1):
        if ended.exit_code == 0 or not any(words in ended.stderr for words in _SAYS_BUSY):
            break
        time.sleep(BUSY_PAUSE_S)
        ended = again()
    return ended


def run_while_busy(host: Host, command: Command) -> Completed:
    """Run a command, again while it says that something is busy; return how it ends. The record has its first run."""

    def again() -> Completed:
        with host.looking():
            return host.run(command, check=False)

    return again_while_busy(host.run(command, check=False), again)


BY_HAND = "the journal was changed: undo by hand what it names, and remove it"

UNMOUNT_TIMEOUT_S = 600.0
"""Unmounting writes everything back that is still in memory."""
DROP_TIMEOUT_S = 600.0
"""Dropping a database removes its files and waits for a checkpoint."""

_COMMAND_NOT_FOUND = 127
_DEAD_SERVER = Path(__file__).with_name("dead_server.py")


def run_undo(host: Host, undo: kinds.Undo, *, same_boot: bool) -> str:
    """Takes one step back and says what was done; empty when there was nothing to do.

    `same_boot` is false after a reboot of the host. Raises PgstrataError or OSError when it could not be done.
    """
    if undo.this_boot_only and not same_boot:
        return ""
    if isinstance(undo, kinds.RemovePath) and undo.mount_source and not same_boot:
        return _remove_from_export(host, undo)
    return RUNS[undo.kind][1](host, undo)


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
    ended = run_while_busy(host, command("umount", target, timeout_s=UNMOUNT_TIMEOUT_S))
    if ended.exit_code != 0:
        raise CommandFailed(host.name, ended, hint=f"fuser --verbose --mount {target}")


def _remove_path(host: Host, undo: kinds.RemovePath) -> str:
    if not kinds.is_ours(undo.path):
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
    again = f"pgstrata clean --host {shlex.quote(host.name)}"
    raise PgstrataError(
        f"{name} may still lie in {undo.mount_source}, which is not mounted since the host was started anew",
        hint=f"mkdir --parents {folder}; mount {undo.mount_source} {folder}; {again}",
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
    zero(host, device, node, node, "the undo")


def _remove_server_memory(host: Host, undo: kinds.RemoveServerMemory) -> str:
    source = _DEAD_SERVER.read_text(encoding="utf-8")
    program = Command(("python3", "-I", "-", undo.data_directory), stdin=source, user=undo.user, cwd="/")
    ended = host.run(program, check=False)
    if ended.exit_code != 0:
        raise CommandFailed(host.name, ended, hint="ipcs -m -p")
    removed = ", ".join(ended.stdout.splitlines())
    return f"removed {removed} of the server in {undo.data_directory}" if removed else ""


def _drop_database(host: Host, undo: kinds.DropDatabase) -> str:
    argv = (undo.client, "-XAtq", "--no-password", "--set=ON_ERROR_STOP=1", "--file=-", undo.uri)
    there = f"SELECT count(*) FROM pg_database WHERE datname = '{undo.database}';"
    found = host.run(Command(argv, stdin=there, env=undo.env, cwd="/"))
    if found.stdout.strip() == "0":
        return ""
    drop = f"DROP DATABASE IF EXISTS {undo.database} WITH (FORCE);"
    host.run(Command(argv, timeout_s=DROP_TIMEOUT_S, stdin=drop, env=undo.env, cwd="/"))
    return f"dropped database {undo.database}"


def _give_back_setting(host: Host, undo: kinds.GiveBackSetting) -> str:
    return give_back(host, undo.trial, undo.group)


def require_ours(name: str) -> None:
    """PgstrataError when a volume group, array or pool was not named by pgstrata."""
    if not name.rsplit("/", 1)[-1].startswith(kinds.OURS):
        raise PgstrataError(f"{name} was not made by pgstrata, so it is not removed", hint=BY_HAND)


def blank_member(host: Host, node: str) -> None:
    """Once it is certain whose member a device was, nothing on it is anybody else's."""
    with opened(host, node, write=True) as device:
        blank(host, node, device)


def list_members(host: Host, ids: tuple[str, ...], kind: str) -> list[tuple[str, tuple[Signature, ...]]]:
    """Nodes of those devices that carry such a signature, with what they carry."""
    nodes = [find_again(host, id_) for id_ in ids]
    found = [(node, list_signatures(host, node)) for node in nodes if node]
    return [(node, signatures) for node, signatures in found if any(s.type == kind for s in signatures)]


def ask_tool(host: Host, *argv: str | list[str]) -> Completed:
    """Asks a tool about its own things; where the tool is missing, it has none."""
    ended = host.run(command(*argv), check=False)
    return ended if ended.exit_code != _COMMAND_NOT_FOUND else Completed(ended.argv, _COMMAND_NOT_FOUND, "", "", 0.0)


RUNS: dict[str, tuple[type[kinds.Undo], Callable[[Host, Any], str]]] = {
    undo.model_fields["kind"].default: (undo, run)
    for undo, run in (
        (kinds.StopProcesses, _stop_processes),
        (kinds.Unmount, _unmount),
        (kinds.RemovePath, _remove_path),
        (kinds.RemoveEmptyFolder, _remove_empty_folder),
        (kinds.WipeDevice, _wipe_device),
        (kinds.RemoveServerMemory, _remove_server_memory),
        (kinds.DropDatabase, _drop_database),
        (kinds.GiveBackSetting, _give_back_setting),
    )
}
"""Every undo by its kind, and what runs it; a kind of layer adds its own (`stack.kind.register`)."""


def parse_undo(line: str) -> kinds.Undo:
    """One undo of a journal; ValueError when it is none."""
    kind = json.loads(line).get("kind")
    if kind not in RUNS:
        raise ValueError(f"{kind!r} is no undo that is known here")
    return RUNS[kind][0].model_validate_json(line)
