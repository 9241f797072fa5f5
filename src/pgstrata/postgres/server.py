"""A PostgreSQL server on a host: made, set, started, asked, stopped.

The server runs as an unprivileged user and listens on a socket in a private folder of that user's (mode 0700), and asks
the kernel who comes by it (`peer`). Statements go through psql on the host, so that a server
behind ssh needs no tunnel.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pgstrata.errors import PreflightError, TrialError
from pgstrata.host.protocol import Command, CommandFailed, Host, marked
from pgstrata.postgres.binaries import Installation
from pgstrata.postgres.settings import (
    IMPORTANT,
    ServerSetting,
    SettingKind,
    check_settings,
    compare_settings,
    parse_conf,
    refuse_settings,
    render_conf,
)
from pgstrata.stack.step import Attested, PlannedCommand

SUPERUSER = "postgres"
IDENT_MAP = "pgstrata"
LONGEST_SOCKET_PATH = 107
"""sun_path holds 108 bytes with the final zero (unix(7))."""

LOG_TAIL_LINES = 20

WRITTEN_HEAD = "# Written by pgstrata: all that is set is in this file.\n"

CONF = "postgresql.conf"
INITDB_CONF = "postgresql.conf.initdb"
CONFIGURATION = (CONF, "pg_hba.conf", "pg_ident.conf")

HBA = f"""\
# Written by pgstrata: the server's own user comes by the socket; by TCP, where it listens, nobody does without a
# password.
local all all peer map={IDENT_MAP}
"""
HBA_ALONE = f"{HBA}host all all all scram-sha-256\n"
"""The superuser has no password."""

PID = re.compile("[1-9][0-9]{0,9}")
SEGMENT = re.compile("[0-9A-F]{24}")
SPARE_WAL_BYTES = 80 << 20
"""Bytes that the default of min_wal_size keeps ready."""

FIXED_SETTINGS = {
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "log_checkpoints": "on",
    "unix_socket_permissions": "0700",
}
"""Settings that the parsers of the log and the way to the server rely on; a stack may not set these."""

STOP_POLL_S = 0.01

OWN_IPC = ("unshare", "--ipc")
"""Shared memory and semaphores of System V stay when those who use them are killed: in a namespace of their own they go
with its processes."""

SETTINGS = """
SELECT lower(name) AS name, false AS elsewhere,
       setting || CASE WHEN pending_restart THEN ' (another value waits for a restart)' ELSE '' END AS setting,
       vartype, unit
FROM pg_settings
UNION ALL
SELECT lower(name), true, setting, vartype, unit FROM pg_settings WHERE sourcefile LIKE '%/postgresql.auto.conf'
UNION ALL
SELECT lower(split_part(c, '=', 1)), true, split_part(c, '=', 2) || ' (of a role or database)', NULL, NULL
FROM pg_db_role_setting, unnest(setconfig) c ORDER BY 1
"""
"""Every setting in force, and `elsewhere` those by ALTER SYSTEM, ALTER ROLE and ALTER DATABASE, which win over the
file."""

CHANGED_OR_IMPORTANT = """
SELECT name, setting, unit, boot_val AS default, source
FROM pg_settings
WHERE source NOT IN ('client', 'session')
  AND (setting IS DISTINCT FROM boot_val OR name = ANY (string_to_array(:'important', ',')))
ORDER BY name
"""
"""`client` and `session` are of psql alone."""

WAL_NOW = """
SELECT pg_walfile_name(pg_current_wal_insert_lsn()) AS name,
       pg_size_bytes(current_setting('wal_segment_size')) AS size
"""


@dataclass(frozen=True)
class Listening:
    """Place where a server listens beside its socket: an address of a network namespace that it runs in, or a loopback
    address of the host's.

    `hba` are the lines of those that may come by it.
    """

    address: str
    enter: Callable[[Command], Command]
    """The same command where that address is."""
    hba: tuple[str, ...]


@dataclass(frozen=True)
class ServerDirectories:
    """Places of a cluster's parts. `tablespaces` maps names to directories; all of it belongs to the server user."""

    data_directory: str
    wal_directory: str | None = None
    tablespaces: Mapping[str, str] = field(default_factory=dict)

    @property
    def places(self) -> tuple[str, ...]:
        """All its directories."""
        return (self.data_directory, *filter(None, [self.wal_directory]), *self.tablespaces.values())


def spare_segments(names: Sequence[str], current: str, segment_bytes: int) -> tuple[str, ...]:
    """Return those recycled segments of pg_wal after the current one that are more than `SPARE_WAL_BYTES`.

    At least two are kept, because a shutdown checkpoint may reach into the next one.
    """
    kept = max(2, SPARE_WAL_BYTES // segment_bytes)
    later = sorted(name for name in names if SEGMENT.fullmatch(name) and name > current)
    return tuple(later[kept:])


def render_ident(user: str) -> str:
    """pg_ident.conf: that OS user, and no other, is the superuser."""
    return f'# Written by pgstrata.\n{IDENT_MAP} "{user}" {SUPERUSER}\n'


def default_run_directory(data_directory: str) -> str:
    """A short private folder for socket and log, named after the data directory so that undo can name it."""
    return f"/tmp/pgstrata-{hashlib.sha256(data_directory.encode()).hexdigest()[:12]}"


class Server:
    """One server and its data directory. `run_directory` holds the socket and the log and belongs to the server user
    alone."""

    def __init__(
        self,
        host: Host,
        installation: Installation,
        user: str,
        layout: ServerDirectories,
        *,
        run_directory: str = "",
        port: int = 5432,
        marker: str = "",
        listening: Listening | None = None,
        at: str = "",
    ) -> None:
        self.host = host
        self.installation = installation
        self.user = user
        self.layout = layout
        self.run_directory = run_directory or default_run_directory(layout.data_directory)
        self.port = port
        self.marker = marker
        self.listening = listening
        self.at = at
        """The name of its host among those of a cluster's nodes; empty for the trial's own."""
        self.expected: dict[str, str] = {}
        """Settings that `attest_settings` compares with, normalised by the server."""
        self._written: dict[str, str] = {}
        """Text of files in the data directory."""
        socket = f"{self.run_directory}/.s.PGSQL.{port}"
        if len(socket.encode()) > LONGEST_SOCKET_PATH:
            raise PreflightError(
                f"socket path {socket} is longer than {LONGEST_SOCKET_PATH} bytes", hint="choose a shorter folder"
            )

    def planned(self, *commands: Command) -> tuple[PlannedCommand, ...]:
        """Its commands as a step has them, on its host."""
        return tuple(PlannedCommand.of(command, self.at) for command in commands)

    @property
    def log_file(self) -> str:
        return f"{self.run_directory}/postgresql.log"

    # ------------------------------------------------------------ making

    # Every command that changes something comes from a `plan_` function, which a trial's plan shows, too. Commands
    # that only look are marked as such (`Host.looking`).

    def init(self, *, data_checksums: bool | None = None, options: tuple[str, ...] = ()) -> None:
        """Makes folders and cluster (initdb: UTF8, locale C, superuser `postgres`).

        Returns when it is on the medium (syncfs).
        """
        self.make_directories()
        for command in self.plan_init(data_checksums, options):
            self.host.run(command)

    def plan_init(self, data_checksums: bool | None, options: tuple[str, ...]) -> tuple[Command, ...]:
        """initdb, its postgresql.conf kept beside the one that is written later, and everything on the medium."""
        argv = plan_initdb(self.installation, self.layout, data_checksums, options)
        return (
            self.as_user(*argv, timeout_s=300),
            self.as_user("cp", self._in_data(CONF), self._in_data(INITDB_CONF)),
            Command(("sync", "--file-system", *self.layout.places), timeout_s=300),
        )

    def make_directories(self) -> None:
        """Makes the folders of the layout and the run directory, owned by the server user."""
        for place in (*self.layout.places, self.run_directory):
            self.host.make_directory(place, mode=0o700, owner=self.user)
        self._refuse_strange_run_directory()

    def _refuse_strange_run_directory(self) -> None:
        # It lies in /tmp, where anybody could have made one of that name before.
        with self.host.looking():
            uid = int(self.host.run(Command(("id", "-u", self.user))).stdout)
        status = self.host.status(self.run_directory, follow=False)
        if status is None or status.kind != "directory" or status.uid != uid or status.mode & 0o077:
            raise PreflightError(
                f"{self.run_directory} is not a private folder of user {self.user}", hint=f"ls -ld {self.run_directory}"
            )

    def configure(
        self,
        settings: Mapping[str, str],
        given: Mapping[str, str] | None = None,
        *,
        data_checksums: bool | None = None,
        further: Mapping[str, str] | None = None,
    ) -> None:
        """Checks and writes the settings; `given` is what was taken over of a whole postgresql.conf, below them, and
        `further` what pgstrata itself sets above them.

        `data_checksums` is what initdb was asked for (also for a copied cluster) and is attested with the settings.
        Raises PreflightError for names or values that the server refuses and for settings that pgstrata needs.
        """
        refuse_settings(settings)
        asked = {**(given or {}), **{name.lower(): value for name, value in settings.items()}}
        fixed = {
            **FIXED_SETTINGS,
            "unix_socket_directories": self.run_directory,
            "listen_addresses": self.listening.address if self.listening else "",
            "port": str(self.port),
            **(further or {}),
        }
        base = parse_conf(self._read(self._in_data(INITDB_CONF)) or "") if given is None else {}
        with self.host.looking():
            normalised = check_settings(self.host, self.installation, self.user, asked)
        made = {} if data_checksums is None else {"data_checksums": "on" if data_checksums else "off"}
        self.expected = {**normalised, **fixed, **made}
        conf = WRITTEN_HEAD + render_conf({**base, **asked, **fixed})
        hba = HBA + "".join(f"{line}\n" for line in self.listening.hba) if self.listening else HBA_ALONE
        self._written = dict(zip(CONFIGURATION, (conf, hba, render_ident(self.user)), strict=True))
        for command, text in zip(self.plan_configure(), self._written.values(), strict=True):
            self.host.run(replace(command, stdin=text))

    def plan_configure(self) -> tuple[Command, ...]:
        """Commands that write the three files; their text comes by standard input."""
        return tuple(self.as_user("tee", self._in_data(name)) for name in CONFIGURATION)

    # Whoever loads and asks the server is its superuser, and so its OS user: all that this user may change is written
    # by a program of that user's, and read only where it is a plain file of that user's.

    def _in_data(self, name: str) -> str:
        return f"{self.layout.data_directory}/{name}"

    def _read(self, path: str) -> str | None:
        try:
            return self.host.read_text(path, owner=self.user)
        except FileNotFoundError:
            return None

    # ------------------------------------------------------------ running

    def start(self, timeout_s: float = 600.0) -> None:
        """Starts the server and waits until it answers; recovery after a crash counts into `timeout_s`.

        Raises TrialError with the tail of the server's log.
        """
        self._refuse_used_socket()
        self.host.make_directory(self.run_directory, mode=0o700, owner=self.user)
        mark = len(self.read_log())
        try:
            self.host.run(self.plan_start(timeout_s))
        except CommandFailed as error:
            raise self._start_failure(self.read_log()[mark:]) from error

    def plan_start(self, timeout_s: float = 600.0) -> Command:
        start = self._pg_ctl("start", "--log", self.log_file, "--wait", timeout_s=timeout_s)
        return self.listening.enter(start) if self.listening else start

    def stop(self, timeout_s: float = 600.0) -> None:
        """Stops with a shutdown checkpoint (mode fast); fine when it does not run."""
        self._stop("fast", timeout_s)

    def crash_stop(self, timeout_s: float = 60.0) -> None:
        """Stops at once, without a checkpoint (mode immediate): the next start recovers."""
        self._stop("immediate", timeout_s)

    def restart(self, timeout_s: float = 600.0) -> None:
        self.stop(timeout_s)
        self.start(timeout_s)

    def stop_without_spare_wal(self, timeout_s: float = 600.0) -> None:
        """Stops, and removes the recycled WAL segments beyond `SPARE_WAL_BYTES`.

        After a load hundreds of them wait to be written again; how many depends on the settings of the server that
        loaded. Every run starts with the same few instead, whether its data was loaded or copied.
        """
        now = json.loads(self.host.run(self.ask(WAL_NOW)).stdout)[0]
        self.stop(timeout_s)
        find, remove = self._plan_remove_spare()
        names = self.host.run(find).stdout.splitlines()
        spare = spare_segments(names, now["name"], int(now["size"]))
        listed = "".join(f"{self.wal_directory}/{name}\0" for name in spare)
        self.host.run(replace(remove, stdin=listed))

    def plan_stop_without_spare_wal(self, timeout_s: float = 600.0) -> tuple[Command, ...]:
        return self.ask(WAL_NOW), self.plan_stop("fast", timeout_s), *self._plan_remove_spare()

    def _plan_remove_spare(self) -> tuple[Command, Command]:
        return (
            self.as_user("find", self.wal_directory, "-maxdepth", "1", "-type", "f", "-printf", "%f\n"),
            self.as_user("xargs", "--null", "rm", "--force"),
        )

    @property
    def wal_directory(self) -> str:
        return self.layout.wal_directory or self._in_data("pg_wal")

    def running(self) -> bool:
        """True if a server runs on the data directory."""
        return self.postmaster_pid() is not None

    def postmaster_pid(self) -> int | None:
        """Process id of the running server; None when there is none."""
        first = (self._read(self._in_data("postmaster.pid")) or "").split("\n", 1)[0].strip()
        if not PID.fullmatch(first):
            return None
        pid = int(first)
        comm = f"/proc/{pid}/comm"
        # A file left by a killed server may name a number that another program has by now.
        alive = self.host.status(comm) is not None and self.host.read_text(comm).strip() in ("postgres", "postmaster")
        return pid if alive else None

    def read_log(self) -> str:
        return self._read(self.log_file) or ""

    def _stop(self, mode: str, timeout_s: float) -> None:
        pid = self.postmaster_pid()
        if pid is None:
            return
        self.host.run(self.plan_stop(mode, timeout_s))
        deadline = time.monotonic() + timeout_s
        while self._lives(pid):  # pg_ctl --wait looks every 100 ms only, and at a file that goes before the process
            if time.monotonic() > deadline:
                tail = "\n".join(self.read_log().splitlines()[-LOG_TAIL_LINES:])
                raise TrialError(
                    f"PostgreSQL on {self.host.name} did not stop within {timeout_s:g} s; the end of its log:\n{tail}"
                )
            time.sleep(STOP_POLL_S)

    def plan_stop(self, mode: str = "fast", timeout_s: float = 600.0) -> Command:
        return self._pg_ctl("stop", "--mode", mode, "--no-wait", timeout_s=timeout_s)

    def _lives(self, pid: int) -> bool:
        try:
            return self.host.read_text(f"/proc/{pid}/cmdline") != ""  # empty for one that only waits to be reaped
        except OSError:
            return False

    def _pg_ctl(self, action: str, *options: str, timeout_s: float) -> Command:
        return self.as_user(
            self.installation.program("pg_ctl"), action,
            "--pgdata", self.layout.data_directory,
            "--timeout", str(int(timeout_s)),
            "--silent", *options,
            timeout_s=timeout_s + 30,
        )  # fmt: skip

    def as_user(self, *argv: str, timeout_s: float = 60.0, stdin: str = "") -> Command:
        """A command as the server user, marked as belonging to the trial."""
        return Command(argv, timeout_s=timeout_s, stdin=stdin, user=self.user, env=marked(self.marker), cwd="/")

    def _refuse_used_socket(self) -> None:
        lock = self._read(f"{self.run_directory}/.s.PGSQL.{self.port}.lock") or ""
        pid = lock.split("\n", 1)[0].strip()
        if PID.fullmatch(pid) and self.host.status(f"/proc/{pid}"):
            raise TrialError(
                f"port {self.port} in {self.run_directory} is in use by process {pid}", hint=f"ps -o args= -p {pid}"
            )

    def _start_failure(self, log: str) -> TrialError:
        version, name = self.installation.version, self.host.name
        tail = "\n".join(log.splitlines()[-LOG_TAIL_LINES:])
        return TrialError(
            f"PostgreSQL {version} did not start on {name}; the end of its log:\n{tail}",
            hint="the whole log is kept in the folder of the trial: raw/postgresql*.log",
        )

    # ------------------------------------------------------------ asking

    def psql(self, database: str = "postgres", **variables: str) -> tuple[str, ...]:
        """Arguments of psql that connect to this server; statements come from standard input."""
        pairs = [f"--set={name}={value}" for name, value in variables.items()]
        return (
            self.installation.program("psql"), "-XAtq", "--set=ON_ERROR_STOP=1", *pairs,
            "--host", self.run_directory,
            "--port", str(self.port),
            "--username", SUPERUSER,
            "--dbname", database,
        )  # fmt: skip

    def execute(
        self, statements: str, database: str = "postgres", *, timeout_s: float = 600.0, **variables: str
    ) -> str:
        """Runs statements and returns what psql prints; `variables` are there as :'name'."""
        return self.host.run(self.plan_execute(statements, database, timeout_s=timeout_s, **variables)).stdout

    def plan_execute(
        self, statements: str, database: str = "postgres", *, timeout_s: float = 600.0, **variables: str
    ) -> Command:
        """psql with statements on its standard input; `variables` are there as :'name'."""
        return self.as_user(*self.psql(database, **variables), timeout_s=timeout_s, stdin=statements)

    def ask(self, query: str, database: str = "postgres", *, timeout_s: float = 60.0, **variables: str) -> Command:
        """psql with one query (no final semicolon), whose rows it prints as a JSON array of objects."""
        wrapped = f"SELECT coalesce(json_agg(row_to_json(r)), '[]') FROM (\n{query}\n) r;"
        return self.plan_execute(wrapped, database, timeout_s=timeout_s, **variables)

    def sql(
        self, query: str, database: str = "postgres", *, timeout_s: float = 60.0, **variables: str
    ) -> list[dict[str, Any]]:
        """The rows of one query (no final semicolon), column names as keys."""
        asked = self.ask(query, database, timeout_s=timeout_s, **variables)
        rows: list[dict[str, Any]] = json.loads(self.host.run(asked).stdout)
        return rows

    def value(self, query: str, database: str = "postgres", *, timeout_s: float = 60.0, **variables: str) -> Any:
        """The only value of a query's only row."""
        (row,) = self.sql(query, database, timeout_s=timeout_s, **variables)
        (only,) = row.values()
        return only

    def attest_settings(self) -> tuple[Attested, ...]:
        """Compare what `configure` wrote with what the running server says; whatever else was set differs too."""
        with self.host.looking():
            rows = self.sql(SETTINGS)
        running = {row["name"]: row for row in rows if not row["elsewhere"]}
        kinds = {name: SettingKind(row["vartype"], row["unit"]) for name, row in running.items()}
        compared = compare_settings(self.expected, {name: row["setting"] for name, row in running.items()}, kinds)
        known = {setting.what for setting in compared}
        elsewhere = [
            Attested(row["name"], "(not set)", row["setting"])
            for row in rows
            if row["elsewhere"] and row["name"] not in known
        ]
        return (*compared, *elsewhere, *(self._attest_file(name) for name in self._written))

    def read_settings(self) -> tuple[ServerSetting, ...]:
        """Every setting of the running server that differs from its default, and the important ones."""
        with self.host.looking():
            rows = self.sql(CHANGED_OR_IMPORTANT, important=",".join(IMPORTANT))
        return tuple(ServerSetting(**row) for row in rows)

    def _attest_file(self, name: str) -> Attested:
        same = self._read(self._in_data(name)) == self._written[name]
        return Attested(name, "as written", "as written" if same else "changed")


def plan_initdb(
    installation: Installation, layout: ServerDirectories, data_checksums: bool | None, options: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Arguments of initdb. Checksums as asked; None leaves the default of that major.

    It is not left to initdb to put the cluster on the medium: it would sync a thousand files one by one.
    """
    checksums: tuple[str, ...] = ()
    if data_checksums:
        checksums = ("--data-checksums",)
    elif data_checksums is False and installation.checksums_by_default:
        checksums = ("--no-data-checksums",)  # PostgreSQL 18 and later know it, and need it
    waldir = ("--waldir", layout.wal_directory) if layout.wal_directory else ()
    return (
        installation.program("initdb"),
        "--pgdata", layout.data_directory,
        *waldir,
        *checksums,
        "--username", SUPERUSER,
        "--auth-local", "peer",
        "--auth-host", "scram-sha-256",
        "--encoding", "UTF8",
        "--locale", "C",
        "--no-sync",
        *options,
    )  # fmt: skip
