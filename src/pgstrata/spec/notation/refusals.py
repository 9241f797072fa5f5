"""Documented options that pgstrata does not take, each with the reason.

A kind lists them beside its fields. An option of the tools is then either a field, a word for what happens anyway, or
here; "no such option" is left for names that do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

YOURSELF = "to measure it, build and mount it yourself and give dir:/mnt/x, which pgstrata does not attest"
LEAVE_OUT = "leave it out"


@dataclass(frozen=True)
class Refusal:
    """Reason why an option is not taken, and what to do."""

    reason: str
    hint: str = YOURSELF


def refuse(names: str, reason: str, hint: str = YOURSELF) -> Mapping[str, Refusal]:
    """Refuse the options in `names`, which blanks separate (`~` stands for a blank), for one reason."""
    return {name.replace("~", " "): Refusal(reason, hint) for name in names.split()}


MOUNT_WORDS = {
    **refuse(
        "ro remount bind move rbind shared private slave",
        "the filesystem is mounted once, on a folder of its own, to be written to", LEAVE_OUT,
    ),
    **refuse(
        "auto noauto _netdev nofail user nouser users owner group comment",
        "it is for fstab, and pgstrata mounts by itself", LEAVE_OUT,
    ),
    **refuse(
        "dev nodev exec noexec suid nosuid nosymfollow context fscontext defcontext rootcontext mand nomand acl noacl",
        "it restricts what users may do with files and does not change how PostgreSQL reads and writes",
    ),
    **refuse("loud silent", "it changes messages of the kernel alone", LEAVE_OUT),
    **refuse("iversion noiversion", "it serves NFS exports and is not read back"),
    **refuse("dirsync", "it makes changes of directories synchronous, which PostgreSQL requests by fsync"),
    **refuse("diratime nostrictatime norelatime", "it names a default of the kernel by another word",
             "write noatime, nodiratime or strictatime, or leave it out"),
}  # fmt: skip
"""Options of mount(8) for any filesystem."""
IMPLIED_MOUNT_WORDS = frozenset({"rw", "defaults", "relatime", "atime", "nolazytime"})
"""Options that are mounted and attested anyway."""
SYNCHRONOUS = refuse(
    "sync", "every write would wait for the device, where PostgreSQL waits for commits and checkpoints"
)
