"""Real servers of several majors: made, set, attested, crashed, refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from servers import NO_SYNC, SMALL, ready

from awaiting import wait_until
from pgstrata.errors import PreflightError, TrialError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command, CommandFailed
from pgstrata.postgres.binaries import Installation, discover
from pgstrata.postgres.database import (
    database_bytes,
    plan_checkpoint,
    plan_create_tablespaces,
    plan_pg_restore,
    plan_sql_file,
    plan_vacuum,
    prewarm,
    wal_position_bytes,
)
from pgstrata.postgres.golden import is_intact, read_golden, restore_golden, save_golden
from pgstrata.postgres.server import Server, ServerDirectories, default_run_directory
from pgstrata.postgres.settings import check_settings, take_over
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.workload.pgbench import plan_init
from pgstrata.workload.pgbench_output import parse_init
from pgstrata.workload.target import Target


@pytest.fixture(scope="module")
def host() -> LocalHost:
    return LocalHost()


ONE_MAJOR = pytest.mark.parametrize("installation", [18], indirect=True)


def test_life_of_a_cluster(server: Server, host: LocalHost) -> None:
    ready(server, checkpoint_timeout="10min", max_wal_size="2GB", random_page_cost="1.10")
    attested = {a.what: a for a in server.attest_settings()}
    assert all(a.holds for a in attested.values())
    assert (attested["max_wal_size"].expected, attested["max_wal_size"].actual) == ("2048", "2048")
    assert attested["checkpoint_timeout"].actual == "600"

    status = host.status(server.run_directory)
    assert status is not None
    assert status.mode & 0o777 == 0o700
    assert server.value("SELECT inet_server_addr() AS address") is None
    pid = server.postmaster_pid()
    assert f"PGSTRATA_TRIAL={server.marker}" in Path(f"/proc/{pid}/environ").read_text().split("\0")
    assert Path(f"/proc/{pid}").stat().st_uid != 0

    assert server.sql("SELECT 1 AS a, 'it''s' AS b UNION ALL SELECT 2, NULL ORDER BY 1") == [
        {"a": 1, "b": "it's"},
        {"a": 2, "b": None},
    ]
    with pytest.raises(CommandFailed, match="no_such_table"):
        server.sql("SELECT * FROM no_such_table")

    server.stop()
    assert not server.running()
    server.stop()
    assert "database system is shut down" in server.read_log()


@ONE_MAJOR
@pytest.mark.parametrize("checksums", [True, False])
def test_checksums_are_as_asked(server: Server, checksums: bool) -> None:
    server.init(data_checksums=checksums, options=NO_SYNC)
    server.configure(SMALL, data_checksums=checksums)
    server.start()
    assert server.value("SELECT current_setting('data_checksums') AS value") == ("on" if checksums else "off")
    assert all(a.holds for a in server.attest_settings())
    server.configure(SMALL, data_checksums=not checksums)
    assert [a.what for a in server.attest_settings() if not a.holds] == ["data_checksums"]


@ONE_MAJOR
def test_wal_and_tablespace_live_where_the_layout_says(
    host: LocalHost, installation: Installation, folder: Path
) -> None:
    layout = ServerDirectories(f"{folder}/data", f"{folder}/wal", {"fast one": f"{folder}/ts"})
    server = Server(host, installation, run_user(host), layout)
    try:
        ready(server)
        for made in plan_create_tablespaces(server):
            host.run(made)
        server.execute("CREATE DATABASE bench;")
        server.execute('CREATE TABLE t TABLESPACE "fast one" AS SELECT generate_series(1, 10000) AS n;', "bench")
        assert (folder / "data/pg_wal").resolve() == folder / "wal"
        assert list((folder / "ts").rglob("*"))
        oids = {r["spcname"]: r["oid"] for r in server.sql("SELECT spcname, oid::int FROM pg_tablespace")}

        with pytest.raises(TrialError, match="not stopped cleanly"):
            save_golden(host, layout, f"{folder}/golden", {"fast one": oids["fast one"]}, server.user)
        server.stop()
        assert read_golden(host, f"{folder}/golden") is None
        save_golden(host, layout, f"{folder}/golden", {"fast one": oids["fast one"]}, server.user)
    finally:
        server.crash_stop()
        host.remove(server.run_directory)

    golden = read_golden(host, f"{folder}/golden")
    assert golden is not None
    assert is_intact(host, golden, server.user)
    for place in ("data", "wal", "ts"):
        host.remove(f"{folder}/{place}")
    elsewhere = ServerDirectories(f"{folder}/two/data", None, {"fast one": f"{folder}/two/ts"})
    copy = Server(host, installation, run_user(host), elsewhere)
    try:
        copy.make_directories()
        restore_golden(host, golden, elsewhere, copy.user)
        copy.configure(SMALL)
        copy.start()
        assert copy.value("SELECT count(*) AS n FROM t", "bench") == 10000
        location = copy.value("SELECT pg_tablespace_location(oid) AS l FROM pg_tablespace WHERE spcname = 'fast one'")
        assert location == f"{folder}/two/ts"
    finally:
        copy.crash_stop()
        host.remove(copy.run_directory)


@ONE_MAJOR
def test_a_golden_copy_that_has_changed_is_told_from_an_intact_one(server: Server, folder: Path) -> None:
    server.init(options=NO_SYNC)
    host, files = server.host, folder / "golden" / "files"
    golden = save_golden(host, server.layout, f"{folder}/golden", {}, server.user)
    assert read_golden(host, golden.directory) == golden
    relation = max((files / "data" / "base").rglob("1*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    whole = relation.read_bytes()
    for damaged in (whole[:-8192], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], b""):
        relation.write_bytes(damaged)
        assert not is_intact(host, golden, server.user)
    relation.write_bytes(whole)
    assert is_intact(host, golden, server.user)
    (files / "data" / "pg_notify").rename(files / "data" / "pg_notified")
    assert not is_intact(host, golden, server.user)
    (files / "data" / "pg_notified").rename(files / "data" / "pg_notify")
    for manifest in ("", "[]", '{"tablespaces": {}}', '{"tablespaces": 5, "digest": "x"}'):
        (folder / "golden" / "golden.json").write_text(manifest)
        unreadable = read_golden(host, golden.directory)
        assert unreadable is not None
        assert not is_intact(host, unreadable, server.user)


def test_no_more_spare_wal_than_min_wal_size_is_left_after_a_load(server: Server, folder: Path) -> None:
    ready(server, max_wal_size="1GB")
    fill = "CREATE TABLE t AS SELECT repeat('x', 1000) AS filler FROM generate_series(1, 200000);"
    server.execute(fill)
    server.execute("CHECKPOINT; TRUNCATE t; CHECKPOINT;")
    segments = [p for p in (folder / "data/pg_wal").iterdir() if p.is_file()]
    assert len(segments) > 8, "there is something to remove"
    server.stop_without_spare_wal()
    assert 3 <= len([p for p in (folder / "data/pg_wal").iterdir() if p.is_file()]) <= 6
    server.start()
    server.execute(fill.replace("CREATE TABLE t AS", "INSERT INTO t"))
    assert server.value("SELECT count(*) AS n FROM t") == 200000
    assert "PANIC" not in server.read_log()


def reload_settings(server: Server) -> None:
    """A session has the time of its postmaster's last reading of the settings."""
    asked = "SELECT pg_conf_load_time() AS t"
    before = server.value(asked)
    server.execute("SELECT pg_reload_conf()")
    wait_until(lambda: server.value(asked) != before, "the settings to be read again")


def test_sabotage_is_named(server: Server) -> None:
    ready(server, random_page_cost="2", work_mem="8MB")
    server.execute("ALTER SYSTEM SET random_page_cost = 3; ALTER SYSTEM SET max_connections = 30;")
    reload_settings(server)
    wrong = {a.what: a for a in server.attest_settings() if not a.holds}
    assert set(wrong) == {"random_page_cost", "max_connections"}
    assert (wrong["random_page_cost"].expected, wrong["random_page_cost"].actual) == ("2", "3")
    assert "restart" in wrong["max_connections"].actual
    server.restart()
    again = {a.what: a.actual for a in server.attest_settings() if not a.holds}
    assert again == {"random_page_cost": "3", "max_connections": "30"}


@ONE_MAJOR
def test_settings_from_elsewhere_are_named(server: Server) -> None:
    ready(server)
    server.execute("ALTER SYSTEM SET synchronous_commit = off; ALTER DATABASE postgres SET work_mem = '1GB';")
    reload_settings(server)
    with open(f"{server.layout.data_directory}/postgresql.conf", "a") as conf:
        conf.write("autovacuum = off\n")
    wrong = {a.what: a.actual for a in server.attest_settings() if not a.holds}
    assert wrong == {
        "synchronous_commit": "off",
        "work_mem": "1GB (of a role or database)",
        "postgresql.conf": "changed",
    }


def test_crash_and_recovery(server: Server) -> None:
    ready(server)
    server.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n;")
    server.crash_stop()
    assert not server.running()
    server.start()
    assert server.value("SELECT count(*) AS n FROM kept") == 1000
    assert "was not properly shut down; automatic recovery in progress" in server.read_log()


@ONE_MAJOR
def test_a_server_that_does_not_start_shows_its_log(server: Server, folder: Path) -> None:
    ready(server)
    server.stop()
    for control in (folder / "data/global").glob("pg_control"):
        control.write_bytes(b"\0" * 8192)
    with pytest.raises(
        TrialError, match=r"did not start on local; the end of its log:\n.*database files are incompatible"
    ) as e:
        server.start()
    assert "raw/postgresql*.log" in e.value.hint, "where the trial keeps it: the server's own folder is removed"


@ONE_MAJOR
def test_a_socket_in_use_is_said(server: Server, folder: Path) -> None:
    ready(server)
    second = Server(
        server.host,
        server.installation,
        server.user,
        ServerDirectories(f"{folder}/other"),
        run_directory=server.run_directory,
    )
    second.init(options=NO_SYNC)
    second.configure(SMALL)
    with pytest.raises(TrialError, match=f"in use by process {server.postmaster_pid()}"):
        second.start()
    assert server.value("SELECT 1 AS x") == 1


def test_settings_are_refused_before_start(server: Server) -> None:
    server.init(options=NO_SYNC)
    with pytest.raises(PreflightError, match="unknown setting 'shared_bufers'") as error:
        check_settings(server.host, server.installation, server.user, {"shared_bufers": "1GB"})
    assert error.value.hint == "did you mean shared_buffers?"
    with pytest.raises(PreflightError, match="refuses wal_level = 'loud'") as error:
        server.configure({"wal_level": "loud"})
    assert "minimal" in error.value.hint
    with pytest.raises(PreflightError, match="pgstrata sets it itself"):
        server.configure({"unix_socket_directories": "/tmp"})
    server.configure({"ignore_checksum_failure": "on"})  # a developer setting, which --describe-config hides


@pytest.mark.parametrize("installation", [15], indirect=True)  # with contrib
def test_settings_of_an_extension_hold_in_its_own_unit(server: Server) -> None:
    server.init(options=NO_SYNC)
    asked = {
        "auto_explain.log_min_duration": "5s",
        "auto_explain.log_analyze": "true",
        "auto_explain.log_format": "JSON",
        "auto_explain.sample_rate": "0.10",
    }
    server.configure(SMALL, {"shared_preload_libraries": "auto_explain", **asked})
    server.start()
    assert [s for s in server.attest_settings() if not s.holds] == []


@ONE_MAJOR
def test_a_whole_postgresql_conf(server: Server) -> None:
    server.init(options=NO_SYNC)
    conf = (
        "# mine\nwork_mem = 12MB   # more\nlisten_addresses = '*'\nlogging_collector = on\nfsync=off\n"
        "archive_mode = on\narchive_command = 'false'\ninclude_dir = 'conf.d'\n"
        "shared_preload_libraries = 'nowhere'\n"
    )
    given = take_over(conf)
    server.configure({"shared_buffers": "16MB"}, given.settings)
    server.start()
    assert all(a.holds for a in server.attest_settings())
    names = ("work_mem", "listen_addresses", "logging_collector", "archive_mode")
    rows = server.sql(f"SELECT name, setting FROM pg_settings WHERE name IN {names}")
    assert {row["name"]: row["setting"] for row in rows} == dict(zip(names, ("12288", "", "off", "off"), strict=True))
    assert set(given.settings) == {"work_mem", "fsync"}


def test_loading_space_and_wal(server: Server, host: LocalHost, folder: Path) -> None:
    ready(server)
    server.execute("CREATE DATABASE bench;")
    empty, before = database_bytes(server, "bench"), wal_position_bytes(server)
    target = Target(
        server.installation.client_directory, server.installation.client_major, server.run_directory,
        server.port, server.user, database="bench",
    )  # fmt: skip
    times = parse_init(host.run(plan_init(target, 1)).stderr)
    assert times.total_s > 0
    assert database_bytes(server, "bench") - empty > 12_000_000
    assert wal_position_bytes(server) > before
    host.run(plan_vacuum(server, "bench", freeze=True))
    frozen = "SELECT relallvisible = relpages AS frozen FROM pg_class WHERE relname = 'pgbench_accounts'"
    assert server.value(frozen, "bench") is True
    host.run(plan_checkpoint(server))
    there = server.value("SELECT count(*) > 0 AS there FROM pg_available_extensions WHERE name = 'pg_prewarm'")
    assert prewarm(server, "bench") == ("pg_prewarm" if there else "sequential read")

    dump = f"{folder}/bench.dump"
    Path(dump).touch(mode=0o666)
    Path(dump).chmod(0o666)
    tool = f"{server.installation.client_directory}/pg_dump"
    connection = ("-h", server.run_directory, "-p", str(server.port), "-U", "postgres")
    host.run(Command((tool, *connection, "-Fc", "-f", dump, "bench"), user=server.user, cwd="/"))
    server.execute("CREATE DATABASE again;")
    for phase in plan_pg_restore(server, "again", dump, 2, 60):
        host.run(phase)
    assert server.value(
        "SELECT count(*) AS n FROM pg_constraint WHERE conrelid = 'pgbench_accounts'::regclass", "again"
    )
    assert server.value("SELECT count(*) AS n FROM pgbench_accounts", "again") == 100000

    script = folder / "mine.sql"
    script.write_text("CREATE TABLE mine AS SELECT 42 AS n;\n")
    server.execute("CREATE DATABASE mine;")
    host.run(plan_sql_file(server, "mine", str(script), 60))
    assert server.value("SELECT n FROM mine", "mine") == 42
    script.write_text("SELECT 1;\nSELECT broken;\nSELECT 2;\n")
    with pytest.raises(CommandFailed, match="broken"):
        host.run(plan_sql_file(server, "mine", str(script), 60))


WIDE = """
CREATE TABLE wide (n int PRIMARY KEY, text text);
ALTER TABLE wide ALTER COLUMN text SET STORAGE EXTERNAL;
INSERT INTO wide SELECT n, repeat(md5(n::text), 200) FROM generate_series(1, 200) n;
CREATE FUNCTION explained(query text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ' || query INTO plan;
    RETURN plan;
END $$;
CHECKPOINT;
"""


def test_nothing_of_a_table_or_a_catalog_is_read_from_disk_after_it_was_prewarmed(server: Server) -> None:
    server.init(options=NO_SYNC)
    server.configure({**SMALL, "shared_buffers": "64MB"})
    server.start()
    if not server.value("SELECT count(*) > 0 AS there FROM pg_available_extensions WHERE name = 'pg_prewarm'"):
        assert prewarm(server, "postgres") == "sequential read"
        return
    server.execute(WIDE)
    server.stop()
    server.start()
    assert prewarm(server, "postgres") == "pg_prewarm"
    for query in ("SELECT sum(length(text)) FROM wide", "SELECT count(prosrc) FROM pg_proc", "TABLE pg_statistic"):
        plan = server.value("SELECT explained(:'explain') AS plan", explain=query)[0]["Plan"]
        assert (plan["Shared Read Blocks"], plan["Shared Hit Blocks"] > 0) == (0, True)


def test_capabilities_are_those_of_the_programs(installation: Installation) -> None:
    assert installation.version.startswith(str(installation.major))
    assert installation.block_size_bytes == 8192
    assert "plpgsql" in installation.contrib
    assert bool(installation.io_methods) == (installation.major >= 18)


def test_a_long_socket_path_is_refused(host: LocalHost, found: tuple[Installation, ...]) -> None:
    with pytest.raises(PreflightError, match="longer than 107 bytes"):
        Server(host, found[0], "nobody", ServerDirectories("/x"), run_directory=f"/tmp/{'x' * 100}")
    assert len(default_run_directory("/" + "x" * 500)) < 40


def test_a_tree_that_the_server_user_cannot_read_is_copied(
    host: LocalHost, found: tuple[Installation, ...], tmp_path: Path
) -> None:
    original = Path(next(i for i in found if i.source == "embedded").bin_directory).parent
    closed = tmp_path / "closed"  # pytest's folders are closed to other users
    closed.mkdir()
    for part in (original.parent.name, f"{original.parent.name}.libs"):
        host.run(Command(("cp", "--recursive", str(original.parents[1] / part), str(closed))))
    tree = closed / original.parent.name / original.name
    (only,) = [i for i in discover(host, [str(tree)]) if i.bin_directory == f"{tree}/bin"]
    user = run_user(host)
    readable = readable_installation(host, only, user)
    copy = Path(readable.bin_directory).parents[2]
    try:
        assert copy.name.startswith("copy-")
        assert host.run(Command((readable.program("initdb"), "--version"), user=user, cwd="/")).stdout
        assert readable_installation(host, only, user) == readable
        assert readable.bin_directory not in {i.bin_directory for i in discover(host)}
    finally:
        host.remove(str(copy))


@ONE_MAJOR
def test_somebody_elses_run_directory_is_refused(server: Server) -> None:
    squatted = Path(server.run_directory)
    squatted.mkdir(mode=0o755)
    squatted.chmod(0o777)
    try:
        with pytest.raises(PreflightError, match="is not a private folder of user pgstrata"):
            server.make_directories()
    finally:
        squatted.rmdir()


@ONE_MAJOR
def test_a_stale_pid_file_is_no_running_server(server: Server) -> None:
    ready(server)
    server.stop()
    assert server.postmaster_pid() is None
    stale = Path(f"{server.layout.data_directory}/postmaster.pid")
    stale.write_text("1\n")
    shutil.chown(stale, server.user)
    assert server.postmaster_pid() is None
