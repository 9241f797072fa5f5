"""Reads on standbys right after a commit: which are stale, and for how long."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pgstrata.probe.stale_reader import Session, main, read_after

PSQL = """\
import sys
late = "late" in sys.argv
mark = asked = 0
for line in sys.stdin:
    if line.startswith("UPDATE"):
        mark += 1
        print(mark, flush=True)
    else:
        asked += 1
        print(0 if late and asked == 1 else 10, flush=True)
"""
GONE = "import sys; sys.stdin.readline()"


@pytest.fixture
def psql(tmp_path: Path) -> Path:
    program = tmp_path / "psql"
    program.write_text(f"#!{sys.executable} -IS\n{PSQL}")
    program.chmod(0o755)
    return program


def arguments(psql: Path, standby: str) -> list[str]:
    words = {
        "psql": psql, "port": 1, "user": "u", "database": "d", "table": "t", "primary": "p", "seconds": 0,
        "patience": 100, "standby": f"standby1={standby}",
    }  # fmt: skip
    return [f"--{name}={value}" for name, value in words.items()]


@pytest.mark.parametrize(("standby", "stale"), [("fresh", False), ("late", True)])
def test_a_read_without_what_was_acknowledged_is_stale(
    psql: Path, standby: str, stale: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(psql, standby)) == 0
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (told["standby"], told["stale"], told["ms"] > 0) == ("standby1", stale, stale)


def test_one_that_never_shows_it_is_given_up(psql: Path) -> None:
    primary, standby = Session([str(psql)]), Session([str(psql), "late"])
    try:
        assert read_after(primary, standby, "t", 0.0)[0] is True
    finally:
        primary.close()
        standby.close()


def test_a_session_that_ends_is_told(psql: Path, capsys: pytest.CaptureFixture[str]) -> None:
    psql.write_text(f"#!{sys.executable} -IS\n{GONE}")
    assert main(arguments(psql, "fresh")) == 1
    assert "psql ended with exit code 0" in capsys.readouterr().err
