"""A record of which a part cannot be read, or that is empty, is no success: every verb that reads one says so."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pgstrata.cli.main import app
from pgstrata.errors import ExitCode

FIXTURE = Path(__file__).parents[2] / "fixtures" / "record" / "version-1-majors.zip"
VERBS = (
    ("status", "{}"),
    ("report", "{}"),
    ("report", "{}", "--format", "json"),
    ("export", "{}", "--out", "{}-tables"),
    ("bundle", "{}", "--out", "{}.zip"),
)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    for name in ("c", "c-whole"):
        with zipfile.ZipFile(FIXTURE) as archive:
            archive.extractall(tmp_path / name)
    return tmp_path / "c"


def run(words: tuple[str, ...], record: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [word.format(record) for word in words])
    return result.exit_code, result.output


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_damaged_trial_is_named_and_ends_with_a_code(words: tuple[str, ...], record: Path) -> None:
    assert run(words, record)[0] == ExitCode.DONE
    for made in (f"{record}.zip", f"{record}-tables"):
        shutil.rmtree(made, ignore_errors=True)
        Path(made).unlink(missing_ok=True)
    damaged = sorted((record / "trials").iterdir())[0]
    (damaged / "verdict.json").write_text("{")
    code, said = run(words, record)
    assert (code, damaged.name in said) == (ExitCode.TRIALS_FAILED, True), said


@pytest.mark.parametrize("words", VERBS[1:], ids=" ".join)
def test_an_empty_record_ends_with_a_code(words: tuple[str, ...], record: Path) -> None:
    shutil.rmtree(record / "trials")
    code, said = run(words, record)
    assert (code, "has no finished trial" in said) == (ExitCode.TRIALS_FAILED, True), said


@pytest.mark.parametrize("verb", ["compare", "history"])
def test_a_comparison_of_damaged_sessions_is_no_success(verb: str, record: Path) -> None:
    damaged = sorted((record / "trials").iterdir())[0]
    (damaged / "verdict.json").write_text("{")
    code, said = run((verb, "{}", "{}-whole"), record)
    assert code in (ExitCode.TRIALS_FAILED, ExitCode.REFUSED)
    assert f"{damaged.name} could not be read and counts for nothing" in said
