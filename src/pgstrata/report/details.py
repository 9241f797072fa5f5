"""Drill-down of one stack: specification, attested facts, step timings, every trial with links to its raw files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel

from pgstrata.analyze.campaign.scale import METRICS, in_order, metric_of
from pgstrata.analyze.findings import CellFinding, Findings, StackFinding
from pgstrata.record.reader import CampaignData, CellData, TrialData
from pgstrata.record.source import FolderSource
from pgstrata.report.pictures.drawing import Sample, is_shown
from pgstrata.report.sentences.crash import durability_words
from pgstrata.report.sentences.figures import NOT_KNOWN, render_count, render_metric, render_number
from pgstrata.report.tables.settings import stack_settings
from pgstrata.report.tables.verdicts import cell_title, figure, main_cells, matched_cells
from pgstrata.spec.stack import Stack
from pgstrata.spec.units import render_duration, render_size

Row = dict[str, Any]
"""Values of a template by name."""


class Links:
    """Links to files of the campaign directory, relative to the folder of the report."""

    def __init__(self, data: CampaignData, folder: Path | None) -> None:
        self._prefix: str | None = None
        if folder is not None and isinstance(data.source, FolderSource):
            self._prefix = os.path.relpath(data.source.root.resolve(), folder.resolve())
        self._source = data.source

    def of_trial(self, trial: str, cell: str | None) -> list[Row]:
        """Return the files of the trial itself and of one of its cells; `href` is None if no link can reach a file."""
        root = f"trials/{trial}/"
        names = self._source.below(root.rstrip("/"))
        wanted = [n for n in names if not n.startswith(f"{root}cells/")]
        if cell is not None:
            wanted = [n for n in names if n.startswith(f"{root}cells/{cell}/")] + wanted
        return [{"title": n.removeprefix(root).removeprefix(f"cells/{cell}/"), "href": self.href(n)} for n in wanted]

    def href(self, name: str) -> str | None:
        """Return the link; None for a zip, or without a folder: a browser cannot open the file."""
        if self._prefix is None:
            return None
        return quote(name if self._prefix == "." else f"{self._prefix}/{name}")


def level_title(primary: str) -> str:
    """Return the title of the column with the level of each run."""
    metric = metric_of(primary)
    return "TPS" if primary in METRICS else metric.unit or metric.title


def stack_details(data: CampaignData, findings: Findings, links: Links, sample: Sample) -> list[Row]:
    """Return the details of every stack, in declared order (the order of their colours)."""
    names = list(dict.fromkeys(s.name for s in findings.stacks))
    specs = {s.name: s for s in data.campaign.stacks}
    for trial in data.trials:
        specs.setdefault(trial.trial.stack, trial.stack)
    rows = partial(_trial_rows, links, sample, findings.campaign.primary)
    return [_details(i, name, specs.get(name), data, findings, rows) for i, name in enumerate(names)]


def _details(
    index: int,
    name: str,
    spec: Stack | None,
    data: CampaignData,
    findings: Findings,
    rows: Callable[[TrialData], Iterator[Row]],
) -> Row:
    found = [s for s in findings.stacks if s.name == name]
    trials = [t for t in data.trials if t.trial.stack == name]
    first = found[0]
    return {
        "index": index,
        "name": name,
        "spec": first.spec,
        "note": spec.note if spec else "",
        "durability": durability_words(first.durability),
        "durability_reason": first.durability.reason,
        "unsupported": first.unsupported,
        "prewarmed": _prewarmed(trials),
        "settings": list(settings_of(spec)) if spec else [],
        "figures": list(_cell_figures(findings, found)),
        "server": stack_settings(trials),
        "left_out": list(dict.fromkeys(item for t in trials for item in t.planned.left_out.items())),
        "facts": _facts(trials),
        "steps": _steps(trials),
        "runs": sum(max(1, len(t.cells)) for t in trials),  # `trials` has those that are listed
        "trials": [row for t in trials for row in rows(t)],
    }


def _cell_figures(findings: Findings, found: list[StackFinding]) -> Iterator[Row]:
    """Yield every metric in each cell: title, value, interval. Shown while the cell at `index` is shown."""
    by_cell = {s.cell: s for s in found}
    for main in main_cells(findings):
        for cell in (main, *matched_cells(findings, main)):
            if cell.id in by_cell:
                rows = list(_figures(by_cell[cell.id], cell))
                yield {"title": cell_title(cell), "index": findings.cells.index(main), "rows": rows}


def _figures(stack: StackFinding, cell: CellFinding) -> Iterator[tuple[str, str, str]]:
    for name in in_order(set(stack.metrics)):
        if is_shown(name, cell):
            shown = figure(stack, name)
            yield metric_of(name).title, shown.value, shown.interval


def settings_of(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting that differs from its default, as `path` and `value`; kinds always."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if (prefix == "" and name in ("name", "note")) or value is None:
            continue
        if name == "kind" or value != field.get_default(call_default_factory=True) or isinstance(value, BaseModel):
            yield from _setting(f"{prefix}{name}", value)


def _setting(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, BaseModel):
        yield from settings_of(value, f"{path}.")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _setting(f"{path}.{key}", inner)
    elif isinstance(value, tuple) and any(isinstance(v, BaseModel) for v in value):
        for i, inner in enumerate(value):
            yield from _setting(f"{path}[{i}]", inner)
    else:
        yield path, _setting_text(path, value)


def _setting_text(path: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(str(v) for v in value)
    return render_size(value) if isinstance(value, int) and path.endswith("size") else str(value)


def _prewarmed(trials: list[TrialData]) -> str:
    methods = Counter(c.result.prewarmed for t in trials for c in t.cells if c.result.prewarmed is not None)
    return "; ".join(f"{method} ({render_count(count, 'run')})" for method, count in methods.items())


def _facts(trials: list[TrialData]) -> list[Row]:
    counts = Counter((f.what, f.expected, f.actual, f.holds) for trial in trials for f in trial.attested)
    rows = [
        {"what": what, "expected": expected, "actual": actual, "holds": holds, "count": render_count(n, "time")}
        for (what, expected, actual, holds), n in counts.items()
    ]
    return sorted(rows, key=lambda row: bool(row["holds"]))


def _steps(trials: list[TrialData]) -> list[Row]:
    times: dict[str, list[float]] = {}
    errors = Counter[str]()
    for step in (step for trial in trials for step in trial.steps):
        times.setdefault(step.name, []).append(step.duration_s)
        errors[step.name] += bool(step.error)
    return [
        {
            "name": name,
            "count": len(t),
            "median": _seconds(median(t)),
            "slowest": _seconds(max(t)),
            "errors": errors[name],
        }
        for name, t in times.items()
    ]


def _seconds(duration_s: float) -> str:
    return f"{render_number(duration_s, 2)} s" if duration_s < 60 else render_duration(duration_s)


def _trial_rows(links: Links, sample: Sample, primary: str, trial: TrialData) -> Iterator[Row]:
    """Yield the listed runs of a trial. The first carries the anchor that chart marks link to."""
    cells = [c for c in trial.cells or (None,) if (trial.id, c.id if c else "") in sample.shown]
    for at, cell in enumerate(cells):
        yield _trial_row(trial, cell, links, primary, first=at == 0)


def _trial_row(trial: TrialData, cell: CellData | None, links: Links, primary: str, *, first: bool) -> Row:
    """Return one measured run, or a trial that measured nothing. Its level is in transactions a second, or in the
    primary metric of an import that has another one."""
    verdict = trial.verdict
    result = cell.result if cell else None
    return {
        "trial": trial.id,
        "anchor": f"trial-{trial.id}" if first else None,
        "block": trial.trial.block,
        "stage": trial.trial.stage,
        "cell": cell.id if cell else NOT_KNOWN,
        "status": verdict.status,
        "reason": verdict.reason + (f" (hint: {verdict.hint})" if verdict.hint else ""),
        "level": render_number(result.extra.get(primary, result.tps) if result else None, 4),
        "latency": render_metric(result.latency_avg_ms if result else None, metric_of("latency_avg_ms")),
        "wal": render_metric(result.wal_bytes if result else None, metric_of("wal_bytes")),
        "checkpoints": render_number(result.checkpoints if result else None),
        "load": _load_text(trial),
        "files": links.of_trial(trial.id, cell.id if cell else None),
    }


def _load_text(trial: TrialData) -> str:
    if trial.load is None:
        return NOT_KNOWN
    total = trial.load.total_s
    return f"{_seconds(total) if total is not None else NOT_KNOWN} ({trial.load.how})"
