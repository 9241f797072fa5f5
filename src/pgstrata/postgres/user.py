"""The unprivileged OS user that servers run as, and programs that this user can read."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import PurePosixPath

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command, Host
from pgstrata.postgres.binaries import CACHE_DIRECTORY, Installation

SYSTEM_USER = "pgstrata"

USERADD = ("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER)


def server_user(host: Host) -> str:
    """The user that servers run as: the current one, or for root the system user `pgstrata` (see `plan_user`)."""
    current = host.run(Command(("id", "-un"))).stdout.strip()
    return SYSTEM_USER if current == "root" else current


def plan_user(host: Host) -> Command | None:
    """The command that makes the server user where it is missing: a change of the whole host."""
    user = server_user(host)
    known = host.run(Command(("id", "-u", user)), check=False).exit_code == 0
    return None if known else Command(USERADD)


def run_user(host: Host) -> str:
    """Makes the server user if it is missing, and returns its name."""
    missing = plan_user(host)
    if missing is not None:
        host.run(missing)
    return server_user(host)


def readable_installation(host: Host, installation: Installation, user: str) -> Installation:
    """The installation, or a copy of it that `user` can read.

    A virtual environment below /root is closed to everybody else; its tree is then copied once to /var/lib.
    Raises PreflightError when even the copy does not run as `user`.
    """
    server = _readable_tree(host, installation, installation.bin_directory, "initdb", user)
    client = server
    if installation.client_directory != installation.bin_directory:
        client = _readable_tree(host, installation, installation.client_directory, "psql", user)
    return replace(installation, bin_directory=server, client_directory=client)


def planned_installation(host: Host, installation: Installation, user: str) -> Installation:
    """Return what `readable_installation` will give, by the modes of files and folders; copies nothing."""

    def planned(bin_directory: str, program: str) -> str:
        if user != SYSTEM_USER or open_to_all(host, f"{bin_directory}/{program}"):
            return bin_directory
        return f"{_copy_of(installation, bin_directory)}/package/tree/bin"

    server = planned(installation.bin_directory, "initdb")
    client = server
    if installation.client_directory != installation.bin_directory:
        client = planned(installation.client_directory, "psql")
    return replace(installation, bin_directory=server, client_directory=client)


def open_to_all(host: Host, program: str) -> bool:
    """True if every user may pass through the folders of a program and run it."""
    parts = (PurePosixPath(program), *PurePosixPath(program).parents)
    found = [host.status(str(part)) for part in parts]
    return all(status is not None and status.mode & 0o001 for status in found)


def _copy_of(installation: Installation, bin_directory: str) -> str:
    tree = str(PurePosixPath(bin_directory).parent)
    digest = hashlib.sha256(tree.encode()).hexdigest()[:8]
    return f"{CACHE_DIRECTORY}/copy-{installation.version}-{digest}"


def _readable_tree(host: Host, installation: Installation, bin_directory: str, program: str, user: str) -> str:
    if _runs(host, f"{bin_directory}/{program}", user):
        return bin_directory
    tree = str(PurePosixPath(bin_directory).parent)
    kept = _copy_of(installation, bin_directory)
    copy = f"{kept}/package/tree/bin"
    if host.status(f"{copy}/{program}") is None:
        _copy_tree(host, tree, kept)
    if not _runs(host, f"{copy}/{program}", user):
        raise PreflightError(
            f"user {user} cannot run {program} of PostgreSQL {installation.version} in {tree}, nor its copy in {copy}",
            hint=f"sudo -u {user} {copy}/{program} --version",
        )
    return copy


def _copy_tree(host: Host, tree: str, kept: str) -> None:
    """Copies a tree to `kept`/package/tree, complete or not at all.

    Programs of a Python wheel look for libraries beside their package (`PACKAGE.libs`), so those keep their place.
    """
    package = str(PurePosixPath(tree).parent)
    partial = f"{kept}.partial"
    host.remove(partial)
    host.make_directory(f"{partial}/package")
    copies = [(tree, f"{partial}/package/tree")]
    if host.status(f"{package}.libs") is not None:
        copies.append((f"{package}.libs", f"{partial}/{PurePosixPath(package).name}.libs"))
    for source, target in copies:
        host.run(Command(("cp", "--recursive", "--preserve=mode,links", source, target), timeout_s=300))
    host.run(Command(("chmod", "--recursive", "a+rX", partial)))
    host.remove(kept)
    host.run(Command(("mv", partial, kept)))


def _runs(host: Host, program: str, user: str) -> bool:
    return host.run(Command((program, "--version"), user=user, cwd="/"), check=False).exit_code == 0
