"""PgBouncer: the sessions of many clients on few of the primary's. Pure.

Reference: PgBouncer documentation, "pgbouncer.ini", "Admin console" (`SHOW DATABASES`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command
from pgstrata.postgres.pooler import Pooler, Sent, parse_rows
from pgstrata.postgres.server import SUPERUSER
from pgstrata.spec.stack import PRIMARY

CONF, PASSWORDS = "pgbouncer.ini", "userlist.txt"
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
    files = (CONF, PASSWORDS)
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
            "auth_file": self.path(PASSWORDS),
            "admin_users": SUPERUSER,
            "pool_mode": MODE,
            "default_pool_size": str(SERVER_SESSIONS),
            "max_client_conn": str(self.sessions + SPARE_SESSIONS),
        }

    def plan_start(self) -> Command:
        return self.link.enter(self.primary.as_user(self.program, self.path(CONF)))

    @property
    def expected_states(self) -> dict[str, str]:
        return {PRIMARY: f"port {self.primary.port}, {SERVER_SESSIONS} sessions, {MODE}"}

    @parser_of("SHOW DATABASES")
    def states(self, text: str) -> dict[str, str]:
        """Return the port, number of sessions and mode, by node that it leads to."""
        rows = [row for row in parse_rows(text) if row["name"] != self.console]
        return {self.name_of(row["host"]): _state(row) for row in rows}

    def sent(self, text: str) -> dict[str, Sent]:
        """Return nothing: it does not tell reads from writes, and all go to the primary."""
        return {}


def _state(row: Mapping[str, str]) -> str:
    held = [word for word in ("paused", "disabled") if row[word] != "0"]
    mode = row["pool_mode"] or MODE
    return ", ".join([f"port {row['port']}", f"{row['pool_size']} sessions", mode, *held])
