"""Pgpool-II in front of a cluster, on the node that pgbench runs on: its files, its commands, and what it tells.

Reference: Pgpool-II documentation, "Server Configuration", "SHOW POOL_NODES", "SHOW POOL_BACKEND_STATS". Pure.

It takes sessions by SCRAM-SHA-256 and opens those to the servers likewise. For that it needs the password itself, as
libpq does, which stands in a file that only the servers' user can read.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command, marked
from pgstrata.postgres.server import SUPERUSER, Server
from pgstrata.postgres.standby import PRIMARY_PASSFILE
from pgstrata.spec.stack import PRIMARY
from pgstrata.stack.network import Link

PORT = 9999
"""Pgpool-II's own default."""
SPARE_SESSIONS = 2
"""Beside pgbench's clients: those that ask the pooler itself."""
OWN_CONNECTIONS = SPARE_SESSIONS + 2
"""To each server beside those of pgbench's clients: also of the check of the roles, and of `SHOW POOL_NODES`."""

CONF, HBA, PASSWORDS, PCP = "pgpool.conf", "pool_hba.conf", "pool_passwd", "pcp.conf"
FILES = (CONF, HBA, PASSWORDS, PCP)

OWN_IPC = ("unshare", "--ipc")
"""Its shared memory and semaphores are of System V, and would stay when it is killed: in a namespace of their own they
go with its processes."""

NODES = "SHOW POOL_NODES"
STATISTICS = "SHOW POOL_BACKEND_STATS"

UNASKED = "waiting"
"""Of a node that is up and that no session was opened to yet."""
_WRITES = ("insert_cnt", "update_cnt", "delete_cnt", "ddl_cnt")


@dataclass(frozen=True)
class Sent:
    """Statements that the pooler has sent to a node since it was started."""

    reads: int
    writes: int


@dataclass(frozen=True)
class Pooler:
    """A Pgpool-II of `primary`'s user. `directory` is that user's alone."""

    primary: Server
    link: Link
    """Of the node that it runs on."""
    backends: Mapping[str, str]
    """Addresses by the names of the nodes, the primary first."""
    directory: str
    sessions: int

    @property
    def address(self) -> str:
        return self.link.address

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def plan_configure(self) -> tuple[Command, ...]:
        """What makes its files, which only its user can read, and writes them; their text comes by standard input."""
        paths = tuple(self._path(name) for name in FILES)
        make = tuple(self.primary.as_user("install", "--mode", "0600", "/dev/null", path) for path in paths)
        return (*make, *(self.primary.as_user("tee", path) for path in paths))

    def render_files(self, password: str) -> tuple[str, ...]:
        """The texts of `FILES`; nobody may control it by pcp."""
        settings = "".join(f"{name} = '{value}'\n" for name, value in self.settings.items())
        return (
            settings,
            f"host all {SUPERUSER} {self.address}/32 scram-sha-256\n",
            f"{SUPERUSER}:TEXT{password}\n",
            "",
        )

    @property
    def settings(self) -> dict[str, str]:
        """Of pgpool.conf. A server that does not answer fails the run instead of being left out."""
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
            "port": str(PORT),
            "socket_dir": self.directory,
            "pcp_listen_addresses": "",
            "pcp_socket_dir": self.directory,
            "pid_file_name": self._path("pgpool.pid"),
            "logdir": self.directory,
            "enable_pool_hba": "on",
            "pool_passwd": self._path(PASSWORDS),
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
        """It stays in the foreground, and so ends with SIGINT as its other programs do."""
        files = ("--config-file", self._path(CONF), "--hba-file", self._path(HBA), "--pcp-file", self._path(PCP))
        started = self.primary.as_user("pgpool", *files, "--dont-detach", "--discard-status")
        return self.link.enter(started, further=OWN_IPC)

    def ask(self, show: str, database: str) -> Command:
        """psql with one of its own statements, whose rows are printed with commas and a head."""
        asked = Command(
            (
                self.primary.installation.program("psql"), "--no-psqlrc", "--csv", "--no-password",
                "--host", self.address,
                "--port", str(PORT),
                "--username", SUPERUSER,
                "--dbname", database,
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
    def expected_states(self) -> dict[str, str]:
        """What `states` gives while all is well."""
        roles = {name: "primary" if name == PRIMARY else "standby" for name in self.backends}
        return {name: f"up {role}" for name, role in roles.items()}

    @parser_of("SHOW POOL_NODES")
    def states(self, text: str) -> dict[str, str]:
        """Of each node whether it is up to the pooler, and as what."""
        return {name: _state(row) for name, row in self._by_name(text).items()}

    @parser_of("SHOW POOL_BACKEND_STATS")
    def sent(self, text: str) -> dict[str, Sent]:
        return {name: _sent(row) for name, row in self._by_name(text).items()}

    def _by_name(self, text: str) -> dict[str, dict[str, str]]:
        names = {address: name for name, address in self.backends.items()}
        return {names.get(row["hostname"], row["hostname"]): row for row in parse_rows(text)}


def parse_rows(text: str) -> list[dict[str, str]]:
    """Rows by the names of their columns."""
    return [{name: value.strip() for name, value in row.items()} for row in csv.DictReader(text.splitlines())]


def _state(row: Mapping[str, str]) -> str:
    up = "up" if row["status"] == UNASKED else row["status"]
    return f"{up} {row['role']}"


def _sent(row: Mapping[str, str]) -> Sent:
    return Sent(int(row["select_cnt"]), sum(int(row[name]) for name in _WRITES))
