"""The pg-fs-benchmark layout: the reference archive's published figures, and variants of the layout."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from pgstrata.errors import PgstrataError, UsageError
from pgstrata.importers.pg_fs_benchmark import SETTLED_SAMPLES, import_pg_fs_benchmark
from pgstrata.importers.runs import ImportedCell, ImportedTrial, imported_cell, imported_stack, write_campaign
from pgstrata.record.reader import CellData, read
from pgstrata.record.schema import CellResult, HostFacts
from pgstrata.spec.campaign import Goal

ARCHIVE = Path(__file__).parents[4] / "shared/reference/pg-fs-benchmark-xeon.tar.xz"

PUBLISHED = {
    ("xfs", 1000): (35, 12.7),
    ("ext4", 1000): (34, 12.1),
    ("zfs", 1000): (34, 9.7),
    ("zfs no-fpw", 1000): (23, 0.4),
    ("btrfs", 1000): (27, 6.3),
    ("xfs", 10000): (38, 14.2),
    ("ext4", 10000): (36, 13.9),
    ("zfs no-fpw", 10000): (23, 0.3),
    ("btrfs", 10000): (106, 44),
}
"""Per cent: population CV of TPS per second, share of seconds below half the median (the archive's README)."""


def settled_tps(cell: CellData) -> np.ndarray:
    head, tail = cell.result.settled_samples
    values: np.ndarray = cell.table("progress")["tps"]
    return values[head : values.size - tail]


@pytest.mark.skipif(not ARCHIVE.exists(), reason="the reference archive is not beside this checkout")
def test_reference_archive_gives_the_published_figures(tmp_path: Path) -> None:
    summary = import_pg_fs_benchmark(ARCHIVE, tmp_path / "out")
    assert summary.runs == 36
    assert dict(summary.rejected) == {}
    assert "there is one run of each cell: single runs give no verdicts" in summary.notices
    cells = {(c.stack, c.cell.scale): c for c in read(tmp_path / "out").cells() if c.cell.script == "simple-update"}
    for key, (cv_percent, stalled_percent) in PUBLISHED.items():
        tps = settled_tps(cells[key])
        digits = 1 if stalled_percent != round(stalled_percent) else 0
        assert round(100 * tps.std() / tps.mean()) == cv_percent, key
        assert round(100 * (tps < np.median(tps) / 2).mean(), digits) == stalled_percent, key


# ---------------------------------------------------------------- the layout, made up

SUMMARY = """pgbench (16devel)
transaction type: <builtin: simple update>
scaling factor: 50
query mode: prepared
number of clients: 16
number of threads: 4
maximum number of tries: 1
duration: 3600 s
number of transactions actually processed: 3600
number of failed transactions: 0 (0.000%)
latency average = 4.956 ms
initial connection time = 12.271 ms
tps = 1000.5 (without initial connection time)
"""


def run_folder(folder: Path, samples: int = 200, *, torn: bool = False) -> None:
    folder.mkdir(parents=True)
    (folder / "pgbench.log").write_text(SUMMARY)
    database = ["run|epoch|ts|datid|datname|xact_commit"]
    writer = [
        "run|epoch|checkpoints_timed|checkpoints_req|checkpoint_write_time|checkpoint_sync_time|buffers_checkpoint"
    ]
    for i in range(samples):
        database += [f"1|{1000 + i}.5|x|1|postgres|{i}", f"1|{1000 + i}.5|x|2|test|{i * 100}"]
        writer.append(f"1|{1000 + i}.5|{1 + (i >= 50)}|0|{1000 + (i >= 90) * 40000}|{(i >= 90) * 500}|{i * 10}")
    text = "\n".join(database) + "\n" + ("1|1200.5|x" if torn else "")
    (folder / "stat-database.csv").write_text(text)
    (folder / "stat-bgwriter.csv").write_text("\n".join(writer) + "\n")
    (folder / "sizes.csv").write_text("before;1;2;3\nafter;4;5;6\n")


def machine(tmp_path: Path) -> Path:
    run = tmp_path / "i5" / "2022-md"
    run_folder(run / "10" / "xfs" / "50" / "run-rw-1")
    run_folder(run / "10" / "xfs" / "50" / "run-rw-2")
    run_folder(run / "5" / "xfs" / "50" / "run-rw-1", torn=True)
    (run / "results.csv").write_text(
        "1662880093;1662881000;10;default;xfs;50;rw;1000.5;3600;97\n"
        "1662880093;1662881000;10;default;xfs;50;rw;1010.5;3600;97\n"
        "1662880093;1662881000;5;default;xfs;50;rw;800;3600;97\n"
        "1662880093;1662881000;5;default;xfs;250;ro;5000;900;\n"
        "1662880093;1662881000;5;default;xfs;250;rw;oops;900;5\n"
        "short;row\n"
    )
    (run / "init.csv").write_text("1;2;10;default;xfs;50;init;16.5;12\n2;3;10;default;xfs;50;vacuum;0.5;12\n")
    zfs = tmp_path / "i5" / "2022-zfs"
    zfs.mkdir()
    (zfs / "results.csv").write_text("1;2;raidz1;no-fpw;50;rw;900;3600;5\n1;2;mirror;50;rw;950;3600;5\n")
    return tmp_path / "i5"


def test_raid_levels_repetitions_and_missing_files(tmp_path: Path) -> None:
    summary = import_pg_fs_benchmark(machine(tmp_path), tmp_path / "out")
    assert set(summary.stacks) == {"xfs raid10", "xfs raid5", "zfs raidz1 no-fpw", "zfs mirror"}
    assert dict(summary.rejected) == {
        "row of results.csv with text in numbers": 1,
        "line of results.csv with too few columns": 1,
        "torn line of stat-database.csv": 1,
    }
    data = read(tmp_path / "out")
    got = sorted((c.stack, c.block, c.id, c.result.tps) for c in data.cells())
    assert got == [
        ("xfs raid10", 0, "simple-update-s50-c16", 1000.5),
        ("xfs raid10", 1, "simple-update-s50-c16", 1000.5),
        ("xfs raid5", 0, "select-only-s250-c16", 5000.0),
        ("xfs raid5", 0, "simple-update-s50-c16", 1000.5),
        ("zfs mirror", 0, "simple-update-s50-c16", 950.0),
        ("zfs raidz1 no-fpw", 0, "simple-update-s50-c16", 900.0),
    ]
    assert data.campaign.stack("zfs raidz1 no-fpw").postgresql.settings == {"full_page_writes": "off"}
    assert data.record.rejected == dict(summary.rejected)


def test_runs_of_one_label_in_several_folders_are_kept_apart(tmp_path: Path) -> None:
    """Another rate, number of clients or length is no repetition: none of them replaces another one or counts as it."""
    lag = "rate limit schedule lag: avg 1.500 (max 90.000) ms"
    throttled = SUMMARY.replace("initial connection time =", f"{lag}\ninitial connection time =").replace(
        "1000.5", "499.7"
    )
    ways = {
        "2022-a": [SUMMARY, SUMMARY.replace("1000.5", "1010.5")],
        "2022-b": [SUMMARY.replace("1000.5", "990.5")],
        "2022-rate": [throttled],
        "2022-clients": [SUMMARY.replace("clients: 16", "clients: 64").replace("1000.5", "1500.5")],
        "2022-short": [SUMMARY.replace("3600 s", "600 s").replace("1000.5", "1900.5")],
    }
    rows = 0
    for name, summaries in ways.items():
        run = tmp_path / "i5" / name
        for number, text in enumerate(summaries, 1):
            folder = run / "0" / "xfs" / "50" / f"run-rw-{number}"
            run_folder(folder)
            (folder / "pgbench.log").write_text(text)
        lines = ["1662880093;1662881000;0;default;xfs;50;rw;1;3606.7;97\n"] * len(summaries)
        (run / "results.csv").write_text("".join(lines))
        rows += len(lines)
    summary = import_pg_fs_benchmark(tmp_path / "i5", tmp_path / "out")
    data = read(tmp_path / "out")
    got = sorted((c.stack, c.id, c.block, c.result.tps) for c in data.cells())
    assert summary.runs == rows == len(got)
    assert got == [
        ("xfs", "simple-update-s50-c16-r500", 0, 499.7),
        ("xfs", "simple-update-s50-c64", 0, 1500.5),
        ("xfs 3600 s", "simple-update-s50-c16", 0, 1000.5),
        ("xfs 3600 s", "simple-update-s50-c16", 1, 1010.5),
        ("xfs 3600 s", "simple-update-s50-c16", 2, 990.5),
        ("xfs 600 s", "simple-update-s50-c16", 0, 1900.5),
    ]
    assert [c.result.open_loop for c in data.cells() if c.cell.rate_tps] == [True]
    assert any("what was achieved, to two digits" in notice for notice in summary.notices)


def test_a_row_without_a_directory_repeats_nothing_of_another_folder(tmp_path: Path) -> None:
    for name in ("2022-a", "2022-b"):
        (tmp_path / "i5" / name).mkdir(parents=True)
        (tmp_path / "i5" / name / "results.csv").write_text("1;2;0;default;xfs;50;rw;900;3600;5\n")
    import_pg_fs_benchmark(tmp_path / "i5", tmp_path / "out")
    assert sorted((c.stack, c.block) for c in read(tmp_path / "out").cells()) == [("xfs 2022-a", 0), ("xfs 2022-b", 0)]


def test_a_collision_is_an_error(tmp_path: Path) -> None:
    cell = ImportedCell(CellResult(cell=imported_cell("s"), started="", duration_s=1, transactions=1, tps=1.0))
    trial = ImportedTrial(imported_stack("a"), 0, (cell, cell), HostFacts(name="h"))
    with pytest.raises(PgstrataError, match="two runs of a would both be stored as s"):
        write_campaign([trial], tmp_path / "out", name="x", origin="import csv", paired=False, goal=Goal(), rejected={})
    assert not (tmp_path / "out").exists(), "nothing half-made is left"
    (tmp_path / "own").mkdir()
    with pytest.raises(PgstrataError, match="would both be stored"):
        write_campaign([trial], tmp_path / "own", name="x", origin="import csv", paired=False, goal=Goal(), rejected={})
    assert list((tmp_path / "own").iterdir()) == []


def test_series_checkpoints_space_and_load(tmp_path: Path) -> None:
    import_pg_fs_benchmark(machine(tmp_path), tmp_path / "out")
    trial = next(t for t in read(tmp_path / "out").trials if t.trial.stack == "xfs raid10" and t.trial.block == 0)
    cell = trial.cells[0]
    assert cell.result.settled_samples == SETTLED_SAMPLES
    np.testing.assert_allclose(cell.table("progress")["tps"], 100.0)
    assert {name: column.item() for name, column in cell.table("checkpoints").items()} == (
        {"start_t_s": 50.0, "end_t_s": 90.0, "kind": "timed", "buffers_written": 410.0, "write_s": 40.0, "sync_s": 0.5,
         "total_s": 40.0}
    )  # fmt: skip
    assert trial.load is not None
    assert (trial.load.total_s, trial.load.phases_s) == (17.0, {"init": 16.5, "vacuum": 0.5})
    assert [s.database_bytes for s in trial.space] == [6]
    assert {n.rsplit("/", 1)[-1] for n in cell.raw_names()} == {
        "pgbench.log", "stat-database.csv", "stat-bgwriter.csv", "sizes.csv"
    }  # fmt: skip


def test_directories_without_rows_are_taken(tmp_path: Path) -> None:
    run = tmp_path / "m" / "20220910-btrfs"
    run_folder(run / "raid1" / "default" / "50" / "run-ro-1")
    (run / "results.csv").write_text("")
    import_pg_fs_benchmark(tmp_path / "m", tmp_path / "out")
    assert [(c.stack, c.id) for c in read(tmp_path / "out").cells()] == [("btrfs", "select-only-s50-c16")]


def test_what_is_no_such_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        import_pg_fs_benchmark(tmp_path / "absent", tmp_path / "out")
    with pytest.raises(UsageError, match=r"no results\.csv"):
        import_pg_fs_benchmark(tmp_path, tmp_path / "out")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="neither a folder nor a whole tar archive"):
        import_pg_fs_benchmark(tmp_path / "file", tmp_path / "out")


def test_several_machines_are_not_mixed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "all" / name / "run").mkdir(parents=True)
        (tmp_path / "all" / name / "run" / "results.csv").write_text("1;2;0;default;xfs;50;rw;1;1;1\n")
    with pytest.raises(UsageError, match=r"several machines \(a, b\)"):
        import_pg_fs_benchmark(tmp_path / "all", tmp_path / "out")


def test_an_archive_that_unpacks_to_anything(tmp_path: Path) -> None:
    packed = tmp_path / "bomb.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        for number in range(3):
            member = tarfile.TarInfo(f"zeros{number}")
            member.size = 8 << 20
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(UsageError, match="would unpack to more than"):
        import_pg_fs_benchmark(packed, tmp_path / "out")
    assert not (tmp_path / "out").exists()
