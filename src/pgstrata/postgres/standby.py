"""Parts that join servers to a cluster: roles and passwords, slots, base backups, and what a standby is told. Pure but
for what reads back.

Passwords are SCRAM-SHA-256 verifiers to the server (RFC 5803), so that none of them knows one, and stand in files that
only the servers' user can read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Mapping, Sequence

from pgstrata.host.protocol import Command
from pgstrata.postgres.server import SUPERUSER, Server
from pgstrata.spec.stack import PRIMARY, Stack

STANDBY_ROLE = "pgstrata_standby"
"""Role that standbys connect as; may replicate and nothing else."""
PRIMARY_PASSFILE = "passfile.driver"
"""In the primary's run directory: the superuser's password, for pgbench on its own node."""
STANDBY_PASSFILE = "passfile"
MARK_TABLE = "pgstrata_mark"
"""In the database `postgres`: one number that is raised on the primary and read on standbys."""
PASSWORD_BYTES, SALT_BYTES = 24, 16
SCRAM_ITERATIONS = 4096
"""PostgreSQL's default."""
BACKUP_TIMEOUT_S = 6 * 3600.0

LOCAL = "SET synchronous_commit = local;\n"
"""In front of statements before standbys follow, whose commits would wait for ever."""

SENDERS = """
SELECT application_name AS name, host(client_addr) AS address, state, sync_state,
       coalesce(pg_wal_lsn_diff(
           CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END, replay_lsn
       ), -1) AS behind_bytes
FROM pg_stat_replication WHERE usename = 'pgstrata_standby' AND application_name LIKE 'standby%'
"""
"""Every standby that is connected to this server; `behind_bytes` is -1 while it has not said how far it is."""

ARCHIVER = "SELECT archived_count, failed_count, coalesce(last_failed_wal, '') AS last_failed FROM pg_stat_archiver"

WAITING = """
SELECT (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS able,
       count(*) AS waiting, coalesce(string_agg(backend_xid::text, ' '), '') AS transactions
FROM pg_stat_activity WHERE wait_event = 'SyncRep'
"""
"""Standbys that can acknowledge, sessions whose commit waits for that, and the transactions of these."""


def render_access(driver: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Lines of pg_hba.conf: the load from its place, and standbys from any node, as each may become the primary."""
    return (
        f"host all {SUPERUSER} {ipaddress.ip_network(driver)} scram-sha-256",
        *(f"host replication {STANDBY_ROLE} {address}/32 scram-sha-256" for address in nodes),
    )


def scram_verifier(password: str, salt: bytes, iterations: int = SCRAM_ITERATIONS) -> str:
    """Return what `CREATE ROLE ... PASSWORD` stores of a password of plain ASCII (RFC 5802, RFC 5803)."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key, server_key = (hmac.digest(salted, word, "sha256") for word in (b"Client Key", b"Server Key"))
    shown = (base64.b64encode(part).decode() for part in (salt, hashlib.sha256(client_key).digest(), server_key))
    salt_text, stored_text, server_text = shown
    return f"SCRAM-SHA-256${iterations}:{salt_text}${stored_text}:{server_text}"


def render_roles(superuser: str, standby: str, slots: Sequence[str]) -> str:
    """The statements that let nodes in, by their verifiers, and keep WAL for the standbys."""
    return (
        f"{render_superuser(superuser)}"
        f"CREATE ROLE {STANDBY_ROLE} LOGIN REPLICATION PASSWORD '{standby}';\n{render_slots(slots)}"
    )


def render_superuser(verifier: str) -> str:
    """The statement that gives the superuser a password, by its verifier."""
    return f"{LOCAL}ALTER ROLE {SUPERUSER} PASSWORD '{verifier}';\n"


def render_slots(names: Sequence[str]) -> str:
    """The statements that keep WAL for those that follow a server."""
    return "".join(f"SELECT pg_create_physical_replication_slot('{name}', true);\n" for name in names)


def render_mark() -> str:
    """The statements that make `MARK_TABLE`."""
    return f"{LOCAL}CREATE TABLE {MARK_TABLE} AS SELECT 0::bigint AS mark;\n"


def render_passfile(role: str, password: str) -> str:
    """A password file of libpq: that role, wherever it connects."""
    return f"*:*:*:{role}:{password}\n"


def password_of(passfile: str) -> str:
    """Return the password that `render_passfile` was given."""
    return passfile.rstrip("\n").rpartition(":")[2]


def plan_passfile(path: str, as_user: Callable[..., Command]) -> tuple[Command, Command]:
    """A file that only one user can read; its text comes by standard input of the second command."""
    return as_user("install", "--mode", "0600", "/dev/null", path), as_user("tee", path)


def connection(server: Server, upstream: str, port: int, name: str) -> str:
    """Return the connection string by which a standby reaches the server that it follows."""
    passfile = f"{server.run_directory}/{STANDBY_PASSFILE}"
    return f"host={upstream} port={port} user={STANDBY_ROLE} passfile={passfile} application_name={name}"


def plan_base_backup(server: Server, upstream: str, name: str, *, slot: bool) -> tuple[Command, ...]:
    """Copies the running server at the address `upstream` to where a standby is to be, and makes it one of its own."""
    listening, layout = server.listening, server.layout
    assert listening is not None
    waldir = ("--waldir", layout.wal_directory) if layout.wal_directory else ()
    backup = server.as_user(
        f"{server.installation.client_directory}/pg_basebackup",
        "--pgdata", layout.data_directory,
        *waldir,
        "--dbname", connection(server, upstream, server.port, name),
        *(("--slot", name) if slot else ()),
        "--wal-method", "stream",
        "--checkpoint", "fast",
        "--no-password", "--no-sync",
        timeout_s=BACKUP_TIMEOUT_S,
    )  # fmt: skip
    return (
        listening.enter(backup),
        server.as_user("touch", f"{layout.data_directory}/standby.signal"),
        Command(("sync", "--file-system", *layout.places), timeout_s=BACKUP_TIMEOUT_S),
    )


def primary_settings(stack: Stack, archive_directory: str | None) -> dict[str, str]:
    """Return the settings of the primary that the topology decides."""
    cluster = stack.topology
    assert cluster is not None
    settings = {"cluster_name": PRIMARY, "synchronous_standby_names": cluster.synchronous_standby_names}
    if cluster.synchronous_commit is not None:
        settings["synchronous_commit"] = cluster.synchronous_commit
    if archive_directory is not None:
        settings |= {"archive_mode": "on", "archive_command": f"cp %p {archive_directory}/%f"}
    return settings


def standby_settings(stack: Stack, server: Server, upstream: str, name: str) -> dict[str, str]:
    """Return the settings of a standby that the topology decides."""
    cluster = stack.topology
    assert cluster is not None
    settings = {
        "cluster_name": name,
        "hot_standby": "on",
        "primary_conninfo": connection(server, upstream, server.port, name),
    }
    return settings | ({"primary_slot_name": name} if cluster.slots else {})


def sender_problems(
    rows: Sequence[Mapping[str, object]], expected: Mapping[str, str], names: Sequence[str]
) -> list[str]:
    """Return what keeps the standbys from following as they are to: not connected, not streaming, behind, in another
    `sync_state` than `expected` where that is known. Pure."""
    found = {str(row["name"]): row for row in rows}
    problems = []
    for name in names:
        row = found.get(name)
        if row is None:
            problems.append(f"{name} is not connected")
        elif row["state"] != "streaming":
            problems.append(f"{name} is in state {row['state']}, {row['behind_bytes']} bytes behind")
        elif row["behind_bytes"] == -1:
            problems.append(f"{name} has not said how far it is")
        elif row["behind_bytes"] != 0:
            problems.append(f"{name} is {row['behind_bytes']} bytes behind")
        elif row["sync_state"] != expected.get(name, row["sync_state"]):
            problems.append(f"{name} has sync_state {row['sync_state']} instead of {expected[name]}")
    return problems
