"""`clean` where journals are damaged: each is told and left, and keeps no other from being undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.host.local import LocalHost
from pgstrata.stack.journal import Cleaned, Journal, clean
from pgstrata.stack.undo import RemovePath


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(state_directory=str(tmp_path / "state"))


def left_behind(host: LocalHost, tmp_path: Path, trial_id: str) -> Path:
    """What a trial made that was killed."""
    folder = tmp_path / f"pgstrata-{trial_id}"
    journal = Journal.create(host, trial_id)
    journal.register(RemovePath(path=str(folder)))
    folder.mkdir()
    host.close()
    return folder


def test_a_damaged_journal_keeps_no_other_from_being_undone(host: LocalHost, tmp_path: Path) -> None:
    folder = left_behind(host, tmp_path, "t5")
    journals = tmp_path / "state" / "journal"
    (journals / "t1.jsonl").mkdir()
    (journals / "t2.jsonl").write_text("")
    (journals / "t3.jsonl").write_bytes(b"\xff\xfe\x00\n")
    (journals / "t4.jsonl").symlink_to("t4.jsonl")
    cleaned = clean(host)
    assert cleaned.failed
    assert not folder.exists()
    assert [line.split(":")[0] for line in cleaned.lines] == ["t1", "t2", "t3", "t4", "t5"]
    assert [": error: " in line for line in cleaned.lines] == [True, True, True, True, False]
    assert sorted(file.name for file in journals.iterdir()) == [f"t{i}.jsonl" for i in range(1, 5)]
    assert not (tmp_path / "state" / "locks").exists(), "their locks are free again"


def test_a_journal_whose_making_was_cut_short_is_removed(host: LocalHost, tmp_path: Path) -> None:
    journals = tmp_path / "state" / "journal"
    journals.mkdir(parents=True)
    (journals / "t1.jsonl.new").write_text('{"tri')
    assert clean(host) == Cleaned(("t1: nothing was left",))
    assert list(journals.iterdir()) == []


def test_a_journal_that_cannot_be_made_leaves_no_lock(host: LocalHost, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "journal").write_text("in the way")
    with pytest.raises(OSError, match="journal"):
        Journal.create(host, "t1")
    assert not (tmp_path / "state" / "locks").exists()
