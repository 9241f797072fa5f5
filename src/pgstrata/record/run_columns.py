"""Columns of the table with one row a run: what `report --format csv` writes and `import csv` knows again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

TRIAL_COLUMNS = ("stack", "block", "position", "stage", "trial", "status", "reason")
CELL_COLUMNS = ("script", "scale", "clients", "rate_tps")
RESULT_COLUMNS = (
    "duration_s", "transactions", "tps", "latency_avg_ms", "latency_stddev_ms", "initial_connection_ms", "lag_avg_ms",
    "failed", "retried", "skipped", "late", "wal_bytes", "checkpoints", "open_loop",
)  # fmt: skip
"""Fields of `CellResult`."""
PERCENTILES = ("p50", "p95", "p99", "p999")
PERCENTILE_COLUMNS = tuple(f"latency_{p}_ms" for p in PERCENTILES)
LOAD_COLUMNS = ("load", "load_s", "space_physical_bytes", "space_database_bytes")
FIRST_COLUMNS = (*TRIAL_COLUMNS, *CELL_COLUMNS, *RESULT_COLUMNS, *PERCENTILE_COLUMNS, *LOAD_COLUMNS)
"""Columns that tables of earlier versions begin with."""
DURABILITY = "durability"
"""The class of the stack, as its campaign knew it."""
COLUMNS = (*FIRST_COLUMNS, DURABILITY)
"""In this order; further metrics follow."""
METRIC_PREFIX = "metric:"
"""Before a further metric that is called like one of the columns."""


def metric_column(name: str) -> str:
    """The column of a further metric."""
    return f"{METRIC_PREFIX}{name}" if name in COLUMNS or name.startswith(METRIC_PREFIX) else name


def report_interval_s(t_s: Sequence[float]) -> int:
    """Seconds between the progress lines of a run (`pgbench --progress`), by the median; 1 for fewer than two lines."""
    if len(t_s) < 2:
        return 1
    return max(1, round(median(b - a for a, b in pairwise(t_s))))
