"""Pooler between pgbench and the servers of a cluster, on the node that pgbench runs on. Pure.

It takes sessions by SCRAM-SHA-256 and opens those to the servers likewise. For that it needs the password itself, as
libpq does, which stands in a file that only the servers' user can read. Pgpool-II balances reads over all nodes;
PgBouncer shares few sessions of the primary among many clients.

Reference: Pgpool-II documentation, "Server Configuration", "SHOW POOL_NODES", "SHOW POOL_BACKEND_STATS"; PgBouncer
documentation, "pgbouncer.ini", "Admin console" (`SHOW DATABASES`).
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command, marked
from pgstrata.postgres.server import OWN_IPC, SUPERUSER, Server
from pgstrata.postgres.standby import PRIMARY_PASSFILE
from pgstrata.spec.stack import PRIMARY
from pgstrata.stack.network import Link


@dataclass(frozen=True)
class Sent:
    """Statements that the pooler has sent to a node since it was started."""

    reads: int
    writes: int


@dataclass(frozen=True)
class Pooler(ABC):
    """A pooler of `primary`'s user. `directory` is that user's alone."""

    program: ClassVar[str]
    port: ClassVar[int]
    files: ClassVar[tuple[str, ...]]
    """Their names."""
    console: ClassVar[str]
    """The database in which it answers its own statements."""
    states_query: ClassVar[str]
    sent_query: ClassVar[str]
    """Empty where it does not tell reads from writes."""
    beside: ClassVar[int]
    """Sessions that it opens to each server beside those of pgbench's clients."""

    primary: Server
    link: Link
    """Link of the node that it runs on."""
    backends: Mapping[str, str]
    """Addresses by the names of the nodes, the primary first."""
    directory: str
    sessions: int

    @property
    def address(self) -> str:
        return self.link.address

    def path(self, name: str) -> str:
        """Return the path of one of its files."""
        return f"{self.directory}/{name}"

    def plan_configure(self) -> tuple[Command, ...]:
        """Commands that create and write its files, readable only by its user; the text comes by standard input."""
        paths = tuple(self.path(name) for name in self.files)
        make = tuple(self.primary.as_user("install", "--mode", "0600", "/dev/null", path) for path in paths)
        return (*make, *(self.primary.as_user("tee", path) for path in paths))

    @abstractmethod
    def render_files(self, password: str) -> tuple[str, ...]:
        """The texts of `files`."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Settings as its first file has them, without any password."""

    @abstractmethod
    def plan_start(self) -> Command:
        """Return the command that starts it in the foreground, so that it ends with SIGINT as its other programs do."""

    def ask(self, show: str) -> Command:
        """psql with one of its own statements, whose rows are printed with commas and a head."""
        asked = Command(
            (
                self.primary.installation.program("psql"), "--no-psqlrc", "--csv", "--no-password",
                "--host", self.address,
                "--port", str(self.port),
                "--username", SUPERUSER,
                "--dbname", self.console,
                "--command", show,
            ),
            timeout_s=60.0,
            user=self.primary.user,
            env=(
                *marked(self.primary.marker),
                ("PGPASSFILE", f"{self.primary.run_directory}/{PRIMARY_PASSFILE}"),
            ),
            cwd="/",
        )  # fmt: skip
        return self.link.enter(asked)

    @property
    @abstractmethod
    def expected_states(self) -> dict[str, str]:
        """Result of `states` while all is well."""

    @abstractmethod
    def states(self, text: str) -> dict[str, str]:
        """Return for each node what the pooler takes it for, from the output of `states_query`."""

    @abstractmethod
    def sent(self, text: str) -> dict[str, Sent]:
        """Return for each node what was sent there, from the output of `sent_query`."""

    def name_of(self, address: str) -> str:
        """Return the name of the node with that address; the address itself if no node has it."""
        return {own: name for name, own in self.backends.items()}.get(address, address)


def parse_rows(text: str) -> list[dict[str, str]]:
    """Rows by the names of their columns."""
    return [{name: value.strip() for name, value in row.items()} for row in csv.DictReader(text.splitlines())]


PGBOUNCER_CONF, USERLIST = "pgbouncer.ini", "userlist.txt"
SPARE_SESSIONS = 2
"""Beside pgbench's clients: those that ask the pooler itself."""
SERVER_SESSIONS = 20
"""PgBouncer's own default."""
MODE = "transaction"


@dataclass(frozen=True)
class PgBouncer(Pooler):
    """Every transaction goes to a session of the primary that is free."""

    program = "pgbouncer"
    port = 6432
    files = (PGBOUNCER_CONF, USERLIST)
    console = "pgbouncer"
    states_query = "SHOW DATABASES"
    sent_query = ""
    beside = 0

    def render_files(self, password: str) -> tuple[str, ...]:
        settings = "".join(f"{name} = {value}\n" for name, value in self.settings.items())
        return f"[databases]\n{self._database}\n[pgbouncer]\n{settings}", f'"{SUPERUSER}" "{password}"\n'

    @property
    def _database(self) -> str:
        return f"postgres = host={self.backends[PRIMARY]} port={self.primary.port}"

    @property
    def settings(self) -> dict[str, str]:
        return {
            "listen_addr": self.address,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": self.path(USERLIST),
            "admin_users": SUPERUSER,
            "pool_mode": MODE,
            "default_pool_size": str(SERVER_SESSIONS),
            "max_client_conn": str(self.sessions + SPARE_SESSIONS),
        }

    def plan_start(self) -> Command:
        return self.link.enter(self.primary.as_user(self.program, self.path(PGBOUNCER_CONF)))

    @property
    def expected_states(self) -> dict[str, str]:
        return {PRIMARY: f"port {self.primary.port}, {SERVER_SESSIONS} sessions, {MODE}"}

    @parser_of("SHOW DATABASES")
    def states(self, text: str) -> dict[str, str]:
        """Return the port, number of sessions and mode, by node that it leads to."""
        rows = [row for row in parse_rows(text) if row["name"] != self.console]
        return {self.name_of(row["host"]): _database_state(row) for row in rows}

    def sent(self, text: str) -> dict[str, Sent]:
        """Return nothing: it does not tell reads from writes, and all go to the primary."""
        return {}


def _database_state(row: Mapping[str, str]) -> str:
    held = [word for word in ("paused", "disabled") if row[word] != "0"]
    mode = row["pool_mode"] or MODE
    return ", ".join([f"port {row['port']}", f"{row['pool_size']} sessions", mode, *held])


PGPOOL_CONF, HBA, PGPOOL_PASSWORDS, PCP = "pgpool.conf", "pool_hba.conf", "pool_passwd", "pcp.conf"

UNASKED = "waiting"
"""State of a node that is up and that no session was opened to yet."""
_WRITES = ("insert_cnt", "update_cnt", "delete_cnt", "ddl_cnt")


@dataclass(frozen=True)
class Pgpool(Pooler):
    """Nobody may control it by pcp, and a server that does not answer fails the run instead of being left out."""

    program = "pgpool"
    port = 9999
    files = (PGPOOL_CONF, HBA, PGPOOL_PASSWORDS, PCP)
    console = "postgres"
    states_query = "SHOW POOL_NODES"
    sent_query = "SHOW POOL_BACKEND_STATS"
    beside = SPARE_SESSIONS + 2
    """Also of the check of the roles, and of `SHOW POOL_NODES`."""

    def render_files(self, password: str) -> tuple[str, ...]:
        settings = "".join(f"{name} = '{value}'\n" for name, value in self.settings.items())
        return (
            settings,
            f"host all {SUPERUSER} {self.address}/32 scram-sha-256\n",
            f"{SUPERUSER}:TEXT{password}\n",
            "",
        )

    @property
    def settings(self) -> dict[str, str]:
        backends: dict[str, str] = {}
        for number, (name, address) in enumerate(self.backends.items()):
            backends |= {
                f"backend_hostname{number}": address,
                f"backend_port{number}": str(self.primary.port),
                f"backend_weight{number}": "1",
                f"backend_flag{number}": "DISALLOW_TO_FAILOVER",
                f"backend_application_name{number}": name,
            }
        return {
            "backend_clustering_mode": "streaming_replication",
            "listen_addresses": self.address,
            "port": str(self.port),
            "socket_dir": self.directory,
            "pcp_listen_addresses": "",
            "pcp_socket_dir": self.directory,
            "pid_file_name": self.path("pgpool.pid"),
            "logdir": self.directory,
            "enable_pool_hba": "on",
            "pool_passwd": self.path(PGPOOL_PASSWORDS),
            "num_init_children": str(self.sessions + SPARE_SESSIONS),
            "max_pool": "1",
            "load_balance_mode": "on",
            "statement_level_load_balance": "on",
            "sr_check_period": "0",
            "sr_check_user": SUPERUSER,
            "sr_check_database": "postgres",
            **backends,
        }

    def plan_start(self) -> Command:
        files = ("--config-file", self.path(PGPOOL_CONF), "--hba-file", self.path(HBA), "--pcp-file", self.path(PCP))
        started = self.primary.as_user(self.program, *files, "--dont-detach", "--discard-status")
        return self.link.enter(started, further=OWN_IPC)

    @property
    def expected_states(self) -> dict[str, str]:
        roles = {name: "primary" if name == PRIMARY else "standby" for name in self.backends}
        return {name: f"up {role}" for name, role in roles.items()}

    @parser_of("SHOW POOL_NODES")
    def states(self, text: str) -> dict[str, str]:
        """Return for each node whether it is up to the pooler, and as what."""
        return {self.name_of(row["hostname"]): _node_state(row) for row in parse_rows(text)}

    @parser_of("SHOW POOL_BACKEND_STATS")
    def sent(self, text: str) -> dict[str, Sent]:
        return {self.name_of(row["hostname"]): _node_sent(row) for row in parse_rows(text)}


def _node_state(row: Mapping[str, str]) -> str:
    up = "up" if row["status"] == UNASKED else row["status"]
    return f"{up} {row['role']}"


def _node_sent(row: Mapping[str, str]) -> Sent:
    return Sent(int(row["select_cnt"]), sum(int(row[name]) for name in _WRITES))
