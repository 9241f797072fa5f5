"""Series as Parquet files with the columns of `record.schema` (zstd, one type a column in every file)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pgstrata.record.schema import (
    ADDED_COLUMNS,
    CHECKPOINT_COLUMNS,
    DEVICE_COLUMNS,
    LONGEST_RUN_S,
    POSTGRES_COLUMNS,
    PROGRESS_COLUMNS,
    SYSTEM_COLUMNS,
    WAIT_COLUMNS,
)

SERIES: Mapping[str, tuple[str, ...]] = {
    "progress": PROGRESS_COLUMNS,
    "devices": DEVICE_COLUMNS,
    "system": SYSTEM_COLUMNS,
    "postgres": POSTGRES_COLUMNS,
    "waits": WAIT_COLUMNS,
    "checkpoints": CHECKPOINT_COLUMNS,
}
"""Name of a series (and of its file, without `.parquet`) to its columns."""

_TEXT = frozenset({"device", "role", "wait_event_type", "wait_event", "kind"})


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Text columns are strings, everything else is a nullable float64."""
    return pa.schema([(c, pa.string() if c in _TEXT else pa.float64()) for c in columns])


def write_series(path: Path, series: str, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> int:
    """Writes the rows of one series (mappings by column, or values in column order); returns how many.

    A column that a mapping does not have is null; a key that is no column is a KeyError, so that nothing is lost.
    """
    columns = SERIES[series]
    schema = arrow_schema(columns)
    values: dict[str, list[Any]] = {c: [] for c in columns}
    count = 0
    for row in rows:
        count += 1
        _append(values, columns, row)
    arrays = [pa.array(values[f.name], type=f.type) for f in schema]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd")
    return count


def with_added(table: pa.Table, series: str) -> pa.Table:
    """With a column of nulls for each that the series has got since the table was written."""
    for name in ADDED_COLUMNS.get(series, ()):
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, pa.float64()))
    return table


def check_times(table: pa.Table) -> None:
    """ValueError unless every row has its time, and no time lies further from the start than a run takes."""
    for name in (n for n in table.column_names if n.endswith("t_s")):
        column = table.column(name)
        if name == "t_s" and column.null_count:
            raise ValueError("a row has no time")
        times = (column.drop_null() if column.null_count else column).to_numpy()
        if not (np.abs(times) <= LONGEST_RUN_S).all():
            raise ValueError(f"{name} holds a time more than {LONGEST_RUN_S:g} s from the start")


def _append(values: dict[str, list[Any]], columns: Sequence[str], row: Mapping[str, Any] | Sequence[Any]) -> None:
    if isinstance(row, Mapping):
        unknown = row.keys() - values.keys()
        if unknown:
            raise KeyError(f"not a column of the series: {', '.join(sorted(unknown))}")
        for column in columns:
            values[column].append(row.get(column))
        return
    for column, value in zip(columns, row, strict=True):
        values[column].append(value)
