"""`pgstrata import csv`: one row a run, `stack`, optional `block`, and metric columns.

Rows of a block are one randomised round; without a `block` column the runs are unpaired, and the report warns that they
are not protected from drift. `scale`, `clients` and `script` columns span a grid. A column of texts is a label of the
runs: it stands with the facts of their trials. A table with any fault is rejected as
a whole, with every fault named by its line; `skip_bad_rows` omits faulty rows instead and counts them by reason.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pgstrata.errors import UsageError
from pgstrata.importers.runs import (
    ImportedCell,
    ImportedTrial,
    ImportSummary,
    imported_cell,
    imported_facts,
    imported_result,
    imported_stack,
    write_campaign,
)
from pgstrata.record.schema import (
    CELL_COLUMNS,
    COLUMNS,
    DURABILITY,
    FIRST_COLUMNS,
    LOAD_COLUMNS,
    METRIC_PREFIX,
    PERCENTILES,
    RESULT_COLUMNS,
    CellResult,
    HostFacts,
    LoadRecord,
    SpaceRecord,
    metric_column,
)
from pgstrata.spec.campaign import Goal, Stage
from pgstrata.spec.layers.not_built import Imported
from pgstrata.spec.printable import plain_name, spreadsheet_source
from pgstrata.spec.workload import Cell

KEYS = ("stack", "block", "script", "scale", "clients")
RESULTS = (
    "tps", "latency_avg_ms", "latency_stddev_ms", "initial_connection_ms", "transactions", "duration_s", "wal_bytes",
)  # fmt: skip
"""Columns that are fields of a result; every other numeric column is a metric of its own."""
_WHOLE = ("transactions", "wal_bytes")
METRICS = (*RESULTS, "latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "load_s", "space_physical_bytes")
_LATENCY = re.compile(r"latency_(p\d+|max|min|median)_ms")
_MAX_SHOWN = 20
LARGEST = 1e15
LARGEST_TABLE_BYTES = 64 << 20


@dataclass(frozen=True)
class _Row:
    line: int
    stack: str
    block: int | None
    cell: Cell
    values: dict[str, float]
    labels: dict[str, str]


@dataclass
class _Faults:
    """Faults by line, in words; counts are kept by reason (without its particulars)."""

    found: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, line: int, reason: str, particulars: str = "") -> None:
        self.found.append((line, reason, particulars))

    @property
    def rows(self) -> str:
        """Number of bad rows: `1 bad row`, `3 bad rows`."""
        count = len({line for line, _, _ in self.found})
        return f"{count} bad row{'' if count == 1 else 's'}"

    @property
    def text(self) -> str:
        lines = [f"line {line}: {reason}{': ' if more else ''}{more}" for line, reason, more in sorted(self.found)]
        hidden = len(lines) - _MAX_SHOWN
        return "\n  ".join([*lines[:_MAX_SHOWN], *([f"and {hidden} more"] if hidden > 0 else [])])


def import_csv(
    path: Path,
    out: Path,
    *,
    margin: float = 0.02,
    skip_bad_rows: bool = False,
    metric: str = "tps",
) -> ImportSummary:
    """Import the table at `path` into the new campaign directory `out`; `margin` is a share (0.05 for 5 %),
    and `metric` the column that verdicts are about."""
    if not 0 < margin < 1:
        raise UsageError(f"margin {margin:g} is not between 0 and 1", hint="for example --margin 5%")
    content = _read(path)
    written, lines = _parse_table(path, content)
    if is_own(written):
        found = read_own([spreadsheet_source(column) for column in written], lines, _facts(path), metric)
        if not found.trials:
            raise UsageError(
                f"{path}: no row with a run that has {metric}",
                hint="name the metric of the table with --metric, or export a campaign with runs",
            )
    else:
        found = _read_table(path, [column.lower() for column in written], lines, metric, skip_bad_rows)
    return write_campaign(
        found.trials,
        out,
        name=path.stem,
        origin="import csv",
        paired=found.paired,
        goal=Goal(kind="all-pairs", primary=metric, margin=margin),
        rejected=found.left_out,
        notices=found.notices,
        sources={path.name: content},
    )


@dataclass(frozen=True)
class TableRuns:
    """The runs of a table, by trial, and the number of rows left out by their reason or status."""

    trials: Sequence[ImportedTrial]
    left_out: Counter[str]
    paired: bool
    notices: tuple[str, ...] = ()


def _read_table(
    path: Path, header: Sequence[str], lines: Sequence[tuple[int, list[str]]], metric: str, skip_bad_rows: bool
) -> TableRuns:
    _check_header(path, header, metric)
    faults = _Faults()
    labels = _label_columns(header, [cells for _, cells in lines])
    rows = [row for line, cells in lines if (row := _parse_row(line, header, cells, labels, faults)) is not None]
    rows = list(_without_duplicates(rows, faults))
    if faults.found and not skip_bad_rows:
        others = "or leave them out with --skip-bad-rows (they are counted in the report)"
        raise UsageError(
            f"{path}: {faults.rows}, nothing was imported\n  {faults.text}",
            hint=f"mend the rows, {others if rows else 'there is no other'}",
        )
    if not rows:
        raise UsageError(f"{path}: no row with a run", hint="one row a run: stack, optional block, tps")
    rejected, paired = Counter(reason for _, reason, _ in faults.found), "block" in header
    return TableRuns(_trials(path, rows), rejected, paired, tuple(_notices(rows, paired)))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TABLE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="name a CSV file") from None
    if len(content) > LARGEST_TABLE_BYTES:
        raise UsageError(f"{path} is larger than {LARGEST_TABLE_BYTES >> 20} MiB", hint="import it in parts")
    return content


def _parse_table(path: Path, content: bytes) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: byte {error.start} is not UTF-8", hint="save the table as UTF-8: iconv -t UTF-8 FILE"
        ) from None
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    lines = []
    try:
        for cells in reader:
            if any(c.strip() for c in cells):
                lines.append((reader.line_num, [c.strip() for c in cells]))
    except csv.Error as error:
        raise UsageError(f"{path}: line {reader.line_num}: {error}", hint="check the quotes of that line") from None
    if not lines:
        raise UsageError(f"{path} is empty", hint="the first line names the columns: stack,block,tps")
    return lines[0][1], lines[1:]


def _check_header(path: Path, header: Sequence[str], metric: str) -> None:
    twice = [c for c, n in Counter(header).items() if n > 1]
    if twice:
        raise UsageError(f"{path}: column {twice[0]!r} is there twice", hint="rename or remove one of them")
    if "" in header:
        raise UsageError(f"{path}: column {header.index('') + 1} has no name", hint="name it in the first line")
    for wanted in ("stack", metric):
        if wanted not in header:
            near = difflib.get_close_matches(wanted, header, n=1)
            hint = f"rename {near[0]!r} to {wanted!r}" if near else "the first line names the columns: stack,block,tps"
            if wanted == metric and not near:
                hint += ", or another metric with --metric NAME"
            raise UsageError(f"{path}: there is no column {wanted!r} (there are: {', '.join(header)})", hint=hint)
    for column in header:
        near = difflib.get_close_matches(column, (*KEYS, *METRICS), n=1, cutoff=0.85)
        # p90, p999, max ... are metrics of their own, however similar their names are to another's
        if column not in (*KEYS, *METRICS) and near and _LATENCY.fullmatch(column) is None:
            raise UsageError(f"{path}: unknown column {column!r}", hint=f"did you mean {near[0]!r}?")


def _label_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> frozenset[str]:
    """Return the columns that no known metric has the name of and that hold texts alone: a single number among them
    makes the others mistakes, and so does a number with separators."""
    own = {at: column for at, column in enumerate(header) if column not in (*KEYS, *METRICS)}
    texts = {column: [cells[at] for cells in rows if at < len(cells) and cells[at]] for at, column in own.items()}
    return frozenset(
        column
        for column, found in texts.items()
        if found and _LATENCY.fullmatch(column) is None and not any(map(_resembles_number, found))
    )


def _resembles_number(text: str) -> bool:
    """Return True for numbers, also misspelt ones, and for signs of a missing one; `6.1.0` is a text."""
    return re.fullmatch(r"[-+]?[\d,]*\.?\d*(e[-+]?\d+)?|nan|inf|infinity|n/a|-", text, re.IGNORECASE) is not None


def _parse_row(
    line: int, header: Sequence[str], cells: Sequence[str], labels: frozenset[str], faults: _Faults
) -> _Row | None:
    if len(cells) != len(header):
        faults.add(line, "wrong number of cells", f"{len(cells)} instead of {len(header)}")
        return None
    by_column = dict(zip(header, cells, strict=True))
    before = len(faults.found)
    for column in (c for c, text in by_column.items() if not text and c not in labels):
        faults.add(line, "missing cell", f"column {column!r}")
    for column in ("stack", "script"):
        if by_column.get(column) and (problem := _name_problem(by_column[column])):
            faults.add(line, "not a name", f"column {column!r}: {problem}")
    figures = {c: text for c, text in by_column.items() if text and c not in ("stack", "script", *labels)}
    numbers = {c: _number(line, c, text, faults) for c, text in figures.items()}
    if len(faults.found) > before:
        return None
    found = {c: n for c, n in numbers.items() if n is not None}
    cell = imported_cell(by_column.get("script", "imported"), int(found.get("scale", 0)), int(found.get("clients", 0)))
    block = int(found["block"]) if "block" in found else None
    own = {c: text for c, text in by_column.items() if text and c in labels}
    return _Row(line, by_column["stack"], block, cell, {c: n for c, n in found.items() if c not in KEYS}, own)


def _name_problem(text: str) -> str | None:
    try:
        plain_name(text)
    except ValueError as error:
        return str(error)
    return None


def _comma(text: str) -> str:
    """Suggest a correction for a number with separators: `17,339` is taken for thousands, as is `17 339`."""
    if re.fullmatch(r"-?\d{1,3}([,'\s]\d{3})+([.,]\d+)?", text.strip()):
        return " (write numbers without separators of thousands)"
    return " (use a point for decimals)" if "," in text else ""


def _number(line: int, column: str, text: str, faults: _Faults) -> float | None:
    try:
        value = float(text)
    except ValueError:
        comma = _comma(text)
        faults.add(line, "not a number", f"{text!r} in column {column!r}{comma}")
        return None
    if not math.isfinite(value):
        faults.add(line, "not a finite number", f"{text!r} in column {column!r}")
        return None
    if abs(value) > LARGEST:
        faults.add(line, "too large", f"{text[:30]!r} in column {column!r}")
        return None
    if value < 0 and column != "tps" and (column in METRICS or _LATENCY.fullmatch(column)):
        faults.add(line, "negative", f"{text!r} in column {column!r}")
        return None
    if column == "tps" and value <= 0:
        faults.add(line, "tps is not positive", text)
        return None
    if column in ("block", "scale", "clients", *_WHOLE) and (value != int(value) or value < 0):
        faults.add(line, "not a whole number", f"{text!r} in column {column!r}")
        return None
    return value


def _without_duplicates(rows: Sequence[_Row], faults: _Faults) -> Iterator[_Row]:
    """Yield rows without duplicates: a stack runs once per block and cell; without blocks, every row is a run."""
    first: dict[tuple[str, int, str], int] = {}
    for row in rows:
        if row.block is None:
            yield row
            continue
        key = (row.stack, row.block, row.cell.id)
        if key in first:
            faults.add(
                row.line, "duplicate run", f"stack {row.stack!r} in block {row.block}, also in line {first[key]}"
            )
            continue
        first[key] = row.line
        yield row


def _facts(path: Path, labels: Mapping[str, str] | None = None) -> HostFacts:
    return imported_facts({**(labels or {}), "source": path.name})


def _trials(path: Path, rows: Sequence[_Row]) -> list[ImportedTrial]:
    blocks = {block: at for at, block in enumerate(sorted({row.block for row in rows if row.block is not None}))}
    seen: Counter[tuple[str, str]] = Counter()
    trials = []
    for row in rows:
        key = (row.stack, row.cell.id)
        block = seen[key] if row.block is None else blocks[row.block]
        seen[key] += 1
        trials.append(
            ImportedTrial(
                imported_stack(row.stack), block, (ImportedCell(_result(path, row)),), _facts(path, row.labels)
            )
        )
    return sorted(trials, key=lambda t: t.block)


def _result(path: Path, row: _Row) -> CellResult:
    known = {c: int(v) if c in _WHOLE else v for c, v in row.values.items() if c in RESULTS}
    percentiles = {
        c.removeprefix("latency_").removesuffix("_ms"): v for c, v in row.values.items() if c.startswith("latency_p")
    }
    extra = {c: v for c, v in row.values.items() if c not in RESULTS and not c.startswith("latency_p")}
    fields = {"transactions": 0, "duration_s": 0.0, **known}
    return imported_result(
        f"{path}: line {row.line}", cell=row.cell, started="", percentiles_ms=percentiles, extra=extra, **fields
    )


def _notices(rows: Sequence[_Row], paired: bool) -> Iterator[str]:
    stacks = {row.stack for row in rows}
    if len(stacks) == 1:
        yield f"there is one stack only ({next(iter(stacks))}): nothing can be compared"
    if paired and len({row.block for row in rows}) == 1:
        yield "there is one block only: single runs give no verdicts"
    if not paired:
        yield "there is no block column: the runs are unpaired, nothing protects them from drift of the machine"
    twice = [k for k, n in Counter((r.stack, r.cell.id, tuple(r.values.items())) for r in rows).items() if n > 1]
    if twice:
        are = "row is" if len(twice) == 1 else "rows are"
        yield f"{len(twice)} {are} there more than once with the very same figures (stack {twice[0][0]}): kept"


# ---------------------------------------------------------------- tables that `report --format csv` wrote

_STAGE: TypeAdapter[Stage] = TypeAdapter(Stage)

Fields = Mapping[str, str]
"""Non-empty fields of one row."""


def is_own(header: Sequence[str]) -> bool:
    """Return True if `report --format csv` writes this header line."""
    return tuple(header[: len(FIRST_COLUMNS)]) == FIRST_COLUMNS


def read_own(
    header: Sequence[str], lines: Iterable[tuple[int, Sequence[str]]], facts: HostFacts, metric: str = "tps"
) -> TableRuns:
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
    in_order = sorted(trials if paired else _without_blocks(trials), key=lambda t: t.block)
    return TableRuns(tuple(in_order), left_out, paired)


def _without_blocks(trials: Sequence[ImportedTrial]) -> Iterable[ImportedTrial]:
    """Yield the first runs of all stacks, then the second ones, and so on."""
    seen: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for trial in trials:
        key = trial.stack.name, tuple(cell.result.cell.id for cell in trial.cells)
        yield replace(trial, block=seen[key])
        seen[key] += 1


def _trial(rows: Sequence[tuple[int, Fields]], facts: HostFacts) -> ImportedTrial:
    line, first = rows[0]
    space = _space(line, first)
    durability = {name: text for name, text in first.items() if name == DURABILITY}  # not in tables of earlier versions
    cells = [ImportedCell(_own_result(line, fields)) for line, fields in rows]
    cells[0] = ImportedCell(cells[0].result, space=space)
    try:
        stage = _STAGE.validate_python(first.get("stage", "screen"))
        return ImportedTrial(
            imported_stack(first.get("stack", ""), Imported.model_validate(durability)),
            int(first.get("block", "0")),
            tuple(cells),
            facts,
            _load(first),
            stage="screen" if stage == "confirm" else stage,
        )
    except ValueError as error:
        raise _changed(line, str(error)) from None


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


def _own_result(line: int, fields: Fields) -> CellResult:
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
