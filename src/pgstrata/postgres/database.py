"""Requests of a trial to a running server beyond settings: space, WAL, checkpoints, cache, tablespaces, loading."""

from __future__ import annotations

import json
from typing import Literal

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command
from pgstrata.postgres.server import SUPERUSER, Server

Prewarmed = Literal["pg_prewarm", "sequential read"]


_READ = """
SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relkind IN ('r', 'i', 'm', 't') AND relpersistence <> 't';
\\echo pg_prewarm
\\else
SELECT format('SELECT count(*) FROM %I.%I', schemaname, relname) FROM pg_stat_user_tables ORDER BY 1 \\gexec
\\echo sequential read
\\endif
"""
PREWARM = f"""
SET synchronous_commit = local;
SELECT count(*) > 0 AS there FROM pg_available_extensions WHERE name = 'pg_prewarm' \\gset
\\if :there
CREATE EXTENSION IF NOT EXISTS pg_prewarm;{_READ}"""
PREWARM_STANDBY = f"""
SELECT count(*) > 0 AS there FROM pg_extension WHERE extname = 'pg_prewarm' \\gset
\\if :there{_READ}"""
"""A standby has the extension when the primary has made it; it makes nothing itself."""

DATABASE_BYTES = "SELECT pg_database_size(:'name') AS size"
WAL_POSITION = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS position"
TABLESPACE_OIDS = "SELECT oid, spcname AS name FROM pg_tablespace"


def plan_create_tablespaces(server: Server) -> tuple[Command, ...]:
    """Makes the tablespaces of the server's directories."""
    statement = "CREATE TABLESPACE :\"name\" LOCATION :'location';"
    places = server.layout.tablespaces.items()
    return tuple(server.plan_execute(statement, name=name, location=location) for name, location in places)


def plan_database_bytes(server: Server, database: str) -> Command:
    return server.ask(DATABASE_BYTES, name=database)


def database_bytes(server: Server, database: str) -> int:
    """Logical size of a database, all forks of all relations (pg_database_size)."""
    (row,) = json.loads(server.host.run(plan_database_bytes(server, database)).stdout)
    return int(row["size"])


def wal_position_bytes(server: Server) -> int:
    """The WAL insert position as a byte count; differences of it are WAL bytes written."""
    (row,) = json.loads(server.host.run(server.ask(WAL_POSITION)).stdout)
    return int(row["position"])


PREWARM_TIMEOUT_S = 4 * 3600.0


def tablespace_oids(server: Server) -> dict[str, int]:
    """The OIDs of the tablespaces of the server's directories."""
    rows = json.loads(server.host.run(server.ask(TABLESPACE_OIDS)).stdout)
    return {row["name"]: int(row["oid"]) for row in rows if row["name"] in server.layout.tablespaces}


def plan_checkpoint(server: Server) -> Command:
    return server.plan_execute("CHECKPOINT;", timeout_s=1800.0)


def plan_vacuum(server: Server, database: str, *, freeze: bool) -> Command:
    """VACUUM ANALYZE of a whole database, with FREEZE when asked."""
    statement = f"VACUUM ({'FREEZE, ' if freeze else ''}ANALYZE);"
    return server.plan_execute(statement, database, timeout_s=7200.0)


def plan_prewarm(server: Server, database: str) -> Command:
    """Reads tables with the values stored apart, indexes and catalogs into memory: with pg_prewarm where the server
    has it.

    Without it tables are read by sequential scans, which fill the cache of the operating system rather than
    shared_buffers (scans of large tables use a ring buffer), and indexes are left to the warm-up.
    """
    return server.plan_execute(PREWARM, database, timeout_s=PREWARM_TIMEOUT_S)


def plan_prewarm_standby(server: Server, database: str) -> Command:
    """The same for a standby, once it has all that the primary has."""
    return server.plan_execute(PREWARM_STANDBY, database, timeout_s=PREWARM_TIMEOUT_S)


def prewarm(server: Server, database: str) -> Prewarmed:
    """Runs `plan_prewarm`; says which of the two ways it took."""
    said = server.host.run(plan_prewarm(server, database)).stdout.strip().rsplit("\n", 1)[-1]
    return "pg_prewarm" if said == "pg_prewarm" else "sequential read"


def plan_sql_file(server: Server, database: str, path: str, timeout_s: float) -> Command:
    """Loads the user's own database from an SQL file that lies on the host."""
    return server.as_user(*server.psql(database), "--file", path, timeout_s=timeout_s)


RESTORE_PHASES = {"tables": "pre-data", "rows": "data", "indexes and constraints": "post-data"}
"""Phases of a restore, with the section of the archive that each one restores."""


def plan_pg_restore(server: Server, database: str, path: str, jobs: int, timeout_s: float) -> tuple[Command, ...]:
    """Return the commands that load the user's own database from an archive of pg_dump that lies on the host: one for
    each of RESTORE_PHASES."""
    program = f"{server.installation.client_directory}/pg_restore"
    return tuple(
        server.as_user(
            program,
            "--host", server.run_directory,
            "--port", str(server.port),
            "--username", SUPERUSER,
            "--dbname", database,
            "--jobs", str(jobs),
            "--section", section,
            "--no-owner", "--exit-on-error", path,
            timeout_s=timeout_s,
        )
        for section in RESTORE_PHASES.values()
    )  # fmt: skip


def require_pg_restore(server: Server) -> None:
    """PreflightError when the installation has no pg_restore."""
    directory = server.installation.client_directory
    if server.host.status(f"{directory}/pg_restore") is None:
        raise PreflightError(f"pg_restore is not among the programs in {directory}", hint="install postgresql-client")
