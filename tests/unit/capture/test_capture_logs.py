"""The verb on recorded logs: its summary, its refusals, and a host without strata-load."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from pgstrata.capture.logs import plan_capture, run_capture
from pgstrata.errors import PreflightError
from pgstrata.host.delivery import LOAD_PROGRAM, OWN
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command
from typed import typed

LOGS = Path(__file__).parents[2] / "fixtures" / "capture"
pytestmark = pytest.mark.skipif(not OWN.with_name(LOAD_PROGRAM).exists(), reason="strata-load is not built")


def test_a_log_becomes_a_load(tmp_path: Path) -> None:
    done = typed("capture", f"{LOGS}/18-duration.csv", "--out", "my.load", cwd=tmp_path)
    assert done.returncode == 0, done
    assert "15 statements of the database postgres in 4 sessions" in done.stdout
    assert "left out: 2 failed when it was logged" in done.stdout
    assert "holds the literals" in done.stderr
    lines = (tmp_path / "my.load").read_text().splitlines()
    assert json.loads(lines[-1])["statements"] == 15


def test_the_summary_is_json(tmp_path: Path) -> None:
    log = LOGS / "15-rds.stderr.log"
    done = typed("capture", str(log), *["--out", "my.load", "--literals", "all", "--json"], cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["schema"], found["statements"], found["literals"]) == ("pgstrata.capture/1", 15, "all")
    assert found["whole_seconds"] is True
    assert found["bytes"] == log.stat().st_size


@pytest.mark.parametrize(
    ("text", "options", "message", "hint"),
    [
        ("hello\n", "", "neither csvlog nor jsonlog", "SHOW log_line_prefix"),
        ("2026-11-27 10:00:00.000 UTC [7] LOG:  checkpoint\n", "", "no statement", "log_min_duration_statement = 0"),
        ("x\n", "--prefix '%t '", "has neither session (%c) nor process (%p)", ""),
        ("x\n", "--literals none", "'none' is not one of keep, text, all", "--literals text"),
        ("x\n", "--from-statements statements.csv", "takes logs or --from-statements", "--out my.load"),
    ],
)
def test_other_logs_are_refused_in_words(tmp_path: Path, text: str, options: str, message: str, hint: str) -> None:
    log = tmp_path / "some.log"
    log.write_text(text)
    done = typed("capture", str(log), "--out", "my.load", *shlex.split(options), cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert message in done.stderr
    assert hint in done.stderr
    assert not list(tmp_path.glob("my.load*"))


def test_a_host_without_the_program_is_told_how_to_get_it(tmp_path: Path) -> None:
    call = plan_capture([tmp_path / "log"], tmp_path / "out", prefix=None, database=None, literals="keep")
    elsewhere = Command(("strata-load-that-is-nowhere", *call.argv[1:]), env=call.env)
    with pytest.raises(PreflightError, match="not installed") as refused:
        run_capture(LocalHost(), elsewhere)
    assert "make setup" in refused.value.hint
