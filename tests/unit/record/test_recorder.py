"""A campaign directory: written once, locked, extended, refused to others, read back wherever it is."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pgstrata.errors import PgstrataError, PreflightError, RecordError, UsageError
from pgstrata.record.parquet import SERIES, write_series
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory, is_locked
from pgstrata.record.schema import CellResult, DecisionRecord, MediumRecord, PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import block_trials
from pgstrata.spec.workload import Cell

CAMPAIGN = Campaign.model_validate(
    {
        "name": "small",
        "stacks": [
            {"name": "ext4", "data": {"fs": {"kind": "ext4"}}},
            {"name": "tmpfs", "data": {"fs": {"kind": "tmpfs"}}},
        ],
        "workload": {"scale": 1, "clients": 2, "duration": 5},
        "runs": {"blocks": 2},
    }
)


def trials(block: int = 0) -> tuple[Trial, ...]:
    return block_trials(CAMPAIGN, block, [s.name for s in CAMPAIGN.stacks])


def planned(trial: Trial) -> PlannedRecord:
    return PlannedRecord(trial=trial, stack=CAMPAIGN.stack(trial.stack), steps=())


def finish(directory: CampaignDirectory, trial: Trial) -> None:
    directory.start_trial(trial, planned(trial)).finish(TrialVerdict(trial_id=trial.id, status="ok", duration_s=1.5))


class TestNextBlock:
    def test_it_is_after_the_last_one_with_a_finished_trial(self, tmp_path: Path) -> None:
        first, second = trials(), trials(1)
        with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
            assert directory.next_block() == 0
            finish(directory, first[0])
            directory.start_crash(second[0], planned(second[0])).finish(
                TrialVerdict(trial_id=second[0].id, status="ok")
            )
            assert directory.next_block() == 1
            finish(directory, second[0])
            assert directory.next_block() == 2
            finish(directory, first[1])
            assert directory.next_block() == 2
        with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
            assert directory.next_block() == 2

    def test_a_stack_that_cannot_be_built_ran_in_none(self, tmp_path: Path) -> None:
        first = trials()[0]
        for _ in range(2):  # while it is recorded, and when it is read back
            with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
                assert directory.next_block() == 0
                if not (tmp_path / "c" / "trials" / first.id).exists():
                    unsupported = TrialVerdict(trial_id=first.id, status="unsupported")
                    directory.start_trial(first, planned(first)).finish(unsupported)
                    assert directory.next_block() == 0


class TestTrialDirectory:
    def test_a_trial_is_there_only_when_it_has_its_verdict(self, tmp_path: Path) -> None:
        with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
            trial = trials()[0]
            recorder = directory.start_trial(trial, planned(trial))
            recorder.write_text("raw/load.err", "x")
            assert read(tmp_path / "c").trials == ()
            recorder.finish(TrialVerdict(trial_id=trial.id, status="ok"))
            (found,) = read(tmp_path / "c").trials
            assert found.trial == trial
            assert found.raw_names() == (f"trials/{trial.id}/raw/load.err",)

    def test_a_finished_trial_is_never_written_again(self, tmp_path: Path) -> None:
        with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
            finish(directory, trials()[0])
            with pytest.raises(PgstrataError, match="is finished"):
                directory.start_trial(trials()[0], planned(trials()[0]))

    def test_partial_trials_of_a_killed_run_are_set_aside(self, tmp_path: Path) -> None:
        for number in (1, 2):
            with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
                trial = trials()[0]
                directory.start_trial(trial, planned(trial))
            with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN):
                names = sorted(p.name for p in (tmp_path / "c" / "interrupted").iterdir())
                assert names == [f"{trial.id}.{n}" for n in range(1, number + 1)]
        assert read(tmp_path / "c").trials == ()


class TestCampaignDirectory:
    def test_two_runs_never_share_a_directory(self, tmp_path: Path) -> None:
        with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN):
            assert is_locked(str(tmp_path / "c"))
            with pytest.raises(PreflightError, match=f"process {os.getpid()}"):
                CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN)
        assert not is_locked(str(tmp_path / "c"))
        CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN).close()

    def test_another_campaign_is_refused_and_named(self, tmp_path: Path) -> None:
        CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN).close()
        other = CAMPAIGN.model_copy(update={"seed": 99, "name": "other"})
        with pytest.raises(UsageError, match="name, seed differ") as caught:
            CampaignDirectory.create_or_open(tmp_path / "c", other)
        assert "--out" in caught.value.hint

    def test_a_campaign_may_be_extended(self, tmp_path: Path) -> None:
        CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN).close()
        more = CAMPAIGN.model_copy(update={"runs": CAMPAIGN.runs.model_copy(update={"blocks": 5})})
        with CampaignDirectory.create_or_open(tmp_path / "c", more) as directory:
            assert directory.campaign.runs.blocks == 5
        assert read(tmp_path / "c").record.declared_blocks == 2
        before = (tmp_path / "c" / "campaign-before.jsonl").read_text().splitlines()
        assert [json.loads(line)["campaign"]["runs"]["blocks"] for line in before] == [2]

    def test_a_folder_with_other_things_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("")
        with pytest.raises(UsageError, match=r"thesis\.tex"):
            CampaignDirectory.create_or_open(tmp_path, CAMPAIGN)

    def test_a_full_disk_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
            monkeypatch.setattr(os, "fsync", full)
            with pytest.raises(RecordError, match="no space left"):
                directory.record_decision(DecisionRecord(after_block=0, stage="screen", continue_with=("ext4",)))

    def test_a_path_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "c").write_text("")
        with pytest.raises(PreflightError, match="cannot write"):
            CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN)

    def test_a_torn_decision_is_left_out_and_closed(self, tmp_path: Path) -> None:
        with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
            directory.record_decision(DecisionRecord(after_block=0, stage="screen", continue_with=("ext4",)))
            with (tmp_path / "c" / "decisions.jsonl").open("a") as file:
                file.write('{"after_block": 1, "sta')
            assert [d.after_block for d in directory.decisions()] == [0]
            directory.record_decision(DecisionRecord(after_block=1, stage="done", continue_with=()))
            assert [d.stage for d in directory.decisions()] == ["screen", "done"]

    def test_baselines_of_the_medium_are_read_back(self, tmp_path: Path) -> None:
        media = [MediumRecord(at="", before_block=n, medium="x", seconds=2, flushes_per_s=n) for n in (0, 4)]
        with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
            for medium in media:
                directory.record_medium(medium)
            with (tmp_path / "c" / "media.jsonl").open("a") as file:
                file.write('{"before_bl')
            assert directory.data().media == read(tmp_path / "c").media == tuple(media)


class TestReading:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        with CampaignDirectory.create_or_open(tmp_path / "c", CAMPAIGN) as directory:
            for trial in trials(0) + trials(1):
                finish(directory, trial)
        return tmp_path / "c"

    def test_trials_come_in_the_order_they_ran(self, directory: Path) -> None:
        places = [(t.trial.block, t.trial.position) for t in read(directory).trials]
        assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]

    @pytest.mark.parametrize("nested", [False, True])
    def test_a_zip_reads_like_the_folder(self, directory: Path, tmp_path: Path, nested: bool) -> None:
        top = directory.parent if nested else directory
        base = directory.name if nested else None
        archive = shutil.make_archive(str(tmp_path / "packed"), "zip", top, base)
        shutil.move(directory, tmp_path / "moved")
        zipped, folder = read(archive), read(tmp_path / "moved")
        assert zipped.trials == folder.trials
        assert len(zipped.trials) == 4
        assert zipped.source.trials() == folder.source.trials()
        for trial in zipped.trials:
            names = zipped.source.below(trial.folder)
            assert names == folder.source.below(trial.folder)
            assert f"{trial.folder}/verdict.json" in names
            assert all(zipped.source.has(name) for name in names)
        assert not zipped.source.has("trials/none/verdict.json")

    def test_other_things_are_no_campaign(self, tmp_path: Path) -> None:
        for name in ("missing", "empty", "file"):
            path = tmp_path / name
            if name == "empty":
                path.mkdir()
            elif name == "file":
                path.write_text("no zip")
            with pytest.raises(UsageError):
                read(path)


class TestSeries:
    def test_every_series_has_its_columns_and_types(self, tmp_path: Path) -> None:
        for name, columns in SERIES.items():
            assert write_series(tmp_path / name, name, [dict.fromkeys(columns)]) == 1
            table = pq.read_table(tmp_path / name)
            assert tuple(table.column_names) == columns
            assert write_series(tmp_path / name, name, []) == 0
            assert pq.read_table(tmp_path / name).schema == table.schema

    def test_nothing_is_lost_silently(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError, match="frobs"):
            write_series(tmp_path / "x", "progress", [{"t_s": 1, "frobs": 2}])
        with pytest.raises(ValueError, match="zip"):
            write_series(tmp_path / "x", "waits", [(1.0, "IO")])


def test_a_run_without_a_transaction_can_be_read_again() -> None:
    nan = float("nan")
    result = CellResult(
        cell=Cell(script="tpcb-like", scale=1, clients=1, rate_tps=50.0),
        started="",
        duration_s=5.0,
        transactions=0,
        tps=0.0,
        percentiles_ms={"p50": nan, "p99": nan},
    )
    assert CellResult.model_validate_json(result.model_dump_json()) == result
    written_before = result.model_dump(mode="json") | {"percentiles_ms": {"p50": None}}
    assert CellResult.model_validate(written_before).percentiles_ms == {}
