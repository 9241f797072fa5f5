"""Settings: reading and writing postgresql.conf, comparing with what the server says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.errors import PreflightError
from pgstrata.postgres.settings import compare_settings, parse_conf, render_conf

VALUES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=30)


@given(st.dictionaries(st.from_regex(r"\A[a-z_]{1,12}\Z").filter(lambda n: not n.startswith("include")), VALUES))
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
        ("include 'other.conf'", "includes another file"),
        ("include_dir = 'conf.d'", "includes another file"),
        ("work_mem", "is not `name = value`"),
        ("work_mem = 'open", "is not `name = value`"),
        ("work_mem = 4MB 5MB", "is not `name = value`"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_line(line: str, why: str) -> None:
    with pytest.raises(PreflightError, match=f"line 2 {why}"):
        parse_conf(f"fsync = on\n{line}\n")


def test_a_value_over_several_lines_is_refused() -> None:
    with pytest.raises(PreflightError, match="spans lines"):
        render_conf({"archive_command": "a\nb"})


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


def test_a_setting_that_the_server_does_not_have() -> None:
    (compared,) = compare_settings({"my.option": "1"}, {})
    assert (compared.actual, compared.holds) == ("(not set)", False)
