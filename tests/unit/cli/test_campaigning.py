"""Ends of a campaign that no block sees."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from pgstrata.cli import campaigning
from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.stack import Ext4, Stack, Volume, Xfs

CAMPAIGN = Campaign(name="x", stacks=(Stack(name="a", data=Volume(fs=Ext4())), Stack(name="b", data=Volume(fs=Xfs()))))


def test_interrupted_while_the_host_is_looked_over_ends_with_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def opening(*_: object) -> Iterator[None]:
        signal.raise_signal(signal.SIGINT)
        yield

    monkeypatch.setattr(campaigning, "_runner", opening)
    with pytest.raises(typer.Exit) as ended:
        campaigning.run_to_report(CAMPAIGN, tmp_path / "out", "run", campaigning.Shown(quiet=True))
    assert ended.value.exit_code == 130
    assert "no trial is finished yet" in capsys.readouterr().err


def test_a_condition_on_a_stack_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    shown = campaigning.Shown(quiet=True, fail_on=["tps(c) < 1"])
    with pytest.raises(UsageError, match="no stack 'c'"):
        campaigning.run_to_report(CAMPAIGN, tmp_path / "out", "run", shown)
    assert not (tmp_path / "out").exists()
