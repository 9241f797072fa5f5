"""Pgpool-II: reads balanced over all nodes, writes to the primary. Pure.

Reference: Pgpool-II documentation, "Server Configuration", "SHOW POOL_NODES", "SHOW POOL_BACKEND_STATS".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command
from pgstrata.postgres.pooler import Pooler, Sent, parse_rows
from pgstrata.postgres.server import OWN_IPC, SUPERUSER
from pgstrata.spec.stack import PRIMARY

SPARE_SESSIONS = 2
"""Beside pgbench's clients: those that ask the pooler itself."""

CONF, HBA, PASSWORDS, PCP = "pgpool.conf", "pool_hba.conf", "pool_passwd", "pcp.conf"

UNASKED = "waiting"
"""State of a node that is up and that no session was opened to yet."""
_WRITES = ("insert_cnt", "update_cnt", "delete_cnt", "ddl_cnt")


@dataclass(frozen=True)
class Pgpool(Pooler):
    """Nobody may control it by pcp, and a server that does not answer fails the run instead of being left out."""

    program = "pgpool"
    port = 9999
    files = (CONF, HBA, PASSWORDS, PCP)
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
            "pool_passwd": self.path(PASSWORDS),
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
        files = ("--config-file", self.path(CONF), "--hba-file", self.path(HBA), "--pcp-file", self.path(PCP))
        started = self.primary.as_user(self.program, *files, "--dont-detach", "--discard-status")
        return self.link.enter(started, further=OWN_IPC)

    @property
    def expected_states(self) -> dict[str, str]:
        roles = {name: "primary" if name == PRIMARY else "standby" for name in self.backends}
        return {name: f"up {role}" for name, role in roles.items()}

    @parser_of("SHOW POOL_NODES")
    def states(self, text: str) -> dict[str, str]:
        """Return for each node whether it is up to the pooler, and as what."""
        return {self.name_of(row["hostname"]): _state(row) for row in parse_rows(text)}

    @parser_of("SHOW POOL_BACKEND_STATS")
    def sent(self, text: str) -> dict[str, Sent]:
        return {self.name_of(row["hostname"]): _sent(row) for row in parse_rows(text)}


def _state(row: Mapping[str, str]) -> str:
    up = "up" if row["status"] == UNASKED else row["status"]
    return f"{up} {row['role']}"


def _sent(row: Mapping[str, str]) -> Sent:
    return Sent(int(row["select_cnt"]), sum(int(row[name]) for name in _WRITES))
