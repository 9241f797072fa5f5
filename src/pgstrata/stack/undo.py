"""What takes a step back: small, typed, idempotent, and serialisable for the undo journal.

An undo names things by what was asked (a backing file, a mount point, a marker in the environment), never by
what was found out later, because the program may be killed between the two.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Undo(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StopProcesses(_Undo):
    """End every process whose environment holds PGSTRATA_TRIAL=`marker` (with its children)."""

    kind: Literal["stop_processes"] = "stop_processes"
    marker: str


class Unmount(_Undo):
    """Unmount whatever is mounted at `target`, as often as it is mounted there."""

    kind: Literal["unmount"] = "unmount"
    target: str


class DetachLoops(_Undo):
    """Detach every loop device whose backing file is one of these."""

    kind: Literal["detach_loops"] = "detach_loops"
    backing_files: tuple[str, ...]


class RemovePath(_Undo):
    """Remove a file or tree that pgstrata made; never crosses into another filesystem.

    `mount_source` is set where it lies on a filesystem that is there only while pgstrata has it mounted (an NFS
    export), and outlives a reboot there. `uid` is set where others could make one of that name before us: only what
    belongs to that user is removed.
    """

    kind: Literal["remove_path"] = "remove_path"
    path: str
    mount_source: str = ""
    uid: int | None = None


class RemoveEmptyFolder(_Undo):
    """Remove a folder that was made for others' files, when it is still that one (device, inode) and empty."""

    kind: Literal["remove_empty_folder"] = "remove_empty_folder"
    path: str
    device: tuple[int, int]
    inode: int


class WipeDevice(_Undo):
    """Wipe the signatures that pgstrata wrote onto a real device (named by its stable id).

    `before` is what it carried when this was journaled (`Signature.identity`): a device that still carries that was
    not written to.
    """

    kind: Literal["wipe_device"] = "wipe_device"
    id: str
    before: tuple[str, ...] = ()


class GiveBackSetting(_Undo):
    """Put a setting of the kernel back when no other trial needs it (`tuning.holding`, which knows the value)."""

    kind: Literal["give_back_setting"] = "give_back_setting"
    trial: str
    group: str


class RemoveVg(_Undo):
    """Remove a volume group and its PVs; `devices` are the ids of real ones, which may be PVs of no group yet.

    Such a PV is ours when its UUID is one of `pv_uuids`, which were chosen before it was made.
    """

    kind: Literal["remove_vg"] = "remove_vg"
    vg: str
    devices: tuple[str, ...] = ()
    pv_uuids: tuple[str, ...] = ()


class StopMd(_Undo):
    """Stop the md array called `array` and wipe its superblocks, also from the real `devices` (ids)."""

    kind: Literal["stop_md"] = "stop_md"
    array: str
    devices: tuple[str, ...] = ()


class DestroyPool(_Undo):
    """Destroy a zfs pool, and wipe its labels and partitions from the real `devices` (ids)."""

    kind: Literal["destroy_pool"] = "destroy_pool"
    pool: str
    devices: tuple[str, ...] = ()


class StopUnit(_Undo):
    """Stop a systemd unit that pgstrata started, which it noted by making `marker_file`."""

    kind: Literal["stop_unit"] = "stop_unit"
    unit: str
    marker_file: str


class Unexport(_Undo):
    """Withdraw an NFS export."""

    kind: Literal["unexport"] = "unexport"
    client: str
    path: str


Undo = Annotated[
    StopProcesses
    | Unmount
    | DetachLoops
    | RemovePath
    | RemoveEmptyFolder
    | WipeDevice
    | GiveBackSetting
    | RemoveVg
    | StopMd
    | DestroyPool
    | StopUnit
    | Unexport,
    Field(discriminator="kind"),
]
