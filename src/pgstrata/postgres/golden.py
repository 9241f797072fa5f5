"""Golden copies: a loaded, cleanly stopped cluster kept aside, from which later trials start.

A golden directory holds `files` with `data`, `wal` and `tablespaces/NAME` in it, and, written last, `golden.json`.
Copies are made of full blocks (no reflinks, no holes), so that the filesystem under test really stores the data and
lays it out by itself.

`files` belongs to the server's user, as whom everything in it is read and written: from inside, because the folders
above are closed to that user.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Command, CommandFailed, Host
from pgstrata.postgres.binaries import Installation
from pgstrata.postgres.server import ServerDirectories
from pgstrata.stack.step import Argument, PlannedCommand, Ref

MANIFEST = "golden.json"
COPY = ("cp", "--archive", "--reflink=never", "--sparse=never", "--no-target-directory")
READ_AHEAD_BYTES = 1 << 30
"""Most bytes read ahead of a golden directory: cp waits for the device at every step, so small copies mostly wait."""
COPY_TIMEOUT_S = 6 * 3600.0


@dataclass(frozen=True)
class Golden:
    """A golden directory on a host; `tablespaces` maps names to the OIDs of their links in pg_tblspc."""

    directory: str
    tablespaces: Mapping[str, int]
    digest: str
    """Digest of names, modes and content of `files` when it was made; empty if the manifest cannot be read."""


def golden_key(installation: Installation, what: Mapping[str, object]) -> str:
    """A name for the content of a golden copy: everything that decides what is in the data directory.

    `what` holds the options of initdb, checksums, scale, seed or the digest of the user's own file, names of
    tablespaces. The server counts by major and block size, because those decide the format on disk; pgbench by its
    major, because it generates the rows. A build that a stack named may have another format: it
    has copies of its own.
    """
    parts = {
        "major": installation.major,
        "client_major": installation.client_major,
        "block_size_bytes": installation.block_size_bytes,
        "layout": 1,
        **({"build": installation.digest} if installation.digest else {}),
        **what,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def read_golden(host: Host, directory: str) -> Golden | None:
    """The golden directory, or None when there is none or it was not finished."""
    path = f"{directory}/{MANIFEST}"
    if host.status(path) is None:
        return None
    try:
        found = json.loads(host.read_text(path))
        return Golden(directory, dict(found["tablespaces"]), str(found["digest"]))
    except (ValueError, KeyError, TypeError):
        return Golden(directory, {}, "")


def is_intact(host: Host, golden: Golden, user: str) -> bool:
    """True if the files are unchanged and readable since the copy was made."""
    host.read_ahead(golden.directory, most_bytes=READ_AHEAD_BYTES)
    try:
        return golden.digest == _digest(host, golden.directory, user)
    except CommandFailed:
        return False


def _digest(host: Host, directory: str, user: str) -> str:
    """Return a digest of names, kinds, modes, links, CRC and size of every file: against decay, not against forgery."""

    def run(*argv: str, stdin: str = "") -> str:
        asked = Command(argv, stdin=stdin, user=user, cwd=_files(directory), timeout_s=COPY_TIMEOUT_S)
        return host.run(asked).stdout

    with host.looking():
        entries = run("find", ".", "-printf", r"%y %m %P %l\0")
        sums = run("xargs", "--null", "--no-run-if-empty", "cksum", stdin=run("find", ".", "-type", "f", "-print0"))
    lines = [*sorted(entries.split("\0")), *sorted(sums.splitlines())]
    return hashlib.sha256("\0".join(lines).encode(errors="surrogateescape")).hexdigest()


def save_golden(host: Host, layout: ServerDirectories, directory: str, oids: Mapping[str, int], user: str) -> Golden:
    """Copies a cleanly stopped cluster to `directory`. `oids` maps tablespaces of the layout to their OIDs.

    The server's settings are not part of it: each trial writes its own.
    """
    if host.status(f"{layout.data_directory}/postmaster.pid") is not None:
        raise TrialError(f"cluster in {layout.data_directory} was not stopped cleanly: it cannot be kept as a copy")
    host.remove(directory)
    host.make_directory(directory, mode=0o700, new=True)
    host.make_directory(_files(directory), mode=0o700, owner=user, new=True)

    bindings = {oid_name(name): str(oid) for name, oid in oids.items()}
    for command in plan_save_golden(layout, directory, user):
        host.run(command.resolve(bindings))
    golden = Golden(directory, dict(oids), _digest(host, directory, user))
    manifest = {"tablespaces": golden.tablespaces, "digest": golden.digest}
    host.append_text(f"{directory}/{MANIFEST}", json.dumps(manifest))
    return golden


def plan_save_golden(layout: ServerDirectories, directory: str, user: str) -> tuple[PlannedCommand, ...]:
    """The commands of `save_golden`; OIDs of tablespaces are bound as `oid_name` says."""

    def run(*argv: Argument) -> PlannedCommand:
        return PlannedCommand(argv, user=user, cwd=_files(directory))

    parts = [(layout.data_directory, "data")]
    if layout.wal_directory:
        parts.append((layout.wal_directory, "wal"))
    parts += [(place, f"tablespaces/{name}") for name, place in layout.tablespaces.items()]
    return (
        run("mkdir", "tablespaces"),
        PlannedCommand.of(plan_copy(parts, user=user, cwd=_files(directory))),
        run("rm", "data/pg_wal")
        if layout.wal_directory
        else run("mv", "data/pg_wal", "wal"),  # a link, or the real one
        *(run("rm", Ref(oid_name(name), "data/pg_tblspc/")) for name in layout.tablespaces),  # links too
    )


def oid_name(tablespace: str) -> str:
    """The name of a tablespace's OID among the values that a trial determines while it runs."""
    return f"oid of {tablespace}"


def restore_golden(host: Host, golden: Golden, layout: ServerDirectories, user: str) -> None:
    """`place_golden`, and returns when everything is on the medium (syncfs)."""
    place_golden(host, golden, layout, user)
    host.run(plan_sync(layout))


def plan_sync(layout: ServerDirectories) -> Command:
    return Command(("sync", "--file-system", *layout.places), timeout_s=COPY_TIMEOUT_S)


def place_golden(host: Host, golden: Golden, layout: ServerDirectories, user: str) -> None:
    """Copies a golden directory to where `layout` says, with pg_wal and tablespaces linked to their places.

    The target directories must be empty or absent.
    """
    if set(golden.tablespaces) != set(layout.tablespaces):
        raise TrialError(f"golden copy {golden.directory} has other tablespaces than the stack")
    host.make_directory(layout.data_directory, mode=0o700, owner=user)
    bindings = {oid_name(name): str(oid) for name, oid in golden.tablespaces.items()}
    for command in plan_place_golden(golden.directory, layout, user):
        host.run(command.resolve(bindings))


def plan_place_golden(directory: str, layout: ServerDirectories, user: str) -> tuple[PlannedCommand, ...]:
    """The commands of `place_golden`; OIDs of tablespaces are bound as `oid_name` says."""
    parts = [
        ("data", layout.data_directory),
        ("wal", layout.wal_directory or f"{layout.data_directory}/pg_wal"),
        *((f"tablespaces/{name}", place) for name, place in layout.tablespaces.items()),
    ]
    links: list[tuple[str, Argument]] = []
    if layout.wal_directory:
        links.append((layout.wal_directory, f"{layout.data_directory}/pg_wal"))
    for name, place in layout.tablespaces.items():
        links.append((place, Ref(oid_name(name), f"{layout.data_directory}/pg_tblspc/")))
    return (
        PlannedCommand.of(plan_copy(parts, user=user, cwd=_files(directory))),
        *(
            PlannedCommand(("ln", "--symbolic", "--no-dereference", target, link), user=user, cwd="/")
            for target, link in links
        ),
    )


def _files(directory: str) -> str:
    return f"{directory}/files"


def plan_copy(parts: Sequence[tuple[str, str]], *, user: str, cwd: str) -> Command:
    """Copies the content of directories, (source, target) each, with modes and times, as full blocks.

    All at once: a single cp reads so little ahead that it waits for the device most of the time.
    """
    words = (*("xargs", "--null", "--max-args", "2", "--max-procs", str(len(parts))), *COPY)
    names = "".join(f"{name}\0" for part in parts for name in part)
    return Command(words, stdin=names, timeout_s=COPY_TIMEOUT_S, user=user, cwd=cwd)
