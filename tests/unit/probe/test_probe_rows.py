"""Rows from raw counters, by hand-made samples whose rates are known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pgstrata.errors import TrialError
from pgstrata.probe.parse import device_rows, parse_lines, postgres_rows, probe_cpu_s, system_rows, wait_rows
from pgstrata.record.schema import DEVICE_COLUMNS, POSTGRES_COLUMNS, SYSTEM_COLUMNS, WAIT_COLUMNS

STAT = [100, 0, 800, 50, 200, 3, 1600, 70, 1, 4000, 120, 5, 0, 40, 9, 30, 60]
LATER = [110, 0, 1000, 60, 260, 3, 3600, 90, 7, 5000, 150, 9, 0, 80, 9, 50, 80]


def sample(time_s: float, stat: list[int], cpu: list[int], **more: Any) -> dict[str, Any]:
    base = {"time": 1000.0 + time_s, "mono": 50.0 + time_s, "disk": {"7:0": stat}, "cpu": cpu, "hz": 100}
    base.update(pressure={"io": int(time_s * 250_000)}, dirty_kb=8, writeback_kb=2, self_s=time_s / 1000)
    return {**base, **more}


SAMPLES = [
    sample(0.0, STAT, [100, 0, 50, 800, 20, 0, 0, 0, 0, 0]),
    sample(2.0, LATER, [140, 10, 70, 900, 40, 5, 5, 0, 0, 0]),
]


def test_device_rates() -> None:
    (row,) = device_rows(SAMPLES, {"7:0": "data"}, 1001.0)
    assert tuple(row) == DEVICE_COLUMNS
    assert row == {
        "t_s": 1.0, "device": "7:0", "role": "data",
        "reads_per_s": 5.0, "writes_per_s": 30.0, "flushes_per_s": 10.0, "discards_per_s": 2.0,
        "read_bytes_per_s": 100 * 512, "write_bytes_per_s": 1000 * 512, "in_flight": 7, "utilisation": 0.5,
    }  # fmt: skip


def test_a_kernel_without_discards_and_flushes_gives_null() -> None:
    old = [sample(0.0, STAT[:11], [1] * 8), sample(1.0, LATER[:11], [2] * 8)]
    (row,) = device_rows(old, {"7:0": "data"}, 1000.0)
    assert (row["flushes_per_s"], row["discards_per_s"]) == (None, None)
    assert row["writes_per_s"] == 60.0


def test_a_device_that_goes_away_has_no_row() -> None:
    gone = [SAMPLES[0], {**SAMPLES[1], "disk": {}}]
    assert device_rows(gone, {"7:0": "data"}, 0.0) == []


def test_system_shares() -> None:
    (row,) = system_rows(SAMPLES, 1000.0)
    assert tuple(row) == SYSTEM_COLUMNS
    assert row["cpu_user"] == pytest.approx(50 / 200)
    assert row["cpu_system"] == pytest.approx(30 / 200)
    assert row["cpu_iowait"] == pytest.approx(20 / 200)
    assert row["cpu_idle"] == pytest.approx(100 / 200)
    assert (row["dirty_bytes"], row["writeback_bytes"]) == (8192, 2048)
    assert row["pressure_io"] == pytest.approx(0.25)
    assert row["pressure_cpu"] is None
    assert probe_cpu_s(SAMPLES) == pytest.approx(0.002)


def test_processors_that_the_programs_used_and_waited_for() -> None:
    def sums(cpu_s: float, wait_s: float, tasks: int) -> dict[str, float]:
        return {"cpu_s": cpu_s, "wait_s": wait_s, "tasks": tasks}

    first = {**SAMPLES[0], "server": sums(10.0, 1.0, 9), "client": sums(3.0, 0.0, 2)}
    later = {**SAMPLES[1], "server": sums(13.0, 7.0, 9), "client": sums(4.0, 2.0, 2)}
    (row,) = system_rows([first, later], 1000.0)
    assert (row["server_cpu"], row["server_cpu_wait"]) == (1.5, 3.0)
    assert (row["client_cpu"], row["client_cpu_wait"]) == (0.25, 0.5)
    ended = {**later, "client": sums(4.0, 2.0, 0)}
    for pair in ([SAMPLES[0], later], [first, ended], SAMPLES):
        (row,) = system_rows(pair, 1000.0)
        assert (row["client_cpu"], row["client_cpu_wait"]) == (None, None)


def test_a_torn_last_line_is_left_out_and_any_other_is_an_error() -> None:
    whole = json.dumps(SAMPLES[0])
    assert parse_lines(f"{whole}\n{whole[:40]}") == [SAMPLES[0]]
    with pytest.raises(TrialError, match="line 1"):
        parse_lines(f"{whole[:40]}\n{whole}\n")
    with pytest.raises(TrialError, match="line 2"):
        parse_lines(f"{whole}\n{whole[:40]}\n")
    assert parse_lines("") == []


def postgres_sample(time_s: float, **counters: Any) -> dict[str, Any]:
    names = [c for c in POSTGRES_COLUMNS if c != "t_s"]
    return {"time": time_s, **dict.fromkeys(names, 0), "io_reads": None, "waits": [], **counters}


def test_postgres_counters_grow_from_the_first_sample() -> None:
    samples = [
        postgres_sample(10.0, wal_bytes=1000, xact_commit=7),
        postgres_sample(11.0, wal_bytes=1800, xact_commit=9, waits=[["IO", "WALSync", 3], ["CPU", "Running", 1]]),
    ]
    first, second = postgres_rows(samples, 10.0)
    assert tuple(first) == POSTGRES_COLUMNS
    assert (first["wal_bytes"], second["wal_bytes"], second["xact_commit"]) == (0, 800, 2)
    assert second["io_reads"] is None
    assert postgres_rows([], 0.0) == []
    rows = wait_rows(samples, 10.0)
    assert [tuple(row) for row in rows] == [WAIT_COLUMNS, WAIT_COLUMNS]
    assert rows[0] == {"t_s": 1.0, "wait_event_type": "IO", "wait_event": "WALSync", "sessions": 3}
