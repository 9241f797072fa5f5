"""The PostgreSQL probe: psql repeats one prepared statement a second, which gives one JSON line.

What each major calls its statistics is decided here and nowhere else; a line has the same keys for all of them.
"""

from __future__ import annotations

FIRST_MAJOR_WITH_PG_STAT_WAL = 14
FIRST_MAJOR_WITH_PG_STAT_IO = 16
FIRST_MAJOR_WITH_PG_STAT_CHECKPOINTER = 17
FIRST_MAJOR_WITH_WAL_IN_PG_STAT_IO = 18

COUNTERS = (
    "wal_bytes", "xact_commit", "xact_rollback", "blks_hit", "blks_read",
    "buffers_backend", "buffers_checkpoint", "buffers_clean", "checkpoints_timed", "checkpoints_requested",
    "io_reads", "io_writes", "io_extends", "io_fsyncs", "wal_writes", "wal_syncs",
)  # fmt: skip
"""Keys of a line that only grow; null where the major does not count it."""

RUNNING = ("CPU", "Running")
"""Type and name under which sessions that wait for nothing are counted."""

APPLICATION_NAME = "pgstrata probe"
FIRST_WITHIN_S = 300.0
"""Within which there is a first sample, on whatever medium."""


def render_probe_script(major: int, interval_s: float = 1.0, *, standbys: bool = False) -> str:
    """The script for psql (-XAtq): prepares the statement once, so that repeating it needs no planning. The first
    sample reads the catalogs, which may lie on a slow medium and in no cache."""
    return (
        f"SET application_name = '{APPLICATION_NAME}';\n"
        "SET jit = off;\n"
        f"SET statement_timeout = '{FIRST_WITHIN_S:g}s';\n"
        f"PREPARE sample AS {render_sample_query(major, standbys=standbys)};\n"
        "EXECUTE sample;\n"
        "SET statement_timeout = '10s';\n"
        f"EXECUTE sample \\watch {interval_s:g}\n"
    )


def render_sample_query(major: int, *, standbys: bool = False) -> str:
    """One row, one column: a JSON object with `time` (Unix, seconds), the COUNTERS, `waits` and, where they are asked
    for, `standbys`.

    The database statistics are those of the database that the probe is connected to.
    """
    bgwriter, checkpointer, io = _bgwriter(major), _checkpointer(major), _io(major)
    following = f", 'standbys', ({_STANDBYS})" if standbys else ""
    return (
        "SELECT json_build_object("
        "'time', round(extract(epoch FROM clock_timestamp())::numeric, 6),"
        " 'wal_bytes', pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'),"
        " 'xact_commit', d.xact_commit, 'xact_rollback', d.xact_rollback,"
        " 'blks_hit', d.blks_hit, 'blks_read', d.blks_read,"
        f" {bgwriter}, {checkpointer},"
        " 'io_reads', io.reads, 'io_writes', io.writes, 'io_extends', io.extends, 'io_fsyncs', io.fsyncs,"
        " 'wal_writes', wal.writes, 'wal_syncs', wal.syncs,"
        f" 'waits', w.waits{following})"
        f" FROM pg_stat_database d, pg_stat_bgwriter b{_checkpointer_view(major)}, {io} io,"
        f" {_wal(major)} wal, {_waits()} w"
        " WHERE d.datname = current_database()"
    )


_STANDBYS = (
    "SELECT coalesce(json_agg(json_build_object('name', application_name,"
    " 'write_lag_ms', 1000 * extract(epoch FROM write_lag), 'flush_lag_ms', 1000 * extract(epoch FROM flush_lag),"
    " 'replay_lag_ms', 1000 * extract(epoch FROM replay_lag),"
    " 'behind_bytes', pg_wal_lsn_diff(pg_current_wal_insert_lsn(), replay_lsn))), '[]')"
    " FROM pg_stat_replication WHERE application_name LIKE 'standby%'"
)
"""A standby's lags are null while it has nothing new to confirm."""


def _bgwriter(major: int) -> str:
    if major < FIRST_MAJOR_WITH_PG_STAT_CHECKPOINTER:
        return "'buffers_clean', b.buffers_clean, 'buffers_backend', b.buffers_backend"
    # 17 dropped buffers_backend; pg_stat_io counts the same writes and extensions.
    return "'buffers_clean', b.buffers_clean, 'buffers_backend', io.backend_writes"


def _checkpointer(major: int) -> str:
    if major < FIRST_MAJOR_WITH_PG_STAT_CHECKPOINTER:
        return (
            "'buffers_checkpoint', b.buffers_checkpoint,"
            " 'checkpoints_timed', b.checkpoints_timed, 'checkpoints_requested', b.checkpoints_req"
        )
    return (
        "'buffers_checkpoint', c.buffers_written,"
        " 'checkpoints_timed', c.num_timed, 'checkpoints_requested', c.num_requested"
    )


def _checkpointer_view(major: int) -> str:
    return ", pg_stat_checkpointer c" if major >= FIRST_MAJOR_WITH_PG_STAT_CHECKPOINTER else ""


def _io(major: int) -> str:
    """Operations on relations; since 18 the view also counts WAL, which is left out to compare like with like."""
    if major < FIRST_MAJOR_WITH_PG_STAT_IO:
        names = ", ".join(f"NULL::bigint AS {n}" for n in ("reads", "writes", "extends", "fsyncs", "backend_writes"))
        return f"(SELECT {names})"
    sums = ", ".join(f"sum({name}) AS {name}" for name in ("reads", "writes", "extends", "fsyncs"))
    backends = "backend_type NOT IN ('checkpointer', 'background writer')"
    return (
        f"(SELECT {sums}, sum(coalesce(writes, 0) + coalesce(extends, 0)) FILTER (WHERE {backends}) AS backend_writes"
        " FROM pg_stat_io WHERE object = 'relation')"
    )


def _wal(major: int) -> str:
    """Return the SQL for writes and syncs of WAL, by whomever; 18 moved the counters of pg_stat_wal to pg_stat_io."""
    if major < FIRST_MAJOR_WITH_PG_STAT_WAL:
        return "(SELECT NULL::bigint AS writes, NULL::bigint AS syncs)"
    if major < FIRST_MAJOR_WITH_WAL_IN_PG_STAT_IO:
        return "(SELECT wal_write AS writes, wal_sync AS syncs FROM pg_stat_wal)"
    return "(SELECT sum(writes) AS writes, sum(fsyncs) AS syncs FROM pg_stat_io WHERE object = 'wal')"


def _waits() -> str:
    """Client sessions in a statement, by what they wait for; the probe itself does not count."""
    kind, name = RUNNING
    return (
        "(SELECT coalesce(json_agg(json_build_array(kind, name, sessions)), '[]') AS waits FROM ("
        f"SELECT coalesce(wait_event_type, '{kind}') AS kind, coalesce(wait_event, '{name}') AS name,"
        " count(*) AS sessions FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid()"
        " GROUP BY 1, 2) s)"
    )
