"""Series as Parquet files with the columns of `record.schema` (zstd, one type a column in every file)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pgstrata.record.parquet_file import FLOAT, TEXT, Table, Values, render_parquet
from pgstrata.record.schema import (
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
def series_kinds(series: str) -> Mapping[str, str]:
    """The kind of each column of a series: text, or a number that may be missing."""
    return {column: TEXT if column in _TEXT else FLOAT for column in SERIES[series]}


def write_series(path: Path, series: str, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> int:
    """Writes the rows of one series (mappings by column, or values in column order); returns how many.

    A column that a mapping does not have is null; a key that is no column is a KeyError, so that nothing is lost.
    """
    columns = SERIES[series]
    values: dict[str, list[Any]] = {c: [] for c in columns}
    count = 0
    for row in rows:
        count += 1
        _append(values, columns, row)
    write_parquet(path, series_kinds(series), [values])
    return count


def write_parquet(path: Path, kinds: Mapping[str, str], tables: Iterable[Values]) -> None:
    """Writes a file with a group of rows for each table."""
    with path.open("wb") as file:
        file.writelines(render_parquet(kinds, tables))


def empty_table(series: str) -> Table:
    """A table without rows."""
    return {name: np.zeros(0, object if kind == TEXT else float) for name, kind in series_kinds(series).items()}


def check_times(table: Table) -> None:
    """ValueError unless every row has its time, and no time lies further from the start than a run takes."""
    for name in (n for n in table if n.endswith("t_s")):
        times = table[name]
        if name == "t_s" and np.isnan(times).any():
            raise ValueError("a row has no time")
        if (np.abs(times) > LONGEST_RUN_S).any():
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
