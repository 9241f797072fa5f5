"""The statement of the PostgreSQL probe follows the major."""

from __future__ import annotations

import pytest

from pgstrata.probe.postgres import COUNTERS, FIRST_WITHIN_S, render_probe_script, render_sample_query
from pgstrata.probe.start import PATIENCE_S
from pgstrata.record.schema import POSTGRES_COLUMNS


@pytest.mark.parametrize("major", range(13, 20))
def test_every_column_is_selected(major: int) -> None:
    query = render_sample_query(major)
    for name in (*COUNTERS, "waits"):
        assert f"'{name}'" in query
    assert ("pg_stat_io" in query) == (major >= 16)
    assert ("pg_stat_wal" in query) == (14 <= major < 18)
    assert ("object = 'wal'" in query) == (major >= 18)
    assert ("pg_stat_checkpointer" in query) == (major >= 17)
    assert ("b.buffers_backend" in query) == (major < 17)


def test_standbys_are_asked_for_where_there_are_any() -> None:
    assert "pg_stat_replication" not in render_probe_script(16)
    asked = render_probe_script(16, standbys=True)
    for name in ("write_lag_ms", "flush_lag_ms", "replay_lag_ms", "behind_bytes"):
        assert f"'{name}'" in asked


def test_counters_are_the_columns_of_the_record() -> None:
    assert ("t_s", *COUNTERS) == POSTGRES_COLUMNS


def test_the_script_prepares_once_and_repeats() -> None:
    script = render_probe_script(16, interval_s=0.5)
    assert script.count("PREPARE sample AS SELECT") == 1
    assert script.endswith("EXECUTE sample \\watch 0.5\n")


def test_the_first_sample_has_the_time_that_cold_catalogs_take() -> None:
    """Read from a slow medium, and not within what a sample of a running probe may take."""
    lines = render_probe_script(16).splitlines()
    limits = [line for line in lines if "statement_timeout" in line]
    first, second = (lines.index(limit) for limit in limits)
    assert lines[second - 1] == "EXECUTE sample;"
    assert first < second < len(lines) - 1
    assert "300s" in limits[0]
    assert PATIENCE_S > FIRST_WITHIN_S
