"""The tidy tables of a campaign: one row a run, one row a second, with trial, stack, block and cell beside each.

`pgstrata.load(directory)` for notebooks, `pgstrata export` for files.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgstrata.errors import extra
from pgstrata.record.parquet import FLOAT, INTEGER, SERIES, TEXT, Values, series_kinds, write_parquet
from pgstrata.record.reader import CampaignData, CellData, TrialData, read
from pgstrata.record.schema import PERCENTILES
from pgstrata.spec.printable import spreadsheet_text

if TYPE_CHECKING:
    import pyarrow as pa


_KEY_KINDS = {"trial": TEXT, "stack": TEXT, "block": INTEGER, "cell": TEXT}

_RUN_FIGURES = (
    "duration_s", "tps", "latency_avg_ms", "latency_stddev_ms", "initial_connection_ms", "lag_avg_ms",
)  # fmt: skip
_RUN_COUNTS = ("transactions", "failed", "retried", "skipped", "late", "wal_bytes", "checkpoints")


@dataclass(frozen=True)
class Frames:
    """Tables of one campaign; series are read when asked for."""

    data: CampaignData

    def runs(self) -> pa.Table:
        """One row for each measured run, also those of trials that failed later (see `status`)."""
        return _arrow(_RUNS, self._runs())

    def trials(self) -> pa.Table:
        """One row for each trial, with verdict, load time and its phases."""
        return _arrow(_TRIALS, self._trials())

    def batches(self, series: str) -> Iterator[pa.Table]:
        """A series (`progress`, `devices`, ...), one table a run, so that any length streams."""
        return (_arrow(_series_kinds(series), table) for table in self._batches(series))

    def series(self, series: str) -> pa.Table:
        """A whole series in memory."""
        none = _arrow(_series_kinds(series), dict.fromkeys(_series_kinds(series), ()))  # refuses without the extra
        import pyarrow as pa

        return pa.concat_tables([none, *self.batches(series)])

    def export(self, folder: Path) -> tuple[Path, ...]:
        """Writes every table into `folder`: runs and trials as CSV and Parquet, series as Parquet."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, kinds, table in (("runs", _RUNS, self._runs()), ("trials", _TRIALS, self._trials())):
            with (folder / f"{name}.csv").open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(table)
                for row in zip(*table.values(), strict=True):
                    writer.writerow([spreadsheet_text(v) if isinstance(v, str) else v for v in row])
            write_parquet(folder / f"{name}.parquet", kinds, [table])
            written += [folder / f"{name}.csv", folder / f"{name}.parquet"]
        for name in SERIES:
            path = folder / f"{name}.parquet"
            write_parquet(path, _series_kinds(name), self._batches(name))
            written.append(path)
        return tuple(written)

    def _runs(self) -> Values:
        return _columns(_RUNS, [_run_row(trial, cell) for trial in self.data.trials for cell in trial.cells])

    def _trials(self) -> Values:
        rows = [_trial_row(trial) for trial in self.data.trials]
        rows += [{"trial": t.id, "status": "unreadable", "reason": t.reason} for t in self.data.unreadable]
        return _columns(_TRIALS, rows)

    def _batches(self, series: str) -> Iterator[Values]:
        for cell in self.data.cells(valid_only=False):
            if cell.has(series):
                table = cell.table(series)
                values = (cell.trial_id, cell.stack, cell.block, cell.id)
                rows = len(next(iter(table.values())))
                keys = {key: [value] * rows for key, value in zip(_KEY_KINDS, values, strict=True)}
                yield {**keys, **table}


def load_frames(directory: Path) -> Frames:
    """The tables of a campaign directory or zip; UsageError when it is none."""
    return Frames(read(directory))


_TRIALS = {
    **dict.fromkeys(("trial", "stack"), TEXT),
    **dict.fromkeys(("block", "position"), INTEGER),
    "stage": TEXT,
    "scale": INTEGER,
    **dict.fromkeys(("status", "reason", "started"), TEXT),
    "duration_s": FLOAT,
    "load": TEXT,
    "load_s": FLOAT,
    **dict.fromkeys(("space_physical_bytes", "space_database_bytes"), INTEGER),
}
_RUNS = {
    **_KEY_KINDS,
    "script": TEXT,
    **dict.fromkeys(("scale", "clients"), INTEGER),
    "status": TEXT,
    **dict.fromkeys(_RUN_FIGURES, FLOAT),
    **dict.fromkeys(_RUN_COUNTS, INTEGER),
    **{f"latency_{name}_ms": FLOAT for name in PERCENTILES},
}


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
    return row | {f"latency_{name}_ms": result.percentiles_ms.get(name) for name in PERCENTILES}


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


def _series_kinds(series: str) -> dict[str, str]:
    return {**_KEY_KINDS, **series_kinds(series)}


def _columns(kinds: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Values:
    return {name: [row.get(name) for row in rows] for name in kinds}


def _arrow(kinds: Mapping[str, str], table: Values) -> pa.Table:
    with extra("arrow", "a table in Python"):
        import pyarrow as pa
    types = {TEXT: pa.string(), INTEGER: pa.int64(), FLOAT: pa.float64()}
    arrays = [pa.array(table[name], types[kind], from_pandas=True) for name, kind in kinds.items()]
    return pa.Table.from_arrays(arrays, names=list(kinds))
