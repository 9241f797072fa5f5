"""Users who may change what lies in a folder: root neither writes nor runs anything where others can."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pgstrata.host.protocol import FileStatus, Host


@dataclass(frozen=True)
class Trusted:
    """Users and groups who may change the folders: root, and who became root by sudo on this machine."""

    uids: frozenset[int] = frozenset({0})
    gids: frozenset[int] = frozenset({0})


def trusted(host: Host, environment: Mapping[str, str]) -> Trusted:
    """For a host: what sudo says of this machine holds for no other."""
    uid, gid = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if host.name != "local" or not (uid.isdecimal() and gid.isdecimal()):
        return Trusted()
    return Trusted(frozenset({0, int(uid)}), frozenset({0, int(gid)}))


def folder_problem(status: FileStatus, who: Trusted) -> str:
    """Reason why others can change what lies in a folder; empty when they cannot.

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


def folder_problems(host: Host, folder: str, who: Trusted) -> Iterator[tuple[str, str]]:
    """Yield each folder that others can change, and how: of a folder and those above it, from the root. Missing ones
    have no problem."""
    for one in (*reversed(PurePosixPath(folder).parents), PurePosixPath(folder)):
        status = host.status(str(one), follow=False)
        problem = folder_problem(status, who) if status is not None else ""
        if problem:
            yield str(one), problem
