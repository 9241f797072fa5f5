"""The tidy tables of a campaign: one row a run, one row a second, with trial, stack, block and cell beside each.

`pgstrata.load(directory)` for notebooks, `pgstrata export` for files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pgstrata.record.parquet import SERIES, arrow_schema
from pgstrata.record.reader import CampaignData, CellData, TrialData, read
from pgstrata.spec.printable import spreadsheet_text

KEYS = ("trial", "stack", "block", "cell")
_KEY_TYPES = [("trial", pa.string()), ("stack", pa.string()), ("block", pa.int64()), ("cell", pa.string())]

_RUN_FIGURES = (
    "duration_s", "tps", "latency_avg_ms", "latency_stddev_ms", "initial_connection_ms", "lag_avg_ms",
)  # fmt: skip
_RUN_COUNTS = ("transactions", "failed", "retried", "skipped", "late", "wal_bytes", "checkpoints")
_PERCENTILES = ("p50", "p95", "p99", "p999")


@dataclass(frozen=True)
class Frames:
    """Tables of one campaign; series are read when asked for."""

    data: CampaignData

    def runs(self) -> pa.Table:
        """One row for each measured run, also those of trials that failed later (see `status`)."""
        rows = [_run_row(trial, cell) for trial in self.data.trials for cell in trial.cells]
        return pa.Table.from_pylist(rows, schema=_run_schema())

    def trials(self) -> pa.Table:
        """One row for each trial, with verdict, load time and its phases."""
        rows = [_trial_row(trial) for trial in self.data.trials]
        rows += [{"trial": t.id, "status": "unreadable", "reason": t.reason} for t in self.data.unreadable]
        return pa.Table.from_pylist(rows, schema=_TRIALS)

    def batches(self, series: str) -> Iterator[pa.Table]:
        """A series (`progress`, `devices`, ...), one table a run, so that any length streams."""
        for cell in self.data.cells(valid_only=False):
            if cell.has(series):
                yield _with_keys(cell, cell.table(series))

    def series(self, series: str) -> pa.Table:
        """A whole series in memory."""
        return pa.concat_tables([_series_schema(series).empty_table(), *self.batches(series)])

    def export(self, folder: Path) -> tuple[Path, ...]:
        """Writes every table into `folder`: runs and trials as CSV and Parquet, series as Parquet."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, table in (("runs", self.runs()), ("trials", self.trials())):
            pyarrow.csv.write_csv(_for_spreadsheets(table), folder / f"{name}.csv")
            pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
            written += [folder / f"{name}.csv", folder / f"{name}.parquet"]
        for name in SERIES:
            path = folder / f"{name}.parquet"
            with pq.ParquetWriter(path, _series_schema(name), compression="zstd") as writer:
                for batch in self.batches(name):
                    writer.write_table(batch)
            written.append(path)
        return tuple(written)


def load_frames(directory: Path) -> Frames:
    """The tables of a campaign directory or zip; UsageError when it is none."""
    return Frames(read(directory))


_TRIALS = pa.schema(
    [
        ("trial", pa.string()),
        ("stack", pa.string()),
        ("block", pa.int64()),
        ("position", pa.int64()),
        ("stage", pa.string()),
        ("scale", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("started", pa.string()),
        ("duration_s", pa.float64()),
        ("load", pa.string()),
        ("load_s", pa.float64()),
        ("space_physical_bytes", pa.int64()),
        ("space_database_bytes", pa.int64()),
    ]
)


def _run_schema() -> pa.Schema:
    grid = [("script", pa.string()), ("scale", pa.int64()), ("clients", pa.int64()), ("status", pa.string())]
    figures = [(name, pa.float64()) for name in _RUN_FIGURES]
    counts = [(name, pa.int64()) for name in _RUN_COUNTS]
    percentiles = [(f"latency_{name}_ms", pa.float64()) for name in _PERCENTILES]
    return pa.schema([*_KEY_TYPES, *grid, *figures, *counts, *percentiles])


def _run_row(trial: TrialData, cell: CellData) -> dict[str, Any]:
    result = cell.result
    row: dict[str, Any] = {
        "trial": trial.id,
        "stack": trial.trial.stack,
        "block": trial.trial.block,
        "cell": cell.id,
        "script": cell.cell.script,
        "scale": cell.cell.scale,
        "clients": cell.cell.clients,
        "status": trial.verdict.status,
    }
    row |= {name: getattr(result, name) for name in (*_RUN_FIGURES, *_RUN_COUNTS)}
    return row | {f"latency_{name}_ms": result.percentiles_ms.get(name) for name in _PERCENTILES}


def _trial_row(trial: TrialData) -> dict[str, Any]:
    loaded = trial.space_after("after load")
    return {
        "trial": trial.id,
        "stack": trial.trial.stack,
        "block": trial.trial.block,
        "position": trial.trial.position,
        "stage": trial.trial.stage,
        "scale": trial.trial.scale,
        "status": trial.verdict.status,
        "reason": trial.verdict.reason,
        "started": trial.verdict.started,
        "duration_s": trial.verdict.duration_s,
        "load": trial.load.how if trial.load else None,
        "load_s": trial.load.total_s if trial.load else None,
        "space_physical_bytes": loaded.physical_bytes if loaded else None,
        "space_database_bytes": loaded.database_bytes if loaded else None,
    }


def _for_spreadsheets(table: pa.Table) -> pa.Table:
    """The same with text that no spreadsheet takes for a formula."""
    columns = [
        pa.array([v if v is None else spreadsheet_text(v) for v in column.to_pylist()], type=pa.string())
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _series_schema(series: str) -> pa.Schema:
    return pa.schema([*_KEY_TYPES, *arrow_schema(SERIES[series])])


def _with_keys(cell: CellData, table: pa.Table) -> pa.Table:
    values = (cell.trial_id, cell.stack, cell.block, cell.id)
    keys = [pa.array([v] * table.num_rows, type=t) for v, (_, t) in zip(values, _KEY_TYPES, strict=True)]
    return pa.Table.from_arrays([*keys, *table.columns], schema=pa.schema([*_KEY_TYPES, *table.schema]))
