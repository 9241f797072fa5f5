"""Runs of other tools as a campaign directory, whatever the tool.

A source is `STACK=FILE` or `FILE`. Every metric keeps its name: a metric other than throughput in transactions a second
is stored in `extra`, and the primary metric of the campaign is the tool's own. Runs with different settings are
separate cells, incomplete runs are left out and counted, and runs with different metrics are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers.registry import hint_for
from pgstrata.importers.runs import (
    UNPAIRED,
    ImportedCell,
    ImportedTrial,
    ImportSummary,
    imported_cell,
    imported_facts,
    imported_result,
    imported_stack,
    write_campaign,
)
from pgstrata.importers.source import Importer, read_text
from pgstrata.record.schema import report_interval_s
from pgstrata.spec.campaign import Goal
from pgstrata.spec.printable import summarise_names
from pgstrata.workload.tool_run import ToolRun

MOST_RUNS = 100_000
_FIELDS = ("tps", "latency_avg_ms", "latency_stddev_ms")
"""Metrics that are fields of a result."""


def import_tool(
    importer: Importer, sources: Sequence[str], out: Path, *, margin: float = 0.02, metric: str | None = None
) -> ImportSummary:
    """Import the files of a tool into the new campaign directory `out`; `metric` is what verdicts are about."""
    rejected: Counter[str] = Counter()
    notices = [UNPAIRED]
    runs = [
        replace(run, source=position)
        for position, source in enumerate(sources)
        for run in _runs_of(importer, source, rejected, notices)
    ]
    _require_once(runs)
    if len(runs) > MOST_RUNS:
        raise UsageError(f"the files hold {len(runs)} runs, more than {MOST_RUNS}", hint="import them in parts")
    return write_runs(importer.name, importer.tool, runs, out, rejected, notices, margin=margin, metric=metric)


def write_runs(
    name: str,
    tool: str,
    runs: Sequence[ToolRun],
    out: Path,
    rejected: Counter[str],
    notices: list[str],
    *,
    margin: float,
    metric: str | None = None,
) -> ImportSummary:
    """Write the runs of a tool as the new campaign directory `out`; `name` is that of its import."""
    primary = metric or _primary(tool, runs)
    counted = list(_counted(runs, primary, rejected))
    trials = list(_trials(counted))
    notices += _notices(counted)
    if min(Counter(trial.stack.name for trial in trials).values()) == 1:
        notices.append("there is one run of a stack: single runs give no verdicts")
    return write_campaign(
        sorted(trials, key=lambda t: t.block),
        out,
        name=name,
        origin=f"import {name}",  # type: ignore[arg-type]
        paired=False,
        goal=Goal(kind="all-pairs", margin=margin, primary=primary),
        rejected=rejected,
        notices=tuple(dict.fromkeys(notices)),
    )


# ---------------------------------------------------------------- files


def _runs_of(importer: Importer, source: str, rejected: Counter[str], notices: list[str]) -> Iterator[ToolRun]:
    name, _, file = source.rpartition("=")
    path = Path(file)
    if not file:
        raise UsageError(
            f"{source!r} names no file", hint=f"give STACK=FILE for each file: pgstrata import {importer.name} xfs=FILE"
        )
    if importer.folders != path.is_dir():
        raise UsageError(
            f"{path} is {'no' if importer.folders else 'a'} folder, and a result of {importer.tool} is "
            f"a {'folder' if importer.folders else 'file'}",
            hint=f"give STACK={'DIR' if importer.folders else 'FILE'}: docs/import.md lists what is read",
        )
    text = "" if importer.folders else read_text(path)
    if not importer.folders and not importer.recognises(text):
        raise UsageError(
            f"{path} is no output of {importer.tool}",
            hint=hint_for(text, f"docs/import.md lists the files of {importer.tool} that are read"),
        )
    found = importer.read(path, text)
    rejected.update(found.left_out)
    notices += found.notices
    for run in found.runs:
        own = path.resolve().name if importer.folders else path.name.split(".")[0]
        stack = " ".join(part for part in (name, run.stack) if part) or own
        yield replace(run, stack=stack, raw=run.raw if importer.folders else (path, *run.raw))


def _require_once(runs: Sequence[ToolRun]) -> None:
    """Raise UsageError if a file was read for two sources: its run would count as two."""
    first: dict[Path, int] = {}
    for run in runs:
        for path in run.raw:
            if first.setdefault(path.resolve(), run.source) != run.source:
                raise UsageError(
                    f"{path} is read twice: its runs would count as others",
                    hint="give each file once, by itself or in its folder",
                )


# ---------------------------------------------------------------- runs


def _primary(tool: str, runs: Sequence[ToolRun]) -> str:
    """Return the metric of all runs; UsageError if they have different ones."""
    complete = [run for run in runs if run.figures and not run.incomplete]
    if complete and all(run.rate_tps and "latency_avg_ms" in run.figures for run in complete):
        return "latency_avg_ms"
    found = {next(iter(run.figures)) for run in complete}
    if len(found) > 1:
        raise UsageError(
            f"the files of {tool} measured different metrics: {', '.join(sorted(found))}",
            hint=f"name the one to compare: --metric {sorted(found)[0]}",
        )
    return next(iter(found), "tps")


def _counted(runs: Sequence[ToolRun], primary: str, rejected: Counter[str]) -> Iterator[ToolRun]:
    """Yield the complete runs that have the metric; UsageError if a stack has none left."""
    bad = [(run, reason) for run in runs if (reason := _fault(run, primary))]
    good = [run for run in runs if not _fault(run, primary)]
    stacks = {run.stack for run in good}
    for run, reason in bad:
        rejected[f"run: {reason}"] += 1
        if run.stack not in stacks:
            known = sorted({name for other in runs for name in other.figures})
            raise UsageError(
                f"{run.where}: {reason}, and stack {run.stack!r} has no other run",
                hint=f"these runs have: --metric {' or '.join(known)}"
                if known and primary not in known
                else "leave it out, or measure again",
            )
    yield from good


def _fault(run: ToolRun, primary: str) -> str:
    if run.incomplete or primary not in run.figures:
        return run.incomplete or f"it has no {primary}"
    return "" if run.figures[primary] > 0 else f"its {primary} is {run.figures[primary]:g}"


def _trials(runs: Sequence[ToolRun]) -> Iterator[ImportedTrial]:
    """Yield a trial per run; the n-th run of a cell of a stack is in round n."""
    seen: Counter[tuple[str, str]] = Counter()
    for run, script in zip(runs, _cell_names(runs), strict=True):
        cell = imported_cell(script, run.scale, run.clients).model_copy(update={"rate_tps": run.rate_tps})
        fields = {name: value for name, value in run.figures.items() if name in _FIELDS}
        result = imported_result(
            run.where,
            **{"started": "", "duration_s": 0.0, "transactions": 0, **run.result},
            **fields,
            cell=cell,
            open_loop=run.rate_tps is not None,
            extra={name: value for name, value in run.figures.items() if name not in _FIELDS},
        )
        series = {"progress": list(run.progress)} if run.progress else {}
        told = {key: text for key, text in {**run.traits, **run.told}.items() if text}
        imported = ImportedCell(result, series, {path.name: path for path in run.raw})
        yield ImportedTrial(imported_stack(run.stack), seen[run.stack, cell.id], (imported,), imported_facts(told))
        seen[run.stack, cell.id] += 1


def _cell_names(runs: Sequence[ToolRun]) -> list[str]:
    """Return the name of each run's cell: its script and the settings in which runs differ. Without a scale, the number
    of clients belongs to the name, as cells without a scale share the rest."""
    own = [
        {**run.traits, **({} if run.scale or not run.clients else {"clients": f"{run.clients} clients"})}
        for run in runs
    ]
    differing = set(_differing(own))
    return [
        ", ".join([run.script, *(text for key, text in traits.items() if key in differing and text)])
        for run, traits in zip(runs, own, strict=True)
    ]


def _differing(settings: Sequence[Mapping[str, str]]) -> Iterable[str]:
    """Return the settings with several values; a run without any, of a log alone, has none of them."""
    keys = dict.fromkeys(key for one in settings for key in one)
    return (key for key in keys if len({one.get(key, "") for one in settings if one}) > 1)


def _notices(runs: Sequence[ToolRun]) -> Iterator[str]:
    """Yield the settings of which runs have several values, the number of runs with a rate limit, and the intervals of
    progress that hide what happens within them."""
    for what in dict.fromkeys(key for run in runs for key in run.told):
        values = {text for run in runs if (text := run.told.get(what))}
        if len(values) > 1:
            yield f"the runs differ in {what}: {summarise_names(sorted(values))}"
    if limited := sum(run.rate_tps is not None for run in runs):
        yield f"{limited} of {len(runs)} runs have a rate limit, which decides their throughput: compare their latency"
    intervals_s = {report_interval_s([row[0] or 0.0 for row in run.progress]) for run in runs}
    if long := sorted(n for n in intervals_s if n > 1):
        shown = summarise_names([f"{n} s" for n in long])
        yield f"progress every {shown}: jitter and stalls within such an interval are not known"
