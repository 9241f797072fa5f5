"""Logs of pgbench -l: exactness against numpy, several files, torn and damaged lines, all column layouts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgstrata.errors import UsageError
from pgstrata.workload import pgbench_logs
from pgstrata.workload.pgbench_logs import (
    QUANTILES,
    Histogram,
    LogPart,
    LogSummary,
    cut_log,
    merged,
    parse_summary,
    render_summary,
    summarise_logs,
    summarise_part,
)

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
    assert summary.transactions == 15000
    np.testing.assert_allclose(summary.histogram.quantiles_us(QUANTILES), np.quantile(np.concatenate(runs), QUANTILES))
    expected = {START_S + second: 3 * len(runs[0][second * 700 : (second + 1) * 700]) for second in range(8)}
    assert summary.seconds == expected


def test_percentiles_of_each_script_of_a_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that hold one script alone, logs of several threads, and what one process tells another, add up."""
    monkeypatch.setattr(pgbench_logs, "BLOCK_BYTES", 4096)
    random, latencies = Random(3), dict[int, list[int]]()
    for thread in range(2):
        lines = []
        for number in range(3000):
            script = 0 if number < 500 else random.choice([0, 0, 1, 5, *range(15, 20)])
            latencies.setdefault(script, []).append(random.choice([random.randint(100, 9000), 2_000_000]))
            lines.append(f"{thread} {number} {latencies[script][-1]} {script} {START_S} {number}\n")
        (tmp_path / f"log.{thread}").write_text("".join(lines))
    parts = (part for thread in range(2) for part in cut_log(tmp_path / f"log.{thread}", 9000))
    summary = merged(parse_summary(render_summary(summarise_part(part))) for part in parts)
    found = summary.percentiles_ms_by_script
    assert set(found) == {0, 1, 5, 15}, "later ones share a histogram"
    for script, percentiles in found.items():
        expected = np.quantile(latencies[script], QUANTILES) / 1000
        np.testing.assert_allclose(list(percentiles.values()), expected)
    write_log(tmp_path / "one", [1, 2, 3], per_second=1)
    assert summarise_logs([tmp_path / "one"]).percentiles_ms_by_script == {}


LINES = st.tuples(
    st.one_of(st.integers(0, 3_000_000).map(str), st.sampled_from(pgbench_logs.WORDS)),
    st.integers(START_S, START_S + 20),
    st.integers(0, 10**9),
)


@settings(max_examples=40)
@given(
    st.lists(LINES, min_size=1, max_size=60),
    st.sampled_from(("", "7 12 3")),
    st.lists(st.integers(1, 3000), max_size=5),
    st.integers(200, 900),
    st.randoms(use_true_random=False),
)
def test_a_log_says_the_same_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, int, int]],
    torn: str,
    places: list[int],
    part_bytes: int,
    order: Random,
) -> None:
    """Whole, cut at any ends of lines, or as the importer cuts, through JSON and in any order."""
    path = tmp_path_factory.mktemp("cut") / "log"
    text = "".join(f"0 {i} {us} 0 {second} 5 {lag}\n" for i, (us, second, lag) in enumerate(rows)) + torn
    path.write_text(text)
    whole = summarise_part(LogPart(path, 0, len(text)), open_loop=True)
    assert whole.transactions == sum(us.isdigit() for us, _, _ in rows)
    assert whole.torn_lines == bool(torn)
    ends = sorted({text.rfind("\n", 0, place) + 1 for place in places} - {0, len(text)})
    at_random = [LogPart(path, begin, end) for begin, end in pairwise((0, *ends, len(text)))]
    regular = cut_log(path, part_bytes)
    assert "".join(text[part.begin : part.end] for part in regular) == text
    assert all(text[part.begin - 1] == "\n" for part in regular[1:])
    for parts in (at_random, list(regular)):
        order.shuffle(parts)
        told = [parse_summary(render_summary(summarise_part(part, open_loop=True))) for part in parts]
        assert_same(merged(told), whole)


def assert_same(found: LogSummary, expected: LogSummary) -> None:
    np.testing.assert_array_equal(found.histogram.dense, expected.histogram.dense)
    assert found.histogram.tail == expected.histogram.tail
    for name in ("words", "torn_lines", "seconds", "maximum_lag_us"):
        assert getattr(found, name) == getattr(expected, name), name


def test_parts_are_long_and_few(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, [100] * 1000, per_second=100)
    size_bytes = path.stat().st_size
    parts = cut_log(path, size_bytes // 4)
    assert [round(4 * (part.end - part.begin) / size_bytes) for part in parts[:4]] == [1] * 4
    assert len(cut_log(path)) == 1
    (tmp_path / "empty").touch()
    assert summarise_logs([tmp_path / "empty"]).transactions == 0


def test_a_damaged_line_is_named_by_its_place_in_the_whole_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, [100] * 50, per_second=5)
    path.write_text(path.read_text() + f"0 1 12\n0 1 5 0 {START_S} 1\n")
    *fine, damaged = cut_log(path, path.stat().st_size - 40)
    assert [summarise_part(part).transactions for part in fine] == [50]
    with pytest.raises(UsageError, match=r"line 51 .*3 columns instead of 6"):
        summarise_part(damaged)


def test_words_are_counted_and_have_no_latency(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(f"0 1 1000 0 {START_S} 5 20 0\n0 2 skipped 0 {START_S} 6 900 0\n0 3 failed 0 {START_S} 7 10 3\n")
    summary = summarise_logs([path], open_loop=True)
    assert summary.transactions == 1
    assert summary.words == {"skipped": 1, "failed": 1}
    assert summary.maximum_lag_us == 900
    assert summary.percentiles_ms["p99"] == 1.0


def test_seventh_column_is_lag_only_in_an_open_loop(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [10, 20], per_second=10, tail=" 7000")
    assert summarise_logs([tmp_path / "log"]).maximum_lag_us is None
    assert summarise_logs([tmp_path / "log"], open_loop=True).maximum_lag_us == 7000


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


def test_rows_out_of_order_count_for_their_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgbench_logs, "BLOCK_BYTES", 256)
    path = tmp_path / "log"
    write_log(path, [100] * 100, per_second=2)
    path.write_text(path.read_text() + f"0 1 999 0 {START_S} 1\n")
    summary = summarise_logs([path])
    assert (summary.transactions, summary.seconds[START_S], summary.seconds[START_S + 1]) == (101, 3, 2)
    assert summary.histogram.quantiles_us((1.0,)) == (999.0,)
