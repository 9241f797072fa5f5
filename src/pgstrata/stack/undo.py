"""Undos, which take a step back: small, typed, idempotent, and serialisable for the undo journal.

An undo names things by what was asked (a backing file, a mount point, a marker in the environment), never by
what was found out later, because the program may be killed between the two.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field


class Undo(BaseModel):
    """Base of all undos; a kind of layer brings those that only it needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    this_boot_only: ClassVar[bool] = False
    """True if what it takes back is gone after a reboot of the host, so that what has its name then is not ours."""

    kind: str


class StopProcesses(Undo):
    """End every process whose environment holds PGSTRATA_TRIAL=`marker` (with its children)."""

    this_boot_only = True

    kind: Literal["stop_processes"] = "stop_processes"
    marker: str


class Unmount(Undo):
    """Unmount whatever is mounted at `target`, as often as it is mounted there."""

    kind: Literal["unmount"] = "unmount"
    target: str


OURS = "pgstrata-"
"""Every folder, volume group, array and pool that pgstrata makes begins so; nothing else is ever removed."""


def is_ours(path: str) -> bool:
    """True if a path is, or lies in, a folder that pgstrata made."""
    parts = path.split("/")
    return path.startswith("/") and ".." not in parts and any(part.startswith(OURS) for part in parts)


class RemovePath(Undo):
    """Remove a file or tree that pgstrata made; never crosses into another filesystem.

    `mount_source` is set where it lies on a filesystem that is there only while pgstrata has it mounted (an NFS
    export), and outlives a reboot there. `uid` is set where others could make one of that name before us: only what
    belongs to that user is removed.
    """

    kind: Literal["remove_path"] = "remove_path"
    path: str
    mount_source: str = ""
    uid: int | None = None


class RemoveEmptyFolder(Undo):
    """Remove a folder that was made for others' files, when it is still that one (device, inode) and empty."""

    kind: Literal["remove_empty_folder"] = "remove_empty_folder"
    path: str
    device: tuple[int, int]
    inode: int


class WipeDevice(Undo):
    """Wipe the signatures that pgstrata wrote onto a real device (named by its stable id).

    `before` is what it carried when this was journaled (`Signature.identity`): a device that still carries that was
    not written to.
    """

    kind: Literal["wipe_device"] = "wipe_device"
    id: str
    before: tuple[str, ...] = ()


class RemoveServerMemory(Undo):
    """Remove the shared memory that a server of `user` has left, which was killed, by what its data directory says."""

    this_boot_only = True

    kind: Literal["remove_server_memory"] = "remove_server_memory"
    user: str
    data_directory: str


class DropDatabase(Undo):
    """Drop the database of a trial on a running server. `client` is psql on the host, `uri` an address of the server
    without a password, `env` where libpq finds its files."""

    kind: Literal["drop_database"] = "drop_database"
    client: str
    uri: str
    database: str = Field(pattern=r"^pgstrata_[0-9a-f]{20}$")
    env: tuple[tuple[str, str], ...] = ()


class GiveBackSetting(Undo):
    """Put a setting of the kernel back when no other trial needs it (`tuning.holding`, which knows the value)."""

    this_boot_only = True

    kind: Literal["give_back_setting"] = "give_back_setting"
    trial: str
    group: str
