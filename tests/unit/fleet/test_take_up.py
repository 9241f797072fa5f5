"""What sessions tell besides their results: errors of undoing are those of a host until it is clean."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs Dask: make setup")

from pgstrata.errors import PreflightError
from pgstrata.fleet.messages import SessionAnswer, SessionAsked, parse_answer, render_answer
from pgstrata.fleet.opening import FarHost, take_up
from pgstrata.fleet.worker import Session
from pgstrata.record.delivered import pack
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.expand import block_trials
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.trial.events import silent
from pgstrata.trial.undo_errors import note_undo_errors, undo_errors
from pgstrata_fake.runner import FakeRunner

CAMPAIGN = Campaign(name="fleet", stacks=(parse_stack("ext4"),), hosts=("dask:{local: 1}",))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[CampaignDirectory]:
    with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as one:
        yield one


def answer(**fields: object) -> bytes:
    return render_answer(SessionAnswer.model_validate(fields))


def test_errors_of_undoing_stay_until_their_own_host_is_clean(directory: CampaignDirectory) -> None:
    take_up("db1", answer(left=["b000-00-ext4-s1: unmount:\nbusy"]), directory, silent)
    take_up("db2", answer(left=["vgremove: busy"]), directory, silent)
    assert undo_errors(directory.path) == ("db1: b000-00-ext4-s1: unmount: busy", "db2: vgremove: busy")
    take_up("db1", answer(), directory, silent)
    assert len(undo_errors(directory.path)) == 2
    take_up("db1", answer(stacks=["ext4"], clean=True, left=["losetup: busy"]), directory, silent)
    assert undo_errors(directory.path) == ("db2: vgremove: busy", "db1: losetup: busy")
    take_up("db2", answer(clean=True), directory, silent)
    take_up("db1", answer(stacks=["ext4"], clean=True), directory, silent)
    assert undo_errors(directory.path) == ()


def test_a_note_without_hosts_is_of_whichever_is_opened(directory: CampaignDirectory) -> None:
    note_undo_errors(directory.path, ["unmount: busy"])
    take_up("db1", answer(stacks=["ext4"], clean=True), directory, silent)
    assert undo_errors(directory.path) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        b"",
        b"null",
        b'{"stacks": "ext4"}\n',
        b'{"notices": [1]}\n',
        b'{"more": 1}\n',
        b'{"media": ["{}"]}\n',
        b'{"error": "' + b"x" * (65 << 10) + b'"}\n',
        [b"{}"],
    ],
    ids=str,
)
def test_a_wrong_answer_is_an_error_of_its_host_and_changes_nothing(
    directory: CampaignDirectory, wrong: object
) -> None:
    before = sorted(directory.path.rglob("*"))
    with pytest.raises(PreflightError, match="db1 gave a wrong answer"):
        take_up("db1", wrong, directory, silent)
    assert sorted(directory.path.rglob("*")) == before


def test_a_session_that_was_opened_says_so_and_hands_its_errors_over_once() -> None:
    session = Session(SessionAsked(token="t", host="db1", campaign=CAMPAIGN, fake=True))
    try:
        assert parse_answer(session.open(), "db1")[0].clean
        assert session._directory is not None
        note_undo_errors(session._directory.path, ["unmount: busy"], "db1")
        assert session._besides()["left"] == ("unmount: busy",)
        assert session._besides() == {"notices": (), "clean": False, "media": (), "left": ()}
    finally:
        session.close()


def test_what_runs_there_is_noted_until_it_has_come_or_its_machine_was_lost(directory: CampaignDirectory) -> None:
    (trial,) = block_trials(CAMPAIGN, 0, ("ext4",), host="db1")
    far = FarHost(SessionAsked(token="t", host="db1", campaign=CAMPAIGN, fake=True), directory, silent)
    noted = directory.path / "running" / f"{trial.id}.json"
    executor = Submitting()
    far.submit(executor, (trial,), begins_block=True)
    assert executor.affinity == "db1"
    assert noted.exists()
    far.give_up((trial,))
    assert not noted.exists()
    with tempfile.TemporaryDirectory() as folder, CampaignDirectory.create_or_open(Path(folder), CAMPAIGN) as there:
        FakeRunner(CAMPAIGN).run(trial, there, silent)
        archive = pack(there.path / "trials" / trial.id)
    far.submit(executor, (trial,), begins_block=False)
    assert far.take(render_answer(SessionAnswer(), archive), (trial,))[0].trial_id == trial.id
    assert not noted.exists()


class Submitting(Executor):
    """Notes for which machine a piece was."""

    affinity = ""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.affinity = kwargs["affinity"]
        return Future()
