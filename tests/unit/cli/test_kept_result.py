"""The result of a finished campaign is printed again only while nothing that it follows from has changed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import Findings
from pgstrata.cli import campaign_run
from pgstrata.cli.kept_result import KEPT
from pgstrata.cli.main import app
from pgstrata.errors import ExitCode
from pgstrata.record.reader import CampaignData
from pgstrata.trial.fake import FAKE_MODE
from pgstrata.trial.undo_errors import forget_undo_errors, note_undo_errors

CAMPAIGN = """\
name: kept
stacks: [ext4, xfs]
workload: {scale: 1, clients: 2, duration: 2}
runs: {blocks: 2}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FAKE_MODE, "1")
    (tmp_path / "c.yaml").write_text(CAMPAIGN)
    return tmp_path


def run(place: Path, *more: str) -> tuple[int, str, str]:
    """Exit code, what was printed on stdout, and the notices."""
    done = CliRunner().invoke(app, ["run", str(place / "c.yaml"), "--out", str(place / "out"), "--quiet", *more])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def finished(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str, int]]:
    """Runs the command on a finished campaign; also returns how often it was judged for that."""
    assert run(place)[0] == ExitCode.DONE
    judged: list[CampaignData] = []

    def noted(data: CampaignData) -> Findings:
        judged.append(data)
        return judge(data)

    monkeypatch.setattr(campaign_run, "judge", noted)

    def again(*more: str) -> tuple[int, str, str, int]:
        judged.clear()
        code, text, notices = run(place, *more)
        return code, text, notices, len(judged)

    return again


def test_it_is_printed_again(place: Path, finished: Callable[..., tuple[int, str, str, int]]) -> None:
    (place / "out" / KEPT).unlink()
    before = finished()
    assert before[3] == 1
    page = (place / "out" / "report.html").read_bytes()
    code, text, notices, judged = finished()
    assert (code, text, judged) == (ExitCode.DONE, before[1], 0)
    assert "report: " in text
    assert "nothing has changed since its result" in notices
    assert (place / "out" / "report.html").read_bytes() == page


def lose_the_page(out: Path) -> None:
    (out / "report.html").unlink()


def change_a_figure(out: Path) -> None:
    (file,) = (out / "trials").glob("b000-*-ext4-*/cells/*/result.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tps": 1.0}))


def damage_what_is_kept(out: Path) -> None:
    (out / KEPT).write_text("{")


def keep_something_else(out: Path) -> None:
    value = json.loads((out / KEPT).read_text())
    (out / KEPT).write_text(json.dumps(value | {"text": 1}))


def come_from_elsewhere(out: Path) -> None:
    """Whoever made the copy could have written what is kept."""
    copy = out.with_name("copy")
    shutil.copytree(out, copy)
    shutil.rmtree(out)
    copy.rename(out)


def change_a_figure_in_secret(out: Path) -> None:
    (file,) = (out / "trials").glob("b000-*-ext4-*/cells/*/result.json")
    before, text = file.stat(), file.read_text()
    file.write_text(text.replace('"failed": 0', '"failed": 1'))
    assert file.read_text() != text
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = (
    *(lose_the_page, change_a_figure, change_a_figure_in_secret),
    *(damage_what_is_kept, keep_something_else, come_from_elsewhere),
)


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_judged_anew_after_a_change(
    change: Callable[[Path], None], place: Path, finished: Callable[..., tuple[int, str, str, int]]
) -> None:
    change(place / "out")
    code, text, notices, judged = finished()
    assert (code, judged) == (ExitCode.DONE, 1)
    assert "nothing has changed" not in notices
    assert (place / "out" / "report.html").exists()
    assert finished()[1:] == (text, finished()[2], 0), "and that result is kept"


def test_a_trial_that_is_gone_runs_again(place: Path, finished: Callable[..., tuple[int, str, str, int]]) -> None:
    gone = next((place / "out" / "trials").iterdir())
    shutil.rmtree(gone)
    assert finished()[3] == 1
    assert gone.exists()


@pytest.mark.parametrize(
    "more", [("--json",), ("--fail-on", "tps(xfs) < 0.01*tps(ext4)"), ("--blocks", "3")], ids=lambda words: words[0]
)
def test_another_question_is_judged(more: tuple[str, ...], finished: Callable[..., tuple[int, str, str, int]]) -> None:
    assert finished(*more)[3] == 1


def test_a_result_with_a_failure_is_not_kept(place: Path) -> None:
    """What could not be undone may be undone by the next command."""
    assert run(place)[0] == ExitCode.DONE
    (place / "out" / KEPT).unlink()
    note_undo_errors(place / "out", ["a mount is still there"])
    assert run(place)[0] == ExitCode.TRIALS_FAILED
    assert not (place / "out" / KEPT).exists()
    forget_undo_errors(place / "out")
    assert run(place)[0] == ExitCode.DONE
    assert (place / "out" / KEPT).exists()


def test_a_directory_by_another_name_is_judged(
    place: Path, finished: Callable[..., tuple[int, str, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result names it."""
    monkeypatch.chdir(place)
    done = CliRunner().invoke(app, ["run", "c.yaml", "--out", "out"])
    assert "nothing has changed" not in done.stderr
    assert "report: out/report.html" in done.stdout
