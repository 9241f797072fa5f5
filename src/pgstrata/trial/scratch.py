"""The folder for loop files and golden copies: root writes there, so nobody else may change what lies in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import FileStatus, Host
from pgstrata.stack.journal import Journal
from pgstrata.stack.undo import RemoveEmptyFolder
from pgstrata.trial.site import Site


@dataclass(frozen=True)
class Trusted:
    """Who may change the folders: root, and who became root by sudo on this machine."""

    uids: frozenset[int] = frozenset({0})
    gids: frozenset[int] = frozenset({0})


def trusted(host: Host, environment: Mapping[str, str]) -> Trusted:
    """For a host: what sudo says of this machine holds for no other."""
    uid, gid = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if host.name != "local" or not (uid.isdecimal() and gid.isdecimal()):
        return Trusted()
    return Trusted(frozenset({0, int(uid)}), frozenset({0, int(gid)}))


def folder_problem(status: FileStatus, who: Trusted) -> str:
    """What lets others change what lies in a folder; empty when nothing does.

    In a folder with the sticky bit (/var/tmp) everybody may write, but nobody may touch what is another's.
    """
    if status.kind != "directory":
        return "is no folder"
    if status.uid not in who.uids:
        return f"belongs to user {status.uid}"
    if status.mode & stat.S_ISVTX:
        return ""
    if status.mode & stat.S_IWOTH:
        return "can be written to by everybody"
    if status.mode & stat.S_IWGRP and status.gid not in who.gids:
        return f"can be written to by group {status.gid}"
    return ""


def check_scratch(site: Site) -> None:
    """PreflightError when others may change the scratch folder or a folder above it, and so replace what root made.

    Without root there is nobody to be deceived but oneself.
    """
    if not site.as_root:
        return
    who = trusted(site.host, os.environ)
    for folder in (*reversed(PurePosixPath(site.scratch).parents), PurePosixPath(site.scratch)):
        status = site.host.status(str(folder), follow=False)
        problem = folder_problem(status, who) if status is not None else ""
        if problem:
            raise PreflightError(
                f"scratch folder {site.scratch} on {site.host.name} is not safe: {folder} {problem}",
                hint=f"name a folder of root's with --scratch, or: chown root {folder} && chmod go-w {folder}",
            )


def make_scratch(host: Host, scratch: str, journal: Journal) -> None:
    """Makes the folder and those above it that are missing, and journals each by its device and inode.

    Only afterwards, when these are known: a folder that a kill leaves in between is empty. A folder that was there
    before, such as /var/tmp, is never removed.
    """
    folders = [str(folder) for folder in (*reversed(PurePosixPath(scratch).parents), PurePosixPath(scratch))]
    for folder in [folder for folder in folders if host.status(folder) is None]:
        try:
            host.make_directory(folder, new=True)
        except FileExistsError:  # made by another run meanwhile
            continue
        made = host.status(folder, follow=False)
        if made is not None:
            journal.register(RemoveEmptyFolder(path=folder, device=made.device, inode=made.inode))
