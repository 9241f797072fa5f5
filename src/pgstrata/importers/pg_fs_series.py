"""Series of the pg-fs-benchmark layout: cumulative counters sampled about once a second, `|`-separated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from pgstrata.errors import UsageError

Row = tuple[float | str | None, ...]
_UNKNOWN = (None,) * 6


@dataclass(frozen=True)
class Throughput:
    """Rows of `progress`: transactions per second between two samples, at the time of the later one."""

    start_epoch_s: float | None
    rows: tuple[Row, ...]


def read_throughput(path: Path, rejected: Counter[str]) -> Throughput:
    """Return delta xact_commit / delta epoch of the database that committed most."""
    table = _read(path, ("epoch", "datname", "xact_commit"), rejected)
    best: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    for name in table.column("datname").unique().to_pylist():
        own = table.filter(pa.compute.equal(table.column("datname"), name))
        epoch, commits = _floats(own, "epoch"), _floats(own, "xact_commit")
        if epoch.size > 1 and (best is None or np.ptp(commits) > np.ptp(best[1])):
            best = epoch, commits
    if best is None:
        rejected["stat-database.csv with fewer than two samples"] += 1
        return Throughput(None, ())
    epoch, commits = best
    steps_s = np.diff(epoch)
    if (steps_s <= 0).any():
        rejected["sample of stat-database.csv that does not go forward in time"] += int((steps_s <= 0).sum())
        keep = np.concatenate([[True], steps_s > 0])
        epoch, commits = epoch[keep], commits[keep]
        steps_s = np.diff(epoch)
    tps = np.diff(commits) / steps_s
    times = epoch[1:] - epoch[0]
    return Throughput(
        float(epoch[0]), tuple((t, v, *_UNKNOWN) for t, v in zip(times.tolist(), tps.tolist(), strict=True))
    )


def read_checkpoints(path: Path, start_epoch_s: float, rejected: Counter[str]) -> Iterator[Row]:
    """Yield one row per checkpoint: start when its counter rose, end when its write time was next added.

    PostgreSQL counts a checkpoint when it starts and adds its write and sync times when it ends
    (src/backend/access/transam/xlog.c, checkpointer.c; majors up to 16).
    """
    columns = (
        "epoch", "checkpoints_timed", "checkpoints_req", "checkpoint_write_time", "checkpoint_sync_time",
        "buffers_checkpoint",
    )  # fmt: skip
    table = _read(path, columns, rejected)
    epoch, timed, requested, write_ms, sync_ms, buffers = (_floats(table, c) for c in columns)
    begun = np.flatnonzero((np.diff(timed) > 0) | (np.diff(requested) > 0)) + 1
    ended = np.flatnonzero(np.diff(write_ms) > 0) + 1
    for start in begun.tolist():
        later = ended[ended > start]
        if later.size == 0:
            continue
        end = int(later[0])
        write_s = float(write_ms[end] - write_ms[end - 1]) / 1000
        sync_s = float(sync_ms[end] - sync_ms[end - 1]) / 1000
        kind = "timed" if timed[start] > timed[start - 1] else "requested"
        begin_t_s, end_t_s = float(epoch[start]) - start_epoch_s, float(epoch[end]) - start_epoch_s
        yield begin_t_s, end_t_s, kind, float(buffers[end] - buffers[start - 1]), write_s, sync_s, end_t_s - begin_t_s


def _floats(table: pa.Table, column: str) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = table.column(column).to_numpy().astype(np.float64)
    return values


def _read(path: Path, columns: Sequence[str], rejected: Counter[str]) -> pa.Table:
    """Read the named columns; lines with another number of fields (a torn last line) are omitted and counted."""

    def torn(row: pa.csv.InvalidRow) -> str:
        rejected[f"torn line of {path.name}"] += 1
        return "skip"

    types = {c: pa.string() if c == "datname" else pa.float64() for c in columns}
    try:
        table = pa.csv.read_csv(
            path,
            read_options=pa.csv.ReadOptions(use_threads=False),
            parse_options=pa.csv.ParseOptions(delimiter="|", invalid_row_handler=torn),
            convert_options=pa.csv.ConvertOptions(include_columns=list(columns), column_types=types),
        )
    except (pa.ArrowInvalid, KeyError) as error:
        raise UsageError(f"{path}: {error}", hint="the first line names the columns, separated by |") from None
    whole = table.drop_null()
    if whole.num_rows < table.num_rows:
        rejected[f"line of {path.name} with an empty cell"] += table.num_rows - whole.num_rows
    return whole
