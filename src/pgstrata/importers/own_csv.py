"""Import of a table written by `pgstrata report --format csv`: the same cells, runs and metrics.

The table does not contain the specification of the stacks, series, or facts of the host; the import lacks them.
Unsuccessful trials are counted as left out. Confirmation is lost: an import is never confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pgstrata.errors import UsageError
from pgstrata.importers.runs import ImportedCell, ImportedTrial, imported_stack
from pgstrata.record.run_columns import (
    CELL_COLUMNS,
    COLUMNS,
    DURABILITY,
    FIRST_COLUMNS,
    LOAD_COLUMNS,
    METRIC_PREFIX,
    PERCENTILES,
    RESULT_COLUMNS,
    metric_column,
)
from pgstrata.record.schema import CellResult, HostFacts, LoadRecord, SpaceRecord
from pgstrata.spec.campaign import Stage
from pgstrata.spec.layers.imported import Imported
from pgstrata.spec.printable import spreadsheet_source

_STAGE: TypeAdapter[Stage] = TypeAdapter(Stage)

Fields = Mapping[str, str]
"""Non-empty fields of one row."""


@dataclass(frozen=True)
class OwnRows:
    """The runs of the table, by trial, and the number of rows left out for each status."""

    trials: tuple[ImportedTrial, ...]
    left_out: Counter[str]
    paired: bool


def is_own(header: Sequence[str]) -> bool:
    """Return True if `report --format csv` writes this header line."""
    return tuple(header[: len(FIRST_COLUMNS)]) == FIRST_COLUMNS


def read_own(
    header: Sequence[str], lines: Iterable[tuple[int, Sequence[str]]], facts: HostFacts, metric: str = "tps"
) -> OwnRows:
    """Read the rows that have the metric; UsageError names the first line that was changed to something impossible for
    a run."""
    left_out: Counter[str] = Counter()
    groups: dict[str, list[tuple[int, Fields]]] = {}
    for line, cells in lines:
        if len(cells) != len(header):
            raise _changed(line, f"{len(cells)} cells instead of {len(header)}")
        texts = (spreadsheet_source(text) for text in cells)
        fields = {column: text for column, text in zip(header, texts, strict=True) if text}
        if fields.get("status") == "ok" and (metric in fields or metric_column(metric) in fields):
            groups.setdefault(fields.get("trial", ""), []).append((line, fields))
        else:
            left_out[f"trial {fields.get('status', 'without a status')}"] += 1
    paired = all("block" in fields for rows in groups.values() for _, fields in rows)
    trials = [_trial(rows, facts) for rows in groups.values()]
    return OwnRows(tuple(_in_order(trials if paired else _without_blocks(trials))), left_out, paired)


def _in_order(trials: Iterable[ImportedTrial]) -> list[ImportedTrial]:
    return sorted(trials, key=lambda t: t.block)


def _without_blocks(trials: Sequence[ImportedTrial]) -> Iterable[ImportedTrial]:
    """Yield the first runs of all stacks, then the second ones, and so on."""
    seen: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for trial in trials:
        key = trial.stack.name, tuple(cell.result.cell.id for cell in trial.cells)
        yield ImportedTrial(trial.stack, seen[key], trial.cells, trial.facts, trial.load, stage=trial.stage)
        seen[key] += 1


def _trial(rows: Sequence[tuple[int, Fields]], facts: HostFacts) -> ImportedTrial:
    line, first = rows[0]
    space = _space(line, first)
    cells = [ImportedCell(_result(line, fields)) for line, fields in rows]
    cells[0] = ImportedCell(cells[0].result, space=space)
    try:
        stage = _STAGE.validate_python(first.get("stage", "screen"))
        return ImportedTrial(
            imported_stack(first.get("stack", ""), Imported.model_validate(_durability(first))),
            int(first.get("block", "0")),
            tuple(cells),
            facts,
            _load(first),
            stage="screen" if stage == "confirm" else stage,
        )
    except ValueError as error:
        raise _changed(line, str(error)) from None


def _durability(fields: Fields) -> dict[str, str]:
    """Return the durability; tables of earlier versions do not have it."""
    return {DURABILITY: fields[DURABILITY]} if DURABILITY in fields else {}


def _load(fields: Fields) -> LoadRecord | None:
    if "load" not in fields:
        return None
    return LoadRecord.model_validate({"how": fields["load"], "total_s": fields.get("load_s")})


def _space(line: int, fields: Fields) -> SpaceRecord | None:
    physical, database = (fields.get(column) for column in LOAD_COLUMNS[2:])
    if physical is None and database is None:
        return None
    try:
        return SpaceRecord.model_validate(
            {"moment": "after load", "physical_bytes": physical, "database_bytes": database}
        )
    except ValidationError as error:
        raise _changed(line, error.errors()[0]["msg"]) from None


def _result(line: int, fields: Fields) -> CellResult:
    values: dict[str, Any] = {name: fields[name] for name in RESULT_COLUMNS if name in fields}
    percentiles = {p: fields[f"latency_{p}_ms"] for p in PERCENTILES if f"latency_{p}_ms" in fields}
    extra = {c.removeprefix(METRIC_PREFIX): text for c, text in fields.items() if c not in COLUMNS}
    cell = {name: fields[name] for name in CELL_COLUMNS if name in fields}
    try:
        return CellResult.model_validate(
            {**values, "cell": cell, "started": "", "percentiles_ms": percentiles, "extra": extra}
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _changed(line, f"{where}: {first['msg']}") from None


def _changed(line: int, why: str) -> UsageError:
    return UsageError(
        f"line {line} is no row that pgstrata wrote: {why}",
        hint="write the table anew with pgstrata report DIR --format csv, or name its columns as docs/import.md says",
    )
