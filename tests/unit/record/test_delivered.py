"""A trial that comes back from another machine is in the record whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pgstrata.errors import NotUnderstood, RecordError
from pgstrata.record.delivered import pack
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import block_trials
from pgstrata.trial.events import silent
from pgstrata_fake.runner import FakeRunner

CAMPAIGN = Campaign.model_validate(
    {"name": "c", "stacks": [{"name": "ext4", "data": {"fs": {"kind": "ext4"}}}], "workload": {"duration": 5}}
)
TRIAL, OTHER = (block_trials(CAMPAIGN, block, ("ext4",))[0] for block in (0, 1))


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    with CampaignDirectory.create_or_open(tmp_path / "far", CAMPAIGN) as far:
        FakeRunner(CAMPAIGN).run(TRIAL, far, silent)
    return pack(tmp_path / "far" / "trials" / TRIAL.id)


def adopt(place: Path, trial: Trial, archive: bytes) -> str:
    with CampaignDirectory.create_or_open(place / "near", CAMPAIGN) as near:
        return near.adopt(trial, archive).status


def test_what_comes_back_is_what_was_recorded(tmp_path: Path, archive: bytes) -> None:
    assert adopt(tmp_path, TRIAL, archive) == "ok"
    ours, theirs = tmp_path / "near" / "trials" / TRIAL.id, tmp_path / "far" / "trials" / TRIAL.id
    files = sorted(p.relative_to(theirs) for p in theirs.rglob("*") if p.is_file())
    assert sorted(p.relative_to(ours) for p in ours.rglob("*") if p.is_file()) == files
    assert all((ours / name).read_bytes() == (theirs / name).read_bytes() for name in files)


def test_what_came_back_reads_as_its_files_do(tmp_path: Path, archive: bytes) -> None:
    """The first time it is read from what came back, then from the campaign directory."""
    with CampaignDirectory.create_or_open(tmp_path / "near", CAMPAIGN) as near:
        near.adopt(TRIAL, archive)
        files = tmp_path / "near" / "trials" / TRIAL.id
        aside = files.rename(tmp_path / "aside")
        first = near.finished_trial(TRIAL.id)
        aside.rename(files)
        again = near.finished_trial(TRIAL.id)
        assert first == again
        assert first is not again
        assert [repr(c.table("progress")) for c in first.cells] == [repr(c.table("progress")) for c in again.cells]
        assert first.raw_names() == again.raw_names()


def without_the_space(folder: Path) -> bytes:
    (folder / "space.json").unlink()
    return pack(folder)


def without_a_verdict(folder: Path) -> bytes:
    (folder / "verdict.json").unlink()
    return pack(folder)


def with_a_torn_result(folder: Path) -> bytes:
    (result,) = folder.glob("cells/*/result.json")
    result.write_text(result.read_text()[:-20])
    return pack(folder)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (without_the_space, "space.json is missing"),
        (without_a_verdict, "verdict.json"),
        (lambda folder: pack(folder)[:-1], "bytes are there"),
        (lambda folder: pack(folder) + b"x", "bytes are there"),
        (lambda folder: pack(folder)[:50], "names of its files"),
        (lambda folder: b"nonsense", "names of its files"),
        (lambda folder: b'[["../outside", 1]]\nx', "no file of a trial"),
        (lambda folder: b'[["/etc/outside", 1]]\nx', "no file of a trial"),
        (lambda folder: b'[["a", -1]]\n', "no file of a trial"),
        (lambda folder: b'[["", 0]]\n', "no file of a trial"),
        (lambda folder: b'[["a/./b", 0]]\n', "no file of a trial"),
        (with_a_torn_result, "result.json is not JSON"),
    ],
)
def test_what_is_damaged_leaves_nothing(
    tmp_path: Path, archive: bytes, damage: Callable[[Path], bytes], said: str
) -> None:
    with pytest.raises(NotUnderstood, match=said):
        adopt(tmp_path, TRIAL, damage(tmp_path / "far" / "trials" / TRIAL.id))
    assert list((tmp_path / "near" / "trials").iterdir()) == []
    assert adopt(tmp_path, TRIAL, archive) == "ok"


def test_another_trial_is_refused(tmp_path: Path, archive: bytes) -> None:
    with pytest.raises(NotUnderstood, match=rf"{OTHER.id} is the record of another trial \({TRIAL.id}\)"):
        adopt(tmp_path, OTHER, archive)


def test_a_trial_that_was_asked_for_in_another_way_is_refused(tmp_path: Path, archive: bytes) -> None:
    with pytest.raises(NotUnderstood, match="in another way"):
        adopt(tmp_path, TRIAL.model_copy(update={"workload_seed": TRIAL.workload_seed + 1}), archive)


def test_a_full_disk_leaves_nothing_and_the_trial_can_come_again(
    tmp_path: Path, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with CampaignDirectory.create_or_open(tmp_path / "near", CAMPAIGN) as near, monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(RecordError, match="no space left") as refused:
            near.adopt(TRIAL, archive)
    assert "same command" in refused.value.hint
    assert list((tmp_path / "near" / "trials").iterdir()) == []
    assert adopt(tmp_path, TRIAL, archive) == "ok"
