"""Ends of a campaign that no block sees."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from pgstrata.cli import campaign_run
from pgstrata.cli.campaign_run import parse_gate
from pgstrata.cli.kept_result import KEPT
from pgstrata.cli.verbs.status import status
from pgstrata.errors import PreflightError, UsageError
from pgstrata.spec.campaign import Campaign, Runs
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.trial.fake import FAKE_MODE
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.undo_errors import forget_undo_errors, note_undo_errors, undo_errors
from pgstrata_fake.runner import FakeRunner

CAMPAIGN = Campaign(name="x", stacks=(Stack(name="a", data=Volume(fs=Ext4())), Stack(name="b", data=Volume(fs=Xfs()))))


def test_interrupted_while_the_host_is_looked_over_ends_with_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def opening(*given: object) -> Iterator[None]:
        interruption = given[-1]
        assert isinstance(interruption, Interruption)
        with interruption.waiting():  # as for the first command on the host
            signal.raise_signal(signal.SIGINT)
        yield

    monkeypatch.setattr(campaign_run, "_runners", opening)
    with pytest.raises(typer.Exit) as ended:
        campaign_run.run_to_report(CAMPAIGN, tmp_path / "out", "run", campaign_run.Shown(quiet=True))
    assert ended.value.exit_code == 130
    assert "no trial is finished yet" in capsys.readouterr().err


def test_what_is_installed_makes_no_figures_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE_MODE, "1")
    monkeypatch.setitem(sys.modules, "pgstrata_fake.runner", None)
    with pytest.raises(UsageError, match="only a checkout of pgstrata has made-up trials"):
        campaign_run.run_to_report(CAMPAIGN, tmp_path / "out", "run", campaign_run.Shown(quiet=True))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def test_what_preflight_refuses_leaves_no_directory_and_touches_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def refusing(*_: object) -> Iterator[None]:
        raise PreflightError("/dev/disk/by-id/CHANGE-ME-1 leads to no block device on local")
        yield

    monkeypatch.setenv(FAKE_MODE, "1")
    fixed = CAMPAIGN.model_copy(update={"runs": Runs(blocks=1)})
    campaign_run.run_to_report(fixed, tmp_path / "there", "run", campaign_run.Shown(quiet=True), source_text="a: 1")
    (tmp_path / "empty").mkdir()
    before = files_of(tmp_path)
    monkeypatch.setattr(campaign_run, "_runners", refusing)
    for out in ("new/below", "empty", "there"):
        asked = fixed.model_copy(update={"runs": Runs(blocks=2)}) if out == "there" else fixed
        with pytest.raises(PreflightError, match="CHANGE-ME"):
            campaign_run.run_to_report(asked, tmp_path / out, "run", campaign_run.Shown(quiet=True), source_text="a: 1")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "there"]
    assert list((tmp_path / "empty").iterdir()) == []
    after = files_of(tmp_path)
    assert {name for name in before if after.get(name) != before[name]} == {"there/campaign.json"}, "more blocks asked"


def test_a_finished_campaign_needs_no_host_to_make_its_report_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def refusing(*_: object) -> Iterator[None]:
        raise PreflightError("the disks are gone")
        yield

    def run(blocks: int) -> None:
        asked = CAMPAIGN.model_copy(update={"runs": Runs(blocks=blocks)})
        campaign_run.run_to_report(asked, tmp_path / "out", "run", campaign_run.Shown(quiet=True))

    monkeypatch.setenv(FAKE_MODE, "1")
    run(1)
    (tmp_path / "out" / "report.html").unlink()
    before = files_of(tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(campaign_run, "_runners", refusing)
    run(1)
    said = capsys.readouterr()
    assert "nothing is left to run" in said.err
    assert "ended: blocks done: 1, as planned" in said.out
    after = files_of(tmp_path)
    assert after.keys() - before.keys() == {"out/report.html"}
    assert all(after[name] == before[name] for name in before if name != f"out/{KEPT}")
    with pytest.raises(PreflightError, match="the disks are gone"):
        run(2)


def test_a_condition_on_a_stack_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    shown = campaign_run.Shown(quiet=True, gate=parse_gate(["tps(c) < 1"], False))
    with pytest.raises(UsageError, match="no stack 'c'"):
        campaign_run.run_to_report(CAMPAIGN, tmp_path / "out", "run", shown)
    assert not (tmp_path / "out").exists()


def gate_on_one_block(out: Path, *, fail_undecided: bool) -> int:
    fixed = CAMPAIGN.model_copy(update={"runs": Runs(blocks=1)})
    gate = parse_gate(["tps(a) < 0.5*tps(b)"], fail_undecided)
    try:
        campaign_run.run_to_report(fixed, out, "run", campaign_run.Shown(quiet=True, gate=gate))
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def test_an_undecided_condition_fails_a_gate_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FAKE_MODE, "1")
    assert gate_on_one_block(tmp_path / "a", fail_undecided=False) == 0
    said = capsys.readouterr().err
    assert "no condition can be decided: 1 block of 2 runs: no bounds" in said
    assert "tps(a) < 0.5*tps(b): is undecided" in said
    assert gate_on_one_block(tmp_path / "b", fail_undecided=True) == 5
    with pytest.raises(UsageError, match="there is none"):
        parse_gate([], True)


@pytest.mark.parametrize("quiet", [True, False])
def test_what_could_not_be_undone_ends_with_4_and_is_shown_by_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    fixed = CAMPAIGN.model_copy(update={"runs": Runs(blocks=1)})
    out = tmp_path / "out"

    @contextmanager
    def leaving(*_: object) -> Iterator[tuple[FakeRunner, tuple[str, ...]]]:
        yield FakeRunner(fixed), ("a", "b")
        note_undo_errors(out, ["unmount: target is\nbusy"])

    monkeypatch.setattr(campaign_run, "_runners", leaving)
    with pytest.raises(typer.Exit) as ended:
        campaign_run.run_to_report(fixed, out, "run", campaign_run.Shown(quiet=quiet))
    assert ended.value.exit_code == 4
    assert "could not be undone: unmount: target is busy; run `pgstrata clean`" in capsys.readouterr().err
    status(out)
    shown = capsys.readouterr().out
    assert "could not be undone when it was last run: unmount: target is busy\nHINT: pgstrata clean" in shown
    forget_undo_errors(out)
    assert undo_errors(out) == ()
    status(out)
    assert "could not be undone" not in capsys.readouterr().out
