"""Plain output and logs of pgbench, as recorded from the real program."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from pgstrata.errors import UsageError
from pgstrata.importers import pgbench_files
from pgstrata.importers.pgbench_files import import_pgbench, log_parts, read_part
from pgstrata.record.reader import read
from pgstrata.trial.scheduler import Inline
from pgstrata.workload.pgbench_logs import cut_log

FIXTURES = Path(__file__).parents[2] / "fixtures/pgbench"


def test_outputs_of_two_stacks(tmp_path: Path) -> None:
    both = tmp_path / "both.out"
    both.write_text((FIXTURES / "15-tpcb-progress.out").read_text() + (FIXTURES / "15-tpcb-progress.err").read_text())
    summary = import_pgbench([f"ext4={both}", f"xfs={FIXTURES / '18-tpcb-progress.out'}"], tmp_path / "out", Inline())
    assert summary.stacks == ("ext4", "xfs")
    cells = {c.stack: c for c in read(tmp_path / "out").cells()}
    assert cells["ext4"].table("progress")["t_s"].size > 0
    assert cells["xfs"].table("progress")["t_s"].size == 0
    assert cells["ext4"].result.tps
    assert not read(tmp_path / "out").record.paired


def test_scripts_of_a_mix_have_figures_of_their_own(tmp_path: Path) -> None:
    sources = [f"ext4={FIXTURES / '16-mix.out'}", f"xfs={FIXTURES / '18-mix.out'}"]
    import_pgbench(sources, tmp_path / "out", Inline())
    first, second = read(tmp_path / "out").cells()
    assert first.cell.script == second.cell.script == "orders@9+report@1"
    assert first.id == "orders_9_report_1-s1-c2"
    assert [(one.name, one.weight, one.transactions) for one in first.result.scripts] == [
        ("orders", 9, 7163),
        ("report", 1, 845),
    ]
    assert second.result.scripts[1].latency_stddev_ms == 0.694


def test_logs_alone_give_throughput_and_percentiles(tmp_path: Path) -> None:
    log = tmp_path / "pgbench_log.77"
    ends_us = [1700000000_010000 + 20000 * i for i in range(200)]
    lines = [f"0 {i + 1} {1000 + i} 0 {us // 10**6} {us % 10**6}\n" for i, us in enumerate(ends_us)]
    log.write_text("".join(lines) + "0 1")
    (tmp_path / "pgbench_log.77.1").write_text("1 1 5000 0 1700000003 500000\n")
    summary = import_pgbench([f"zfs={log}", f"zfs={log}.1"], tmp_path / "out", Inline())
    assert dict(summary.rejected) == {"torn last line of a log": 1}
    (cell,) = read(tmp_path / "out").cells()
    assert (cell.result.transactions, cell.result.duration_s) == pytest.approx((201, 3.981))
    assert cell.result.tps == pytest.approx(201 / 3.981)
    assert cell.result.percentiles_ms["p50"] == pytest.approx(1.1)
    assert cell.table("progress")["tps"].tolist() == [50.0, 50.0, 50.0, 51.0]


def test_output_and_log_of_one_run_belong_together(tmp_path: Path) -> None:
    log = tmp_path / "pgbench_log.1"
    log.write_text("0 1 2000 0 1700000000 1\n")
    shutil.copy(FIXTURES / "15-tpcb-progress.out", tmp_path / "run.out")
    import_pgbench([f"a={tmp_path / 'run.out'}", f"a={log}"], tmp_path / "out", Inline())
    (cell,) = read(tmp_path / "out").cells()
    assert cell.result.percentiles_ms["p99"] == 2.0
    assert len(cell.raw_names()) == 2


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise").write_text("hello\n")
    with pytest.raises(UsageError, match="noise"):
        import_pgbench([str(tmp_path / "noise")], tmp_path / "out", Inline())
    with pytest.raises(UsageError, match="cannot read"):
        import_pgbench([str(tmp_path / "absent")], tmp_path / "out", Inline())
    (tmp_path / "log.1").write_text("0 1 2000 0 1700000000 1\n")
    (tmp_path / "log.2").write_text("0 1 2000 0 1700000000 1\n")
    output = FIXTURES / "15-tpcb-progress.out"
    with pytest.raises(UsageError, match="1 outputs and the logs of 2 runs"):
        import_pgbench(
            [f"a={output}", f"a={tmp_path / 'log.1'}", f"a={tmp_path / 'log.2'}"], tmp_path / "out", Inline()
        )
    assert not (tmp_path / "out").exists()


def test_a_progress_line_of_another_time_is_refused(tmp_path: Path) -> None:
    text = (FIXTURES / "15-tpcb-progress.out").read_text()
    (tmp_path / "a.out").write_text(f"{text}progress: 900000000.0 s, 5 tps, lat 1 ms stddev 1\n")
    with pytest.raises(UsageError, match=r"a row of progress lies 9e\+08 s from the start"):
        import_pgbench([f"a={tmp_path / 'a.out'}"], tmp_path / "out", Inline())


def test_an_import_of_parts_is_that_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "pgbench_log.7"
    log.write_text(
        "".join(f"0 {i} {900 + i * i % 777} 0 {1700000000 + i // 50} {7 + 20000 * (i % 50)}\n" for i in range(1000))
        + "0 1"
    )
    found = {}
    for size_bytes in (1 << 20, 3000):
        monkeypatch.setattr(pgbench_files, "cut_log", partial(cut_log, part_bytes=size_bytes))
        parts = log_parts([log], open_loop=False)
        out = tmp_path / f"out{len(parts)}"
        summary = import_pgbench([f"xfs={log}"], out, Inline())
        (cell,) = read(out).trials[0].cells
        found[len(parts)] = (cell.result, repr(cell.table("progress")), dict(summary.rejected))
    whole, cut = found.pop(1), found.popitem()
    assert cut[0] > 5
    assert cut[1] == whole
    assert whole[2] == {"torn last line of a log": 1}


def test_a_log_that_is_still_written_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "pgbench_log.1"
    log.write_text("0 0 900 0 1700000000 7\n")
    (part,) = log_parts([log], open_loop=False)
    with log.open("a") as more:
        more.write("0 1 900 0 1700000000 8\n")
    with pytest.raises(UsageError, match="has 46 bytes, and had 23 when the import began"):
        read_part(*part)
    log.unlink()
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        read_part(*part)
