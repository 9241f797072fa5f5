"""A build that a stack names by its folder: a minor of one's own, a patched server.

Its programs are run by root (`postgres --version`, `postgres -C`), so nobody else may be able to change them; and by
the server's user, who must be able to read them. It is never copied, because a copy would go stale when it is built
anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from pgstrata.errors import PreflightError
from pgstrata.host.delivery import Trusted, folder_problems, trusted
from pgstrata.host.protocol import Command, Host
from pgstrata.postgres.binaries import SERVER_PROGRAMS, Installation, ask, parse_version, with_clients
from pgstrata.postgres.user import open_to_all
from pgstrata.spec.stack import Postgres

RUN_FROM = ("bin", "lib", "lib64")
"""Folders that hold programs and libraries; the rest of a tree is read by the server's user alone."""


def named_installation(host: Host, spec: Postgres, known: Sequence[Installation], *, as_root: bool) -> Installation:
    """The build in the folder `spec.installation`; clients come from `known` where it has none.

    PreflightError, before any of its programs is run, when it is not there, not whole, or not safe for root.
    """
    asked = spec.installation or ""
    tree = _tree(host, asked)
    if as_root:
        _refuse_unsafe(host, asked, tree)
        _refuse_unreadable(host, asked, tree)
    found = _asked(host, asked, tree)
    if spec.major not in (None, found.major):
        raise PreflightError(
            f"{asked} on {host.name} holds PostgreSQL {found.version}, not {spec.major} as the stack says",
            hint="leave major out, or name the folder of that major",
        )
    return _with_clients(host, asked, found, known)


def _tree(host: Host, asked: str) -> str:
    """Return the path of the folder, without links."""
    status = host.status(asked)
    if status is None or status.kind != "directory":
        raise PreflightError(f"installation {asked} is no folder on {host.name}", hint=f"ls -ld {asked}")
    for program in SERVER_PROGRAMS:
        if host.status(f"{asked}/bin/{program}") is None:
            raise PreflightError(
                f"installation {asked} on {host.name} has no bin/{program}",
                hint="name the folder that holds bin, lib and share (what configure calls --prefix)",
            )
    return host.run(Command(("readlink", "--canonicalize", asked))).stdout.strip()


def _refuse_unsafe(host: Host, asked: str, tree: str) -> None:
    who = trusted(host, os.environ)
    for place, problem in (*folder_problems(host, tree, who), *_file_problems(host, tree, who)):
        raise PreflightError(
            f"root would run programs of {asked} on {host.name}, which others can change: {place} {problem}",
            hint=f"chown -R root:root {tree} && chmod -R go-w {tree}, or name a build in a folder of root's",
        )


def _file_problems(host: Host, tree: str, who: Trusted) -> Iterator[tuple[str, str]]:
    """The first file that others can change, and the folders that links lead to."""
    folders = [f"{tree}/{name}" for name in RUN_FROM if host.status(f"{tree}/{name}") is not None]
    find = ("find", "-L", *folders)
    owned = [test for uid in sorted(who.uids) for test in ("-not", "-uid", str(uid))]
    groups = [test for gid in sorted(who.gids) for test in ("-not", "-gid", str(gid))]
    others = ("(", *owned, "-o", "-perm", "-o+w", "-o", "-perm", "-g+w", *groups, ")")
    said = host.run(Command((*find, *others, "-not", "-type", "l", "-print", "-quit"))).stdout.strip()
    if said:
        yield said, "belongs to another user or can be written to by others"
    links = Command(("find", "-H", *folders, "-type", "l", "-exec", "readlink", "--canonicalize-missing", "{}", "+"))
    for folder in dict.fromkeys(
        str(PurePosixPath(line).parent) for line in host.run(links).stdout.splitlines() if line
    ):
        yield from folder_problems(host, folder, who)


def _refuse_unreadable(host: Host, asked: str, tree: str) -> None:
    if not open_to_all(host, f"{tree}/bin/postgres"):
        raise PreflightError(
            f"the server's user cannot read installation {asked} on {host.name}",
            hint=f"namei -l {tree}/bin/postgres shows which folder is closed; chmod a+rX it, or install elsewhere",
        )


def _asked(host: Host, asked: str, tree: str) -> Installation:
    bin_directory = f"{tree}/bin"
    try:
        found = ask(host, "named", bin_directory)
    except ValueError as error:
        raise PreflightError(
            f"installation {asked} on {host.name}: {error}", hint=f"{asked}/bin/postgres --version"
        ) from None
    if found is None:
        raise PreflightError(
            f"installation {asked} on {host.name}: bin/postgres does not run, or is older than any that is supported",
            hint=f"{asked}/bin/postgres --version",
        )
    digest = host.run(Command(("sha256sum", f"{bin_directory}/postgres"))).stdout.split(" ", 1)[0]
    return replace(found, digest=digest, configured=_configured(host, asked, found))


def _configured(host: Host, asked: str, found: Installation) -> str:
    """The options of configure; empty where pg_config is not there."""
    program = f"{found.bin_directory}/pg_config"
    if host.status(program) is None:
        return ""
    version = host.run(Command((program, "--version"))).stdout
    said = re.sub(r"^PostgreSQL ", "postgres (PostgreSQL) ", version)
    if parse_version(said)[1] != found.version:
        raise PreflightError(
            f"installation {asked} on {host.name} is of two versions: bin/postgres {found.version}, "
            f"bin/pg_config {version.strip()}",
            hint="install that build anew into an empty folder",
        )
    return host.run(Command((program, "--configure"))).stdout.strip()


def _with_clients(host: Host, asked: str, found: Installation, known: Sequence[Installation]) -> Installation:
    for one in with_clients(host, [found, *known]):
        if one.bin_directory == found.bin_directory:
            return one
    raise PreflightError(
        f"installation {asked} on {host.name} has no psql and pgbench, and no other one has",
        hint="install the package postgresql",
    )
