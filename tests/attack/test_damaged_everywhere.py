"""Every verb that reads a record, every file of it, and every damage: an answer or an error of ours, nothing raw."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from crashed import write_crash
from pgstrata.cli.main import app
from pgstrata.crash.named_state import named_state
from pgstrata.errors import PgstrataError
from pgstrata.record.parquet import SERIES
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.source import Source
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata_fake.campaigns import Shape, write_campaign

VERBS = {
    "report": ("report", "DIR"),
    "status": ("status", "DIR", "--json"),
    "export": ("export", "DIR", "--out", "OUT"),
    "bundle": ("bundle", "DIR", "--out", "OUT.zip"),
    "redacted": ("bundle", "DIR", "--redact", "--out", "OUT.zip"),
}


def _table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(change(pq.read_table(path)), path, compression="zstd")
    else:
        value = path.read_text().splitlines()
        path.write_text(
            "".join(f'{{"further": 1, {line[1:]}\n' if line.startswith("{") else f"{line}\n" for line in value)
        )


def _further(table: pa.Table) -> pa.Table:
    return table.append_column("further", pa.nulls(table.num_rows, pa.int64()))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda p: p.write_bytes(b""),
    "truncated": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "a number": lambda p: p.write_text("7\n"),
    "null": lambda p: p.write_text("null\n"),
    "a list": lambda p: p.write_text("[[]]\n"),
    "a mapping": lambda p: p.write_text("{}\n"),
    "no text": lambda p: p.write_bytes(b"\xff\x00\n"),
    "further": lambda p: _table(p, _further),
    "fewer": lambda p: _table(p, lambda table: table.select(table.column_names[1:])),
    "another order": lambda p: _table(p, lambda table: table.select(table.column_names[::-1])),
    "missing": Path.unlink,
    "a folder": _folder,
    "a fifo": _fifo,
    "a device": _device,
}


def _files(campaign: Path) -> list[str]:
    """One of each kind of file of the record."""
    kinds: dict[str, str] = {}
    for path in sorted(campaign.rglob("*")):
        name = path.relative_to(campaign).as_posix()
        if path.suffix in (".json", ".jsonl", ".parquet") and "raw" not in path.parts:
            kinds.setdefault(path.name, name)
    return sorted(kinds.values())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape(stacks=("ext4", "xfs"), blocks=1, duration_s=3, incidents=False)
    return write_campaign(tmp_path_factory.mktemp("whole") / "campaign", shape)


CASES = [
    *itertools.product(("status", "export"), DAMAGES),
    *itertools.product(("report", "bundle", "redacted"), ("truncated", "further", "a device")),
]
"""What reads every file for its figures takes every damage; what draws and packs them takes a few."""


@pytest.mark.parametrize(("verb", "damage"), CASES)
def test_no_damage_is_unhandled(whole: Path, tmp_path: Path, verb: str, damage: str) -> None:
    for at, name in enumerate(_files(whole)):
        directory = shutil.copytree(whole, tmp_path / f"{at}")
        DAMAGES[damage](directory / name)
        words = {"DIR": str(directory), "OUT": str(tmp_path / f"out-{at}"), "OUT.zip": str(tmp_path / f"{at}.zip")}
        done = CliRunner().invoke(app, [words.get(word, word) for word in VERBS[verb]])
        known = done.exception is None or isinstance(done.exception, (PgstrataError, SystemExit))
        assert known, f"{name}: {done.exception!r}"
        assert done.exit_code != 0 or done.exception is None, name


def test_further_columns_are_exported_without_them(whole: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(whole, tmp_path / "further")
    for path in directory.rglob("progress.parquet"):
        _table(path, _further)
    done = CliRunner().invoke(app, ["export", str(directory), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert pq.read_table(tmp_path / "out" / "progress.parquet").column_names[4:] == list(SERIES["progress"])


@pytest.mark.parametrize("file", ["raw/states/NAME", "states.jsonl"])
@pytest.mark.parametrize("damage", [name for name in DAMAGES if name not in ("fewer", "another order", "further")])
def test_a_damaged_state_is_an_error_of_ours(tmp_path: Path, file: str, damage: str) -> None:
    campaign = crash_campaign_with_state(tmp_path / "out")
    (state,) = campaign.glob("crash/*/raw/states/*.json")
    trial = state.parents[2]
    path = state if file.startswith("raw") else trial / file
    if not path.exists():
        path.write_text("{}\n")
    DAMAGES[damage](path)
    with pytest.raises(PgstrataError, match="out"):
        named_state(f"{campaign}/crash/{trial.name}/{state.stem}")


def crash_campaign_with_state(out: Path) -> Path:
    """A record whose only state was kept; its log is none."""
    with CampaignDirectory.create_or_open(out, crash_campaign(named_stacks(["ext4"])), "crash") as directory:
        write_crash(directory, "ext4", verdict="lost", states=2)
    (trial,) = (out / "crash").iterdir()
    from pgstrata.crash.event_log_archive import kept_log, state_file

    for name in (kept_log(None), state_file("1.17")):
        (trial / name).parent.mkdir(parents=True, exist_ok=True)
        (trial / name).write_bytes(b"")
    return out


def _packed(directory: Path, path: Path, bombs: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(p for p in directory.rglob("*") if p.is_file()):
            name = file.relative_to(directory).as_posix()
            archive.writestr(name, bombs.get(name, file.read_bytes()))
    return path


STATUS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
from pgstrata.record.reader import read
data = read(sys.argv[1])
print(len(data.trials), *(one.id for one in data.unreadable))
"""


def _read_within(path: Path, memory_bytes: int) -> list[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    argv = [sys.executable, "-c", STATUS, str(path), str(memory_bytes)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def _rows(path: Path, rows: int) -> None:
    table = pq.read_table(path)
    arrays = [
        pa.array([None], f.type).take(pa.array([0] * 1000)) if pa.types.is_string(f.type) else pa.array([1.0] * 1000)
        for f in table.schema
    ]
    batch = pa.Table.from_arrays(arrays, schema=table.schema)
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        writer.write_table(pa.concat_tables([batch] * (rows // 1000)), row_group_size=rows)


@pytest.mark.parametrize("bomb", ["lists", "mappings", "text", "padded", "rows"])
def test_a_bomb_costs_its_trial_within_two_gigabytes(whole: Path, tmp_path: Path, bomb: str) -> None:
    directory = shutil.copytree(whole, tmp_path / "campaign")
    trial = sorted((directory / "trials").iterdir())[0]
    name = f"trials/{trial.name}/attested.json"
    made = {
        "lists": lambda: b"[" + b"[]," * (5 << 20) + b"[]]",
        "mappings": lambda: b"[" + b"{}," * (5 << 20) + b"{}]",
        "text": lambda: b'["' + b"x" * (17 << 20) + b'"]',
        "padded": lambda: b"[" + b"[]," * (60 << 20) + b"[]]" + os.urandom(1 << 20),
    }
    if bomb == "rows":
        _rows(next(trial.rglob("progress.parquet")), 20_000_000)
        path = directory
    else:
        path = _packed(directory, tmp_path / "bomb.zip", {name: made[bomb]()})
    assert _read_within(path, 2 << 30) == ["1", trial.name]


def test_lack_of_memory_costs_the_trial(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pgstrata.record import reader

    first, whole_read = sorted(p.name for p in (whole / "trials").iterdir())[0], reader.read_trial

    def short(source: Source, name: str, *, series: bool = False) -> reader.TrialData:
        if name == first:
            raise MemoryError
        return whole_read(source, name, series=series)

    monkeypatch.setattr(reader, "read_trial", short)
    (lost,) = read(whole).unreadable
    assert (lost.id, lost.reason) == (first, "there is not enough memory to read it")
