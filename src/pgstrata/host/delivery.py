"""Places of strata-disk: beside the Python that runs pgstrata, with the system, or sent to the host from here."""

from __future__ import annotations

import hashlib
import platform
import secrets
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from pgstrata.errors import PreflightError
from pgstrata.host.capabilities import PROGRAM_DIRECTORIES, program_path
from pgstrata.host.protocol import Command, Host, command, marked, unmarked
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
