"""Settings: reading and writing postgresql.conf, comparing with what the server says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.errors import PreflightError
from pgstrata.postgres.server import FIXED_SETTINGS
from pgstrata.postgres.settings import (
    SettingKind,
    compare_settings,
    parse_conf,
    refuse_settings,
    render_conf,
    take_over,
)
from pgstrata.spec.server_settings import OWN, TAKEN

VALUES = st.text(st.characters().filter(str.isprintable), max_size=30)


@given(st.dictionaries(st.from_regex(r"\A[a-z_]{1,12}\Z"), VALUES))
def test_what_is_written_is_read_back(settings: dict[str, str]) -> None:
    assert parse_conf(render_conf(settings)) == settings


def test_the_dialects_of_a_conf_file() -> None:
    text = """
# a comment
Work_Mem = 4MB
max_wal_size 2GB          # without an equal sign
search_path = '"$user", public'	# quoted
archive_command = 'cp "%p" ''/x/%f'''
fsync=off
fsync=on
pg_stat_statements.max = 100
random_page_cost=1.1#close
"""
    assert parse_conf(text) == {
        "work_mem": "4MB",
        "max_wal_size": "2GB",
        "search_path": '"$user", public',
        "archive_command": "cp \"%p\" '/x/%f'",
        "fsync": "on",
        "pg_stat_statements.max": "100",
        "random_page_cost": "1.1",
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("work_mem", "is not `name = value`"),
        ("work_mem = 'open", "is not `name = value`"),
        ("work_mem = 4MB 5MB", "is not `name = value`"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_line(line: str, why: str) -> None:
    with pytest.raises(PreflightError, match=f"line 2 {why}"):
        parse_conf(f"fsync = on\n{line}\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("search_path", "a\nlisten_addresses = '*'"),
        ("search_path", "a\rb"),
        ("search_path", "a\x85b"),
        ("search_path", "a\u2028b"),
        ("search_path\nlisten_addresses", "*"),
        ("search_path = 'a' #", "b"),
        ("-c", "b"),
        ("", "b"),
    ],
)
def test_a_setting_that_would_be_another_line_of_the_file_is_refused(name: str, value: str) -> None:
    with pytest.raises(PreflightError, match=r"no name of a setting|control character"):
        render_conf({name: value})
    with pytest.raises(PreflightError, match=r"no name of a setting|control character"):
        refuse_settings({name: value})


def test_values_are_read_as_the_server_reads_them() -> None:
    text = r"""search_path = 'it''s \'a\' \\ \101 \q'""" + "\n" + r"work_mem = '1\tMB'" + "\n"
    assert parse_conf(text) == {"search_path": r"it's 'a' \ A q", "work_mem": "1\tMB"}


PRODUCTION = """
shared_buffers = 8GB
Work_Mem = 64MB
fsync = on
archive_mode = on
archive_command = 'scp %p backup:/wal/%f'
restore_command = 'scp backup:/wal/%f %p'
recovery_target_time = '2026-01-01'
primary_conninfo = 'host=db2 user=replicator'
synchronous_standby_names = '*'
listen_addresses = '*'
port = 5433
ssl = on
ssl_passphrase_command = 'cat /etc/pass'
shared_preload_libraries = 'pg_stat_statements, timescaledb,auto_explain'
pg_stat_statements.max = 5000
timescaledb.max_background_workers = 8
session_preload_libraries = 'x'
local_preload_libraries = 'x'
dynamic_library_path = '/tmp'
jit_provider = 'x'
data_directory = '/var/lib/postgresql'
hba_file = '/etc/pg_hba.conf'
external_pid_file = '/run/x.pid'
unix_socket_directories = '/tmp'
log_directory = '/var/log'
log_min_duration_statement = 250
krb_server_keyfile = 'x'
lc_time = 'de_DE.UTF-8'
event_triggers = off
include_dir = 'conf.d'
include 'other.conf'
search_path = 'a\\nb'
made_up = 1
"""


def test_of_a_production_servers_file_only_what_is_listed_is_taken_over() -> None:
    given = take_over(PRODUCTION)
    assert given.settings == {
        "shared_buffers": "8GB",
        "work_mem": "64MB",
        "fsync": "on",
        "shared_preload_libraries": "pg_stat_statements, auto_explain",
        "pg_stat_statements.max": "5000",
        "log_min_duration_statement": "250",
    }
    named = {line.split()[0].lower() for line in PRODUCTION.splitlines() if line}
    assert {name.split()[0] for name in given.left_out} == named - given.settings.keys() | {"shared_preload_libraries"}
    assert given.left_out["archive_command"] == "WAL is not archived"
    assert given.left_out["restore_command"] == "it names a command for the server to run"
    assert given.left_out["shared_preload_libraries = timescaledb"] == "it loads code into the server"
    assert given.left_out["include_dir"] == "it reads another file, which is not on record"
    assert all(given.left_out.values())


@pytest.mark.parametrize("name", sorted(OWN))
def test_what_pgstrata_decides_is_on_no_list(name: str) -> None:
    assert name not in TAKEN
    with pytest.raises(PreflightError, match=f"setting '{name}' is refused: pgstrata sets it itself"):
        refuse_settings({name: "x"})


def test_own_settings_that_reach_out_are_refused() -> None:
    for name in ("archive_command", "Archive_Command", "ssl", "session_preload_libraries", "log_directory"):
        with pytest.raises(PreflightError, match="is refused"):
            refuse_settings({name: "x"})
    with pytest.raises(PreflightError, match="may not load 'x'"):
        refuse_settings({"shared_preload_libraries": "auto_explain,x"})
    refuse_settings({"shared_preload_libraries": "auto_explain", "my.own": "1", "TimeZone": "UTC"})


def test_the_fixed_settings_are_told_as_pgstratas_own() -> None:
    assert FIXED_SETTINGS.keys() <= OWN


@pytest.mark.parametrize(
    ("name", "expected", "actual", "holds"),
    [
        ("shared_buffers", "131072", "131072", True),
        ("shared_buffers", "131072", "16384", False),
        ("wal_buffers", "-1", "512", True),
        ("wal_buffers", "512", "2048", False),
        ("unix_socket_permissions", "448", "0700", True),
        ("unix_socket_permissions", "448", "0777", False),
        ("timezone", "utc", "UTC", True),
        ("search_path", "a", "A", False),
        ("fsync", "on", "off", False),
    ],
)
def test_comparison(name: str, expected: str, actual: str, holds: bool) -> None:
    (compared,) = compare_settings({name: expected}, {name: actual})
    assert (compared.what, compared.expected, compared.actual, compared.holds) == (name, expected, actual, holds)


@pytest.mark.parametrize(
    ("vartype", "unit", "asked", "actual", "holds"),
    [
        ("integer", "ms", "5s", "5000", True),
        ("integer", "ms", "1.5 s", "1500", True),
        ("integer", "ms", "5s", "5", False),
        ("integer", "ms", "5000", "5000", True),
        ("integer", "ms", "-1", "-1", True),
        ("integer", "s", "2min", "120", True),
        ("integer", "min", "1d", "1440", True),
        ("integer", "8kB", "1GB", "131072", True),
        ("integer", "kB", "1MB", "1024", True),
        ("integer", "MB", "1GB", "1024", True),
        ("integer", "ms", "1MB", "1048576", False),
        ("integer", None, "5s", "5", False),
        ("real", None, "0.10", "0.1", True),
        ("real", None, "0.10", "0.2", False),
        ("bool", None, "true", "on", True),
        ("bool", None, "1", "on", True),
        ("bool", None, "NO", "off", True),
        ("bool", None, "true", "off", False),
        ("bool", None, "o", "on", False),
        ("enum", None, "JSON", "json", True),
        ("enum", None, "JSON", "text", False),
        ("string", None, "A", "a", False),
    ],
)
def test_settings_of_extensions_are_compared_in_the_unit_of_the_server(
    vartype: str, unit: str | None, asked: str, actual: str, holds: bool
) -> None:
    kinds = {"my.option": SettingKind(vartype, unit)}
    (compared,) = compare_settings({"my.Option": asked}, {"my.option": actual}, kinds)
    assert (compared.expected, compared.holds) == (asked, holds)


def test_a_setting_that_the_server_does_not_have() -> None:
    (compared,) = compare_settings({"my.option": "1"}, {})
    assert (compared.actual, compared.holds) == ("(not set)", False)
