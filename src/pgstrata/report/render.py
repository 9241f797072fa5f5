"""The single entry of this package: takes findings and record, returns texts and files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pgstrata.analyze.campaign.evidence import find_durability
from pgstrata.analyze.crash import effective_durability
from pgstrata.analyze.findings import Findings
from pgstrata.errors import PreflightError, UsageError, extra
from pgstrata.record.reader import CampaignData, CellData, TrialData
from pgstrata.record.schema import (
    CELL_COLUMNS,
    COLUMNS,
    PERCENTILE_COLUMNS,
    PERCENTILES,
    RESULT_COLUMNS,
    metric_column,
)
from pgstrata.report.sentences.statements import comparison_words, warning_words
from pgstrata.report.sentences.summary import cell_words
from pgstrata.report.sentences.why import profile_words, profiles_of, why_words
from pgstrata.spec.printable import spreadsheet_text

Format = Literal["html", "json", "md", "csv", "png", "svg"]
FORMATS: tuple[str, ...] = get_args(Format)
PICTURES = frozenset({"png", "svg"})


@dataclass(frozen=True)
class Rendered:
    """The results: texts by format (json, md, csv), and written files (html, png, svg)."""

    texts: dict[str, str] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()


def render(data: CampaignData, findings: Findings, formats: Sequence[str], out: Path) -> Rendered:
    """Render each format; html goes to OUT/report.html, pictures to OUT/charts.

    UsageError for an unknown format, PreflightError when OUT cannot be written or an extra is not installed.
    """
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"unknown format {name!r}", hint=f"one of {', '.join(FORMATS)}")
    if PICTURES & set(formats):
        with extra("pictures", "a chart as PNG or SVG"):
            import altair  # noqa: F401
            import vl_convert  # noqa: F401
    texts = {name: _text(name, data, findings) for name in formats if name in ("json", "md", "csv")}
    try:
        paths = _write_files(data, findings, formats, out)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PreflightError(f"cannot write the report to {out}: {reason}", hint="choose a writable folder") from error
    return Rendered(texts, paths)


def _text(name: str, data: CampaignData, findings: Findings) -> str:
    from pgstrata.report.markdown import render_markdown

    match name:
        case "json":
            return render_json(findings)
        case "md":
            return render_markdown(data, findings)
    return render_csv(data)


def _write_files(data: CampaignData, findings: Findings, formats: Sequence[str], out: Path) -> tuple[Path, ...]:
    paths: list[Path] = []
    if "html" in formats:
        from pgstrata.report.html import write_html

        paths.append(write_html(data, findings, out / "report.html"))
    pictures = [name for name in formats if name in PICTURES]
    if pictures:
        from pgstrata.report.pictures.files import write_pictures

        paths += write_pictures(data, findings, out / "charts", pictures)
    return tuple(paths)


# ---------------------------------------------------------------- JSON (docs/reference/report-json.md)


def report_value(findings: Findings) -> dict[str, Any]:
    """Return the findings as plain values, with their sentences; non-finite numbers become null, which JSON
    requires."""
    value: dict[str, Any] = json.loads(findings.model_dump_json(by_alias=True))
    for shown, cell in zip(value["cells"], findings.cells, strict=True):
        shown["words"] = list(cell_words(cell))
    for shown, comparison in zip(value["comparisons"], findings.comparisons, strict=True):
        shown["sentence"] = comparison_words(comparison)
        shown["warning"] = warning_words(comparison)
    by_cell = {cell.id: profiles_of(findings, cell) for cell in findings.cells}
    for shown, profile in zip(value["profiles"], findings.profiles, strict=True):
        shown["sentence"] = profile_words(profile)
    for shown, why in zip(value["whys"], findings.whys, strict=True):
        shown["sentence"] = why_words(why, by_cell[why.cell])
    return value


def render_json(findings: Findings) -> str:
    """Return one JSON document, ending in a newline."""
    return json.dumps(report_value(findings), indent=1, allow_nan=False) + "\n"


# ---------------------------------------------------------------- CSV, which `import csv` reads again


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
