"""A damaged record: the error names the file and costs that trial alone, and every view of it counts the same."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from crashed import write_crash
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.metrics import run_metrics
from pgstrata.cli.main import app
from pgstrata.errors import UsageError
from pgstrata.record import reader, source
from pgstrata.record.frames import load_frames
from pgstrata.record.parquet import Table
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.report.render import render_csv
from pgstrata.report.terminal import render_terminal
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata_fake.campaigns import Shape, write_campaign


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape(stacks=("ext4", "xfs"), blocks=2, duration_s=5, incidents=False)
    return write_campaign(tmp_path_factory.mktemp("whole") / "campaign", shape)


@pytest.fixture
def directory(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "campaign"))


def _trial(directory: Path) -> Path:
    return sorted((directory / "trials").iterdir())[0]


def _overwrite(path: Path, with_: bytes) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:30] + with_ + content[30 + len(with_) :])


def _time(path: Path, t_s: float | None) -> None:
    table = pq.read_table(path)
    times = [*table.column("t_s").to_pylist()[:-1], t_s]
    pq.write_table(table.set_column(0, "t_s", pa.array(times, type=pa.float64())), path, compression="zstd")


def _value(path: Path, key: str, value: str) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(f'"{key}": ', f'"{key}": {value}, "was": '), encoding="utf-8")


def _tps(path: Path, value: str) -> None:
    _value(path, "tps", value)


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "truncated Parquet": ("progress.parquet", lambda p: p.write_bytes(p.read_bytes()[:-20])),
    "damaged page": (
        "progress.parquet",
        lambda p: _overwrite(p, b"x" * 60),
    ),
    "other columns": ("progress.parquet", lambda p: pq.write_table(pa.table({"a": [1]}), p)),
    "a time far away": ("progress.parquet", lambda p: _time(p, 1e10)),
    "no time": ("progress.parquet", lambda p: _time(p, None)),
    "a time that is no number": ("system.parquet", lambda p: _time(p, float("nan"))),
    "empty Parquet": ("progress.parquet", lambda p: p.write_bytes(b"")),
    "truncated JSON": ("result.json", lambda p: p.write_text(p.read_text()[:-30])),
    "NaN": ("result.json", lambda p: _tps(p, "NaN")),
    "infinite": ("result.json", lambda p: _tps(p, "1e999")),
    "too large": (
        "result.json",
        lambda p: _tps(p, "1" + "0" * 99),
    ),
    "a run of centuries": ("result.json", lambda p: _value(p, "duration_s", "9223372036854775807")),
    "a negative count": ("result.json", lambda p: _value(p, "transactions", "-1")),
    "UTF-16 with errors": ("result.json", lambda p: p.write_bytes(b"\xff\xfe{\xd8")),
    "wrong encoding": ("verdict.json", lambda p: p.write_bytes(b'{"trial_id": "\xe4"}')),
    "nested": ("planned.json", lambda p: p.write_text("[" * 100_000)),
    "a list instead of a mapping": ("facts.json", lambda p: p.write_text("[]")),
    "a mapping instead of a list": ("attested.json", lambda p: p.write_text("{}")),
    "a line of no JSON": ("events.jsonl", lambda p: p.write_text("{\n" + p.read_text())),
    "another trial's": ("planned.json", lambda p: p.write_text(p.read_text().replace('"id":', '"id": "b9", "was":'))),
    "missing": ("planned.json", Path.unlink),
    "a name too long for a file": (
        "verdict.json",
        lambda p: p.write_text(json.dumps({**json.loads(p.read_text()), "files": ["x" * 300]})),
    ),
    "no verdict": ("verdict.json", Path.unlink),
}

SMALL_FILES = ("planned.json", "verdict.json")
"""All that `status` opens of a trial."""


@pytest.mark.parametrize("kind", sorted(DAMAGE))
def test_damage_costs_its_trial_alone_and_is_told_everywhere(directory: Path, kind: str) -> None:
    trial, before = _trial(directory), read(directory)
    name, damage = DAMAGE[kind]
    (path,) = [p for p in trial.rglob(name) if "raw" not in p.parts][:1]
    damage(path)
    data = read(directory)
    assert [t.id for t in data.unreadable] == [trial.name]
    assert name in data.unreadable[0].reason or kind in ("another trial's", "a name too long for a file")
    assert [t.id for t in data.trials] == [t.id for t in before.trials if t.id != trial.name]
    findings = judge(data)
    assert any(trial.name in notice for notice in findings.campaign.notices)
    assert trial.name in render_terminal(data, findings)
    assert f"{trial.name},unreadable," in render_csv(data)
    told = load_frames(directory).trials().to_pylist()
    assert [row["trial"] for row in told if row["status"] == "unreadable"] == [trial.name]
    shown = json.loads(CliRunner().invoke(app, ["status", str(directory), "--json"]).stdout)
    told_too = name in SMALL_FILES
    assert [one["trial"] for one in shown["unreadable"]] == [trial.name] * told_too
    assert sum(sum(counts.values()) for counts in shown["stacks"].values()) == len(before.trials) - told_too


def test_status_opens_two_small_files_of_a_trial(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    really = source.FolderSource.open

    def watched(self: source.FolderSource, name: str, most_bytes: int = 0) -> Any:
        opened.append(name)
        return really(self, name)

    monkeypatch.setattr(source.FolderSource, "open", watched)
    assert CliRunner().invoke(app, ["status", str(directory)]).exit_code == 0
    trials = sorted(p.name for p in (directory / "trials").iterdir())
    below = sorted(name for name in opened if name.startswith("trials/"))
    assert below == [f"trials/{trial}/{name}" for trial in trials for name in SMALL_FILES]


def test_a_file_that_is_lost_is_missed_by_status(directory: Path) -> None:
    lost = next(_trial(directory).rglob("progress.parquet"))
    verdict = _trial(directory) / "verdict.json"
    value = json.loads(verdict.read_text())
    value["files"] = [lost.relative_to(_trial(directory)).as_posix()]
    verdict.write_text(json.dumps(value))
    lost.unlink()
    shown = json.loads(CliRunner().invoke(app, ["status", str(directory), "--json"]).stdout)
    assert "progress.parquet is missing" in shown["unreadable"][0]["reason"]


def test_a_folder_with_nothing_in_it_is_a_lost_trial(directory: Path) -> None:
    (directory / "trials" / "b009-00-x-s1").mkdir()
    assert [t.id for t in read(directory).unreadable] == ["b009-00-x-s1"]


def test_what_was_recorded_is_missed_when_it_is_gone(tmp_path: Path) -> None:
    from pgstrata.record.schema import HostFacts, PlannedRecord, TrialVerdict
    from pgstrata.spec.campaign import Campaign
    from pgstrata.spec.expand import block_trials

    campaign = Campaign.model_validate({"name": "x", "stacks": [{"name": "a", "data": {"fs": {"kind": "tmpfs"}}}]})
    with CampaignDirectory.create_or_open(tmp_path / "c", campaign) as directory:
        (trial,) = block_trials(campaign, 0, ["a"])
        recorder = directory.start_trial(trial, PlannedRecord(trial=trial, stack=campaign.stack("a"), steps=()))
        recorder.write("facts.json", HostFacts(name="x"))
        recorder.raw("a.log").write_text("x")
        recorder.finish(TrialVerdict(trial_id=trial.id, status="ok"))
        recorder.final.joinpath("raw", "a.log").unlink()
        assert read(tmp_path / "c").unreadable == ()
        recorder.final.joinpath("facts.json").unlink()
        (lost,) = read(tmp_path / "c").unreadable
        assert lost.reason.endswith("is incomplete: facts.json is missing")
        with pytest.raises(UsageError, match=r"facts.json is missing") as error:
            directory.finished()
        assert "runs again" in error.value.hint


@pytest.mark.parametrize("limit", ["MAX_ROWS", "MAX_MEMBER_BYTES", "MAX_JSON_BYTES"])
def test_no_file_unpacks_to_anything(directory: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(reader, limit, 8000 if limit == "MAX_JSON_BYTES" else 3)
    (path,) = _trial(directory).rglob("result.json")
    path.write_bytes(path.read_bytes() + b" " * 8000)
    lost = read(directory).unreadable
    assert trial_names(directory) >= {t.id for t in lost} >= {_trial(directory).name}


def trial_names(directory: Path) -> set[str]:
    return {path.name for path in (directory / "trials").iterdir()}


def test_a_zip_that_unpacks_to_anything(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SMALL_BYTES", 1000)
    (path,) = _trial(directory).rglob("result.json")
    path.write_bytes(b" " * (2 << 20))
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(p for p in directory.rglob("*") if p.is_file()):
            archive.write(file, file.relative_to(directory))
    (lost,) = read(packed).unreadable
    assert "would unpack to" in lost.reason
    packed.write_bytes(packed.read_bytes()[:-10])
    with pytest.raises(UsageError):
        read(packed)


@pytest.mark.parametrize("name", ["campaign.json", "decisions.jsonl"])
def test_what_belongs_to_no_trial_is_named(directory: Path, name: str) -> None:
    (directory / name).write_bytes(b"\xff\n")
    with pytest.raises(UsageError, match=name):
        read(directory)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({"states": 3}, "held"),
        ({"states": 0}, "unknown"),
        ({"states": 3, "unknown": 3}, "unknown"),
        ({"states": 3, "lost": 1}, "unknown"),
        ({"states": 3, "corrupt": 1}, "unknown"),
    ],
)
def test_a_stack_held_only_where_every_state_did(tmp_path: Path, found: dict[str, Any], verdict: str) -> None:
    with CampaignDirectory.create_or_open(tmp_path / "out", crash_campaign(named_stacks(["ext4"])), "crash") as written:
        write_crash(written, "ext4", verdict="held", **found)
    (crash,) = read(tmp_path / "out").crashes
    assert crash.found.verdict == verdict


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"states": -5}, "states"),
        ({"lost": -1}, "lost"),
        ({"stack": "xfs"}, "is the record of another trial"),
    ],
)
def test_counts_below_nothing_and_another_stack_are_damage(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    out = tmp_path / "out"
    with CampaignDirectory.create_or_open(out, crash_campaign(named_stacks(["ext4"])), "crash") as written:
        write_crash(written, "ext4", verdict="held", states=3)
    path = out / "crash" / "ext4-0" / "durability.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    (damaged,) = read(out).unreadable
    assert reason in damaged.reason


def test_a_crash_trial_under_another_name_is_damage(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with CampaignDirectory.create_or_open(out, crash_campaign(named_stacks(["ext4"])), "crash") as written:
        write_crash(written, "ext4", verdict="held", states=3)
    (out / "crash" / "ext4-0").rename(out / "crash" / "xfs-1")
    assert [one.id for one in read(out).unreadable] == ["crash/xfs-1"]


def test_the_judge_opens_the_seconds_of_a_run_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    really = reader.CellData.table

    def watched(self: reader.CellData, series: str, columns: Sequence[str] | None = None) -> Table:
        opened.append(series)
        return really(self, series, columns)

    (trial, *_) = read(directory).trials
    monkeypatch.setattr(reader.CellData, "table", watched)
    run_metrics(trial, trial.cells[0])
    assert opened == ["progress"]
