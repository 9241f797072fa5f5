"""Checkpoints in recorded server logs of every major (tests/fixtures/postgres_log)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pgstrata.probe.parse import checkpoint_rows
from pgstrata.record.schema import CHECKPOINT_COLUMNS

LOGS = Path(__file__).parents[2] / "fixtures" / "postgres_log"


@pytest.mark.parametrize("major", range(13, 19))
def test_every_checkpoint_of_a_log_is_there(major: int) -> None:
    log = (LOGS / f"{major}.log").read_text()
    rows = checkpoint_rows(log, 0.0)
    assert len(rows) == log.count("checkpoint starting:")
    assert sum(row["end_t_s"] is not None for row in rows) == log.count("checkpoint complete:")
    assert {"wal", "requested", "time", "end-of-recovery", "shutdown"} <= {row["kind"] for row in rows}
    for row in rows:
        assert tuple(row) == CHECKPOINT_COLUMNS
        if row["end_t_s"] is not None:
            assert row["total_s"] == pytest.approx(row["end_t_s"] - row["start_t_s"], abs=0.2)
            assert row["write_s"] + row["sync_s"] <= row["total_s"] + 0.002


def test_times_count_from_the_origin() -> None:
    log = (LOGS / "13.log").read_text()
    origin = datetime(2026, 11, 21, 13, 38, 54, tzinfo=UTC).timestamp()
    (row,) = [r for r in checkpoint_rows(log, origin) if r["kind"] == "time"]
    assert row == {
        "start_t_s": 0.095, "end_t_s": 2.096, "kind": "time", "buffers_written": 19,
        "write_s": 1.975, "sync_s": 0.001, "total_s": 2.002,
    }  # fmt: skip


def test_a_checkpoint_cut_short_by_a_crash_has_no_end() -> None:
    lines = (LOGS / "18.log").read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if "checkpoint starting: time" in line)
    cut = "\n".join([*lines[: start + 1], *[line for line in lines[start + 1 :] if "end-of-recovery" in line]])
    rows = checkpoint_rows(cut, 0.0)
    assert [row["end_t_s"] for row in rows if row["kind"] == "time"] == [None]
