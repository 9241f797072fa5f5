"""Logs of pgbench -l: exactness against numpy, several files, torn and damaged lines, all column layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.errors import UsageError
from pgstrata.workload import pgbench_logs
from pgstrata.workload.pgbench_logs import QUANTILES, Histogram, summarise_logs

START_S = 1_700_000_000


def write_log(path: Path, latencies_us: list[int], *, per_second: int, tail: str = "") -> None:
    lines = [f"{i % 8} {i // 8} {us} 0 {START_S + i // per_second} {i}{tail}\n" for i, us in enumerate(latencies_us)]
    path.write_text("".join(lines))


@given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=300))
def test_histogram_gives_percentile_cont(values: list[int]) -> None:
    histogram = Histogram()
    for part in (values[::2], values[1::2]):
        other = Histogram()
        other.add(np.array(part, dtype=np.int64))
        histogram.merge(other)
    assert histogram.count == len(values)
    np.testing.assert_allclose(histogram.quantiles_us(QUANTILES), np.quantile(values, QUANTILES), rtol=1e-12)


def test_several_files_and_blocks_give_exact_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgbench_logs, "BLOCK_BYTES", 4096)
    rng = np.random.default_rng(1)
    runs = [rng.lognormal(8, 2, 5000).astype(int).tolist() for _ in range(3)]
    for number, latencies in enumerate(runs):
        write_log(tmp_path / f"log.{number}", latencies, per_second=700)
    summary = summarise_logs(sorted(tmp_path.iterdir()))
    everything = np.concatenate(runs)
    assert summary.transactions == 15000
    assert summary.out_of_order == 0
    np.testing.assert_allclose(summary.histogram.quantiles_us(QUANTILES), np.quantile(everything, QUANTILES))
    assert [s.epoch_s for s in summary.seconds] == list(range(START_S, START_S + 8))
    for index, second in enumerate(summary.seconds):
        part = np.concatenate([run[index * 700 : (index + 1) * 700] for run in runs])
        assert second.transactions == part.size
        np.testing.assert_allclose(second.quantiles_ms, np.quantile(part, QUANTILES) / 1000)
        assert second.maximum_ms == part.max() / 1000


def test_words_are_counted_and_have_no_latency(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(f"0 1 1000 0 {START_S} 5 20 0\n0 2 skipped 0 {START_S} 6 900 0\n0 3 failed 0 {START_S} 7 10 3\n")
    summary = summarise_logs([path], open_loop=True)
    assert summary.transactions == 1
    assert summary.words == {"skipped": 1, "failed": 1}
    assert summary.maximum_lag_ms == pytest.approx(0.9)
    assert summary.percentiles_ms["p99"] == 1.0


def test_seventh_column_is_lag_only_in_an_open_loop(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [10, 20], per_second=10, tail=" 7000")
    assert summarise_logs([tmp_path / "log"]).maximum_lag_ms is None
    assert summarise_logs([tmp_path / "log"], open_loop=True).maximum_lag_ms == 7.0


def test_torn_last_line_is_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, [100] * 10, per_second=5)
    path.write_text(path.read_text() + "3 9 12")
    summary = summarise_logs([path])
    assert (summary.transactions, summary.torn_lines) == (10, 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 1 12x 0 1700000000 5", r"line 4 .*'12x' is not a number"),
        ("0 1 12", r"line 4 .*3 columns instead of 6"),
        ("0 1 12 0 1700000000 5 6 7 8", r"line 4 .*9 columns instead of 6"),
    ],
)
def test_damaged_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "log"
    write_log(path, [100] * 3, per_second=5)
    path.write_text(path.read_text() + line + "\n" + f"0 1 5 0 {START_S} 1\n")
    with pytest.raises(UsageError, match=message):
        summarise_logs([path])


def test_aggregated_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("1650260552 5178 26171317 177284491527 1136 44462\n")
    with pytest.raises(UsageError, match="aggregated pgbench log"):
        summarise_logs([tmp_path / "log"])


def test_rows_after_their_second_closed_still_count_for_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pgbench_logs, "BLOCK_BYTES", 256)
    path = tmp_path / "log"
    write_log(path, [100] * 100, per_second=2)
    path.write_text(path.read_text() + f"0 1 999 0 {START_S} 1\n")
    summary = summarise_logs([path])
    assert (summary.transactions, summary.out_of_order) == (101, 1)
    assert summary.histogram.quantiles_us((1.0,)) == (999.0,)
