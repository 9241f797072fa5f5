"""Places of strata-disk: beside the Python that runs pgstrata, with the system, or sent to the host from here.

Also the conditions for that: users who may change what lies in a folder (root neither writes nor runs anything where
others can), and an advisory lock of a host that is waited for.
"""

from __future__ import annotations

import hashlib
import platform
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath

from pgstrata.errors import PreflightError
from pgstrata.host.capabilities import PROGRAM_DIRECTORIES, program_path
from pgstrata.host.protocol import Command, FileStatus, Host, command, marked, unmarked
from pgstrata.spec.layers.media import Timed

PROGRAM = "strata-disk"
LOAD_PROGRAM = "strata-load"
OWN = Path(sys.prefix) / "bin" / PROGRAM
BUILDING = "make setup builds strata-disk and strata-load where cargo is (Rust 1.85); a wheel built there holds them"
SENT_FOLDER = "/var/lib/pgstrata/programs"
"""On a host that is reached over ssh, root's own."""


def program_call(*words: str) -> Command:
    """A call of the program, wherever it lies."""
    return Command((PROGRAM, *words), env=environment())


def load_call(*words: str, timeout_s: float) -> Command:
    """A call of strata-load, which lies where strata-disk does."""
    return Command((LOAD_PROGRAM, *words), timeout_s=timeout_s, env=environment())


def serving_call(what: str, folder: str, *options: str) -> Command:
    """Return a call that serves disks in a folder, marked with it so that `stop_serving` finds the daemon."""
    call = program_call(what, folder, *options)
    return replace(call, env=(*marked(folder), *call.env[len(unmarked()) :]))


def stop_serving(host: Host, folder: str) -> str:
    """End the daemon that serves in a folder, and unmount what a killed one left there; return a description. A daemon
    whose folder was removed or emptied cannot be requested to stop: it is found by its mark."""
    there, stop = host.status(folder) is not None, program_call("stop", folder)
    refused = there and host.run(stop, check=False).exit_code != 0
    ended = host.stop_marked(folder)
    if refused:
        host.run(stop)
    if ended:
        return f"ended the daemon of the modelled disks of {folder}, whose folder was removed or emptied"
    return f"stopped the modelled disks of {folder}" if there else ""


def timing_options(model: str, stretch: float, timed: Timed) -> tuple[str, ...]:
    """Options of `strata-disk add`, for a disk with the timing of a model: its name, or its file over there."""
    return ("--media", model, "--stretch", f"{stretch:g}", *(("--timing", "off") if timed == "runs" else ()))


def environment() -> tuple[tuple[str, str], ...]:
    """Environment of every call of the program: where it may lie, what was sent from here first. Without the marker of
    the trial, whose processes are ended first of all, and the daemon after what stands on it."""
    folders = (*((_sent_folder(),) if OWN.exists() else ()), *PROGRAM_DIRECTORIES, str(OWN.parent))
    return (*unmarked(), ("PATH", ":".join(folders)))


def deliver(host: Host) -> None:
    """Sends the program of here to a host over ssh that does not have this very one yet; where none is here, that of
    the host's system stands. PreflightError when it does not run there."""
    if host.name == "local" or not OWN.exists():
        return
    to = f"{_sent_folder()}/{PROGRAM}"
    if host.status(to) is not None:
        return
    partly = f"{to}.{secrets.token_hex(4)}"
    host.make_directory(_sent_folder(), mode=0o700)
    try:
        host.send(str(OWN), partly, mode=0o700)
        said = host.run(command(partly, "--version"), check=False)
        if said.exit_code != 0:
            raise PreflightError(
                f"{PROGRAM} of this machine does not run on {host.name}: {said.stderr.strip()}",
                hint="build it where libc.a is (libc6-dev, glibc-static), then it needs no library over there",
            )
        host.run(command("mv", partly, to))
    finally:
        host.remove(partly)


def lacking(host: Host) -> str | None:
    """Reason why the program can neither be found on a host nor be sent to it; None when it can."""
    if not OWN.exists():
        return None if program_path(host, PROGRAM) else f"{PROGRAM} is not installed"
    here, there = platform.machine(), host.run(command("uname", "-m")).stdout.strip()
    return None if here == there else f"{PROGRAM} of this machine is for {here}, not for {there}"


def _sent_folder() -> str:
    return f"{SENT_FOLDER}/{_digest()}"


@cache
def _digest() -> str:
    """Names the program that is sent: two versions of pgstrata do not meet on a host."""
    return hashlib.sha256(OWN.read_bytes()).hexdigest()[:16]


PAUSE_S = 0.05


@contextmanager
def locked(
    host: Host, name: str, payload: str, *, what: str, wait_s: float, pause_s: float = PAUSE_S
) -> Iterator[None]:
    """Hold a lock, which others may keep for `wait_s`; PreflightError, with its holder, if it is not free by then."""
    deadline_s = time.monotonic() + wait_s
    while (holder := host.try_lock(name, payload)) is not None:
        if time.monotonic() > deadline_s:
            raise PreflightError(f"{what} on {host.name} are locked by another pgstrata: {holder}")
        host.pause(pause_s)
    try:
        yield
    finally:
        host.unlock(name)


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
