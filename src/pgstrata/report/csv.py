"""Tidy CSV: one row per run of every trial, whatever its status, and one for each trial that measured nothing.

`pgstrata import csv` imports it again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from pgstrata.analyze.campaign.evidence import find_durability
from pgstrata.analyze.crash import effective_durability
from pgstrata.record.reader import CampaignData, CellData, TrialData
from pgstrata.record.run_columns import (
    CELL_COLUMNS,
    COLUMNS,
    PERCENTILE_COLUMNS,
    PERCENTILES,
    RESULT_COLUMNS,
    metric_column,
)
from pgstrata.spec.printable import spreadsheet_text


def render_csv(data: CampaignData) -> str:
    """Return header and rows; unmeasured values are empty fields. Units are in the column names."""
    extra = tuple(sorted({name for cell in data.cells(valid_only=False) for name in cell.result.extra}))
    found = find_durability(data, {trial.trial.stack: trial.stack for trial in data.trials})
    classes = {name: effective_durability(durability) for name, durability in found.items()}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header = (*COLUMNS, *(metric_column(name) for name in extra))
    writer.writerow([_cell(c) for c in header])
    for trial in data.trials:
        rows = _rows(trial, extra, classes[trial.trial.stack], paired=data.record.paired)
        writer.writerows([_cell(value) for value in row] for row in rows)
    for lost in data.unreadable:
        row = [None, None, None, None, lost.id, "unreadable", lost.reason]
        writer.writerow([_cell(value) for value in (*row, *[None] * (len(header) - len(row)))])
    return out.getvalue()


def _cell(value: Any) -> Any:
    return spreadsheet_text(value) if isinstance(value, str) else value


def _rows(trial: TrialData, extra: tuple[str, ...], durability: str, *, paired: bool) -> Iterator[list[Any]]:
    """Yield the rows of a trial; unpaired runs have no block."""
    block = trial.trial.block if paired else None
    head = [trial.trial.stack, block, trial.trial.position, trial.trial.stage, trial.id]
    head += [trial.verdict.status, trial.verdict.reason]
    for cell in trial.cells:
        further = (cell.result.extra.get(name) for name in extra)
        yield [*head, *_cell_values(cell), *_trial_values(trial), durability, *further]
    if not trial.cells:
        empty = [None] * (len(CELL_COLUMNS) + len(RESULT_COLUMNS) + len(PERCENTILE_COLUMNS))
        yield [*head, *empty, *_trial_values(trial), durability, *(None for _ in extra)]


def _cell_values(cell: CellData) -> list[Any]:
    result = cell.result
    values: list[Any] = [getattr(cell.cell, name) for name in CELL_COLUMNS]
    values += [getattr(result, name) for name in RESULT_COLUMNS]
    return values + [result.percentiles_ms.get(p) for p in PERCENTILES]


def _trial_values(trial: TrialData) -> list[Any]:
    space = trial.space_after("after load")
    return [
        trial.load.how if trial.load else None,
        trial.load.total_s if trial.load else None,
        space.physical_bytes if space else None,
        space.database_bytes if space else None,
    ]
