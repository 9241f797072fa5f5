"""Tidy CSV: one row a run, every trial's, whatever its status, and one for each trial that measured nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from pgstrata.record.reader import CampaignData, CellData, TrialData
from pgstrata.spec.printable import spreadsheet_text

_TRIAL = ("stack", "block", "position", "stage", "trial", "status", "reason")
_CELL = ("script", "scale", "clients")
_RESULT = (
    "duration_s", "transactions", "tps", "latency_avg_ms", "latency_stddev_ms", "initial_connection_ms", "lag_avg_ms",
    "failed", "retried", "skipped", "late", "wal_bytes", "checkpoints", "open_loop",
)  # fmt: skip
_PERCENTILES = ("p50", "p95", "p99", "p999")
_OF_TRIAL = ("load", "load_s", "space_physical_bytes", "space_database_bytes")


def render_csv(data: CampaignData) -> str:
    """Header and rows; what was not measured is an empty field. Units are in the column names."""
    extra = tuple(sorted({name for cell in data.cells(valid_only=False) for name in cell.result.extra}))
    percentiles = tuple(f"latency_{p}_ms" for p in _PERCENTILES)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(c) for c in (*_TRIAL, *_CELL, *_RESULT, *percentiles, *_OF_TRIAL, *extra)])
    for trial in data.trials:
        writer.writerows([_cell(value) for value in row] for row in _rows(trial, extra))
    width = len(_TRIAL) + len(_CELL) + len(_RESULT) + len(percentiles) + len(_OF_TRIAL) + len(extra)
    for lost in data.unreadable:
        row = [None, None, None, None, lost.id, "unreadable", lost.reason]
        writer.writerow([_cell(value) for value in (*row, *[None] * (width - len(row)))])
    return out.getvalue()


def _cell(value: Any) -> Any:
    return spreadsheet_text(value) if isinstance(value, str) else value


def _rows(trial: TrialData, extra: tuple[str, ...]) -> Iterator[list[Any]]:
    head = [trial.trial.stack, trial.trial.block, trial.trial.position, trial.trial.stage, trial.id]
    head += [trial.verdict.status, trial.verdict.reason]
    for cell in trial.cells:
        yield [*head, *_cell_values(cell), *_trial_values(trial), *(cell.result.extra.get(name) for name in extra)]
    if not trial.cells:
        empty = [None] * (len(_CELL) + len(_RESULT) + len(_PERCENTILES))
        yield [*head, *empty, *_trial_values(trial), *(None for _ in extra)]


def _cell_values(cell: CellData) -> list[Any]:
    result = cell.result
    values: list[Any] = [cell.cell.script, cell.cell.scale, cell.cell.clients]
    values += [getattr(result, name) for name in _RESULT]
    return values + [result.percentiles_ms.get(p) for p in _PERCENTILES]


def _trial_values(trial: TrialData) -> list[Any]:
    space = trial.space_after("after load")
    return [
        trial.load.how if trial.load else None,
        trial.load.total_s if trial.load else None,
        space.physical_bytes if space else None,
        space.database_bytes if space else None,
    ]
