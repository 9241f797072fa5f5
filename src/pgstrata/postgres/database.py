"""What a trial asks of a running server beyond settings: space, WAL, checkpoints, cache, tablespaces, loading."""

from __future__ import annotations

from typing import Literal

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command
from pgstrata.postgres.cluster import SUPERUSER, Cluster

Prewarmed = Literal["pg_prewarm", "sequential read"]


def create_tablespaces(cluster: Cluster) -> None:
    """Makes the tablespaces of the layout."""
    for name, location in cluster.layout.tablespaces.items():
        cluster.execute("CREATE TABLESPACE :\"name\" LOCATION :'location';", name=name, location=location)


def database_bytes(cluster: Cluster, database: str) -> int:
    """Logical size of a database, all forks of all relations (pg_database_size)."""
    return int(cluster.value("SELECT pg_database_size(:'name') AS size", name=database))


def wal_position_bytes(cluster: Cluster) -> int:
    """The WAL insert position as a byte count; differences of it are WAL bytes written."""
    return int(cluster.value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS position"))


def checkpoint(cluster: Cluster, timeout_s: float = 1800.0) -> None:
    cluster.execute("CHECKPOINT;", timeout_s=timeout_s)


def vacuum(cluster: Cluster, database: str, *, freeze: bool, timeout_s: float = 7200.0) -> None:
    """VACUUM ANALYZE of a whole database, with FREEZE when asked."""
    cluster.execute(f"VACUUM ({'FREEZE, ' if freeze else ''}ANALYZE);", database=database, timeout_s=timeout_s)


def has_extension(cluster: Cluster, name: str) -> bool:
    """Whether `CREATE EXTENSION name` would work on this server."""
    return int(cluster.value("SELECT count(*) AS n FROM pg_available_extensions WHERE name = :'name'", name=name)) > 0


def prewarm(cluster: Cluster, database: str, timeout_s: float = 3600.0) -> Prewarmed:
    """Reads the user's tables and indexes into memory: with pg_prewarm where the server has it.

    Without it tables are read by sequential scans, which fill the cache of the operating system rather than
    shared_buffers (scans of large tables use a ring buffer), and indexes are left to the warm-up.
    """
    if has_extension(cluster, "pg_prewarm"):
        cluster.execute(
            "CREATE EXTENSION IF NOT EXISTS pg_prewarm; SELECT sum(pg_prewarm(c.oid)) FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'i', 'm', 't') AND n.nspname NOT LIKE 'pg\\_%'"
            " AND n.nspname <> 'information_schema' AND c.relpersistence <> 't';",
            database=database, timeout_s=timeout_s,
        )  # fmt: skip
        return "pg_prewarm"
    tables = cluster.sql(
        "SELECT format('%I.%I', schemaname, relname) AS name FROM pg_stat_user_tables ORDER BY 1", database
    )
    for table in tables:
        cluster.execute(f"SELECT count(*) FROM {table['name']};", database=database, timeout_s=timeout_s)
    return "sequential read"


def plan_sql_file(cluster: Cluster, database: str, path: str, timeout_s: float) -> Command:
    """Loads the user's own database from an SQL file that lies on the host."""
    return cluster.as_user(*cluster.psql(database), "--file", path, timeout_s=timeout_s)


def plan_pg_restore(cluster: Cluster, database: str, path: str, jobs: int, timeout_s: float) -> Command:
    """Loads the user's own database from an archive of pg_dump that lies on the host.

    Raises PreflightError when the installation has no pg_restore.
    """
    directory = cluster.installation.client_directory
    program = f"{directory}/pg_restore"
    if cluster.host.status(program) is None:
        raise PreflightError(f"pg_restore is not among the programs in {directory}", hint="install postgresql-client")
    return cluster.as_user(
        program,
        "--host", cluster.run_directory,
        "--port", str(cluster.port),
        "--username", SUPERUSER,
        "--dbname", database,
        "--jobs", str(jobs),
        "--no-owner", "--exit-on-error", path,
        timeout_s=timeout_s,
    )  # fmt: skip
