"""Keys of encrypted layers: random, made on the host, in a file that only root can read, in memory that is never
swapped out (ramfs).

A key is no argument of any command and no part of a record; its file is overwritten before its memory is given back.
Recorded disks of crash trials have a key that is no secret, as states of them are opened later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import Host, command
from pgstrata.stack.place import Place
from pgstrata.stack.step import Step, planned
from pgstrata.stack.undo import RemovePath, Undo, Unmount, is_ours
from pgstrata.stack.undoing import BY_HAND

KNOWN_KEY = "pgstrata-crash-trial-no-secret!!"
"""32 bytes, what zfs takes as a raw key."""
KEY_BYTES = 32


def key_file(place: Place) -> str:
    """Return the path of the key of a volume."""
    return f"{_folder(place)}/key"


def _folder(place: Place) -> str:
    return f"{place.work_directory}/{place.role}.key"


def plan_key(place: Place, *, known: bool) -> Step:
    """Plan the file with the key of a volume."""
    folder, path = _folder(place), key_file(place)
    if known:
        fill = replace(planned("install", ["--mode", "0600"], "/dev/stdin", path), stdin=KNOWN_KEY)
    else:
        whole = [f"bs={KEY_BYTES}", "count=1", "iflag=fullblock", "conv=nocreat,notrunc", "status=none"]
        fill = planned("dd", "if=/dev/urandom", f"of={path}", whole)
    return Step(
        name=f"key of {place.role}",
        commands=(
            planned("mkdir", ["--mode", "0700"], folder),
            planned("mount", ["--types", "ramfs"], ["--options", "mode=0700,nosuid,nodev,noexec"], place.name, folder),
            planned("install", ["--mode", "0600"], "/dev/null", path),
            fill,
        ),
        undo=(RemovePath(path=folder), Unmount(target=folder), WipeKey(path=path)),
    )


class WipeKey(Undo):
    """Overwrite the key at `path`, which lies in memory."""

    this_boot_only = True

    kind: Literal["wipe_key"] = "wipe_key"
    path: str


def wipe_key(host: Host, undo: WipeKey) -> str:
    """Overwrite a key in place."""
    if not is_ours(undo.path):
        raise PgstrataError(f"{undo.path} is not in a folder that pgstrata made, so it is not wiped", hint=BY_HAND)
    if host.status(undo.path, follow=False) is None:
        return ""
    host.run(command("shred", ["--iterations", "0"], "--zero", undo.path))
    return f"wiped the key {undo.path}"
