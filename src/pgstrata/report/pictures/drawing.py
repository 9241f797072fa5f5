"""Data of the charts of page and pictures: findings and record joined to rows, numbers rounded, nothing judged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from pgstrata.analyze.campaign.scale import Metric, in_order, metric_of
from pgstrata.analyze.findings import CellFinding, Findings, StackFinding
from pgstrata.record.reader import CampaignData, CellData, TrialData
from pgstrata.report.pictures.series import DeviceSeries, Resolution, RunSeries, device_series, run_series
from pgstrata.report.sentences.figures import render_count
from pgstrata.report.sentences.why import DrawnTime, drawn_times
from pgstrata.report.tables.pairs import Index
from pgstrata.report.tables.verdicts import cell_title

MOST_RUNS = 500
Group = tuple[str, str, str, str]


@dataclass(frozen=True)
class Sample:
    """Shown runs, as pairs of trial and cell; a trial that measured nothing has an empty cell."""

    shown: frozenset[tuple[str, str]]
    total: int

    @classmethod
    def of(cls, data: CampaignData) -> Sample:
        groups: dict[Group, list[tuple[str, str, float]]] = {}
        for trial in data.trials:
            for cell, tps in _measured(trial):
                group = (trial.trial.stack, cell, trial.trial.stage, trial.verdict.status)
                groups.setdefault(group, []).append((trial.id, cell, tps))
        total = sum(len(runs) for runs in groups.values())
        most = total if total <= MOST_RUNS else max(1, MOST_RUNS // len(groups))
        chosen = frozenset((runs[i][0], runs[i][1]) for runs in groups.values() for i in _spread(runs, most))
        return cls(chosen, total)

    @cached_property
    def trials(self) -> frozenset[str]:
        """Trials with at least one shown run."""
        return frozenset(trial for trial, _ in self.shown)

    @property
    def words(self) -> str:
        """Caption on the runs left out; empty if there are none."""
        if len(self.shown) == self.total:
            return ""
        return (
            f"Of {render_count(self.total, 'run')} {len(self.shown)} are drawn and listed: evenly spread over the "
            "blocks, with the slowest, the middle and the fastest of each stack. Estimates, intervals and means are "
            "of all."
        )


def _measured(trial: TrialData) -> list[tuple[str, float]]:
    return [(cell.id, cell.result.tps or 0.0) for cell in trial.cells] or [("", 0.0)]


def _spread(runs: list[tuple[str, str, float]], most: int) -> set[int]:
    count = len(runs)
    if count <= most:
        return set(range(count))
    by_tps = sorted(range(count), key=lambda i: runs[i][2])
    even = np.linspace(0, count - 1, most).round().astype(int).tolist()
    return {*even, by_tps[0], by_tps[(count - 1) // 2], by_tps[-1]}


PERCENTILES = ("p50", "p95", "p99", "p999")
FACTOR_FOR_LOG = 4.0
ZERO_BELOW = 0.45
"""An axis begins at zero if the smallest value is below this share of the largest; else it is cut, and says so."""
GIB = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) GiB")
"""Format of the host's memory in its facts."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "star", "triangle-right")
"""Eight shapes and seven colours: 56 stacks look different, also without colour. All shapes have an area to fill."""


@dataclass(frozen=True)
class DrawnMetric:
    """One metric of one stack in one cell; the shown `runs` are parallel to `trials` and `blocks`."""

    stack: int
    estimate: float | None
    low: float | None
    high: float | None
    count: int
    """Number of all runs."""
    runs: list[float | None]
    trials: list[str]
    blocks: list[int | None]


@dataclass(frozen=True)
class DrawnCell:
    """One cell of the grid."""

    id: str
    title: str
    script: str
    scale: int
    memory_share: float | None
    """The loaded database over the memory of the host; None if either is unknown."""
    clients: int
    rate: float | None
    """Scheduled transactions per second; None for a closed loop."""
    ranking: list[int]
    metrics: dict[str, list[DrawnMetric]]
    logarithmic: list[str]
    """Metrics that need a logarithmic axis, because stacks differ by factors."""
    percentiles: list[dict[str, float | int]]
    """Stack, runs, and the estimate of each percentile, ms, for an open loop."""


@dataclass(frozen=True)
class DrawnRun:
    """The series of one run."""

    stack: int
    cell: int
    block: int
    trial: str
    tps: float
    valid: bool
    stage: str
    typical: bool
    """True for the run that represents its stack until the reader selects another."""
    series: RunSeries | None
    devices: list[DeviceSeries]


@dataclass(frozen=True)
class DrawnLoad:
    """Duration of the load: means over trials that loaded in the same way."""

    stack: int
    scale: int
    how: str
    trials: int
    total_s: float
    phases_s: dict[str, float]


@dataclass(frozen=True)
class DrawnSpace:
    """Space in bytes: means over trials; WAL of the measured run."""

    stack: int
    cell: int
    physical_loaded: float | None
    database_loaded: float | None
    physical_after: float | None
    wal: float | None
    wal_per_transaction: float | None


@dataclass(frozen=True)
class DrawnDrift:
    """One run relative to the mean of its stack; over the blocks it shows the drift of the machine."""

    stack: int
    cell: int
    block: int
    trial: str
    deviation: float


@dataclass(frozen=True)
class Drawing:
    """All data to draw."""

    primary: str
    margin: float
    zero_below: float
    stacks: list[str]
    shapes: list[str]
    """Shapes of the marks, by stack."""
    metrics: dict[str, Metric]
    cells: list[DrawnCell]
    runs: list[DrawnRun] = field(default_factory=list)
    loads: list[DrawnLoad] = field(default_factory=list)
    spaces: list[DrawnSpace] = field(default_factory=list)
    drift: list[DrawnDrift] = field(default_factory=list)
    times: list[DrawnTime] = field(default_factory=list)


@dataclass(frozen=True)
class _Context:
    data: CampaignData
    findings: Findings
    sample: Sample

    @cached_property
    def names(self) -> list[str]:
        """Stacks in declared order: a stack keeps its colour at any rank."""
        return list(dict.fromkeys(s.name for s in self.findings.stacks))

    @cached_property
    def cells(self) -> dict[str, int]:
        return {c.id: i for i, c in enumerate(self.findings.cells)}

    def compared(self) -> Iterator[CellData]:
        """Yield valid runs of known stacks and cells, without soak runs, which have another length."""
        soaked = {t.id for t in self.data.trials if t.trial.stage == "soak"}
        cells, names = self.cells, frozenset(self.names)
        for run in self.data.cells():
            if run.id in cells and run.stack in names and run.trial_id not in soaked:
                yield run


def draw(data: CampaignData, findings: Findings, sample: Sample) -> Drawing:
    """Read the series run by run; the result is small for any length and number of runs."""
    context = _Context(data, findings, sample)
    names = {m for s in findings.stacks for m, value in s.metrics.items() if value.estimate is not None}
    return replace(
        _intervals(context, in_order(names)),
        runs=list(_with_typical(list(_runs(context)))),
        loads=_loads(context),
        spaces=_spaces(context),
        drift=_drift(context),
        times=drawn_times(findings, context.names, context.cells),
    )


def draw_intervals(data: CampaignData, findings: Findings, sample: Sample) -> Drawing:
    """Return the primary metric alone, without any series: small and quickly made."""
    return _intervals(_Context(data, findings, sample), (findings.campaign.primary,))


def _intervals(context: _Context, order: tuple[str, ...]) -> Drawing:
    campaign = context.findings.campaign
    return Drawing(
        primary=campaign.primary,
        margin=campaign.margin,
        zero_below=ZERO_BELOW,
        stacks=context.names,
        shapes=shapes_of(len(context.names)),
        metrics={name: metric_of(name) for name in order},
        cells=[_cell(context, cell, order) for cell in context.findings.cells],
    )


def shapes_of(count: int) -> list[str]:
    """Return the shapes of the marks of `count` stacks."""
    return [SHAPES[i % len(SHAPES)] for i in range(count)]


def _cell(context: _Context, cell: CellFinding, order: tuple[str, ...]) -> DrawnCell:
    stacks = Index(context.findings).stacks_of(cell)
    blocks = {t.id: t.trial.block for t in context.data.trials}
    metrics = {}
    for name in order:
        if not is_shown(name, cell):
            continue
        drawn = [d for s in stacks if (d := _metric(context, s, name, blocks)) is not None]
        if drawn:
            metrics[name] = drawn
    return DrawnCell(
        id=cell.id,
        title=cell_title(cell),
        script=cell.script,
        scale=cell.scale,
        memory_share=_memory_share(context.data, cell.scale),
        clients=cell.clients,
        rate=cell.rate_tps,
        ranking=[context.names.index(name) for name in cell.ranking],
        metrics=metrics,
        logarithmic=[name for name, drawn in metrics.items() if _differ_by_factors(drawn)],
        percentiles=_percentiles(context, stacks) if cell.rate_tps is not None else [],
    )


def _memory_share(data: CampaignData, scale: int) -> float | None:
    trials = [t for t in data.trials if t.trial.scale == scale and t.facts is not None]
    loaded = [s.database_bytes for t in trials if (s := t.space_after("after load")) is not None]
    memory = next((GIB.fullmatch(t.facts.checked.get("memory", "")) for t in trials if t.facts is not None), None)
    size_bytes = _mean(loaded)
    if memory is None or size_bytes is None or float(memory[1]) == 0:
        return None
    return _digits(size_bytes / (float(memory[1]) * 2**30))


def is_shown(name: str, cell: CellFinding) -> bool:
    """Return True unless it is a percentile of a closed loop: those hide stalls that users notice (they stay in the
    JSON)."""
    return cell.rate_tps is not None or not name.startswith("latency_p")


def _metric(context: _Context, stack: StackFinding, name: str, blocks: dict[str, int]) -> DrawnMetric | None:
    found = stack.metrics.get(name)
    if found is None or found.estimate is None:
        return None
    trials = stack.trials if len(stack.trials) == len(found.runs) else ("",) * len(found.runs)
    shown = [
        (v, t) for v, t in zip(found.runs, trials, strict=True) if not t or (t, stack.cell) in context.sample.shown
    ]
    return DrawnMetric(
        stack=context.names.index(stack.name),
        estimate=_digits(found.estimate),
        low=_digits(found.low),
        high=_digits(found.high),
        count=len(found.runs),
        runs=[_digits(v) for v, _ in shown],
        trials=[t for _, t in shown],
        blocks=[blocks.get(t) for _, t in shown],
    )


def _percentiles(context: _Context, stacks: tuple[StackFinding, ...]) -> list[dict[str, float | int]]:
    rows: list[dict[str, float | int]] = []
    for stack in stacks:
        found = {p: stack.metrics.get(f"latency_{p}_ms") for p in PERCENTILES}
        known = {p: m.estimate for p, m in found.items() if m is not None and m.estimate is not None}
        if known:
            rows.append({"stack": context.names.index(stack.name), "runs": stack.n, **known})
    return rows


def _runs(context: _Context) -> Iterator[DrawnRun]:
    known = [
        c
        for c in context.data.cells(valid_only=False)
        if c.id in context.cells and c.stack in context.names and (c.trial_id, c.id) in context.sample.shown
    ]
    excluded = {(e.trial, s.cell) for s in context.findings.stacks for e in s.excluded}
    valid = {t.id for t in context.data.trials if t.valid}
    stages = {t.id: t.trial.stage for t in context.data.trials}
    resolution = Resolution.of(len(known))
    for run in known:
        yield DrawnRun(
            stack=context.names.index(run.stack),
            cell=context.cells[run.id],
            block=run.block,
            trial=run.trial_id,
            tps=_digits(run.result.tps) or 0.0,
            valid=run.trial_id in valid and (run.trial_id, run.id) not in excluded,
            stage=stages[run.trial_id],
            typical=False,
            series=run_series(run, resolution.run_points),
            devices=device_series(run, resolution.device_points),
        )


def _with_typical(runs: list[DrawnRun]) -> Iterator[DrawnRun]:
    """Mark the typical run: the median by throughput, of a stack's valid runs in a cell with a series (or of all).

    Soak runs, which are longer, have one of their own.
    """
    groups: dict[tuple[int, int, bool], list[DrawnRun]] = {}
    for run in runs:
        if run.valid:
            groups.setdefault((run.stack, run.cell, run.stage == "soak"), []).append(run)
    typical = set()
    for group in groups.values():
        ordered = sorted([r for r in group if r.series is not None] or group, key=lambda r: r.tps)
        typical.add(id(ordered[(len(ordered) - 1) // 2]))
    return (replace(run, typical=id(run) in typical) for run in runs)


def is_cut(drawn: list[DrawnMetric]) -> bool:
    """Return True if the axis of a metric, unless logarithmic, does not begin at zero."""
    known = _known(drawn)
    return bool(known) and (min(known) >= ZERO_BELOW * max(known) > 0 or max(known) < 0)


def _known(drawn: list[DrawnMetric]) -> list[float]:
    return [v for d in drawn for v in (d.low, d.high, d.estimate, *d.runs) if v is not None]


def _differ_by_factors(drawn: list[DrawnMetric]) -> bool:
    known = _known(drawn)
    return bool(known) and min(known) > 0 and max(known) / min(known) > FACTOR_FOR_LOG


def _loads(context: _Context) -> list[DrawnLoad]:
    groups: dict[tuple[int, int, str], list[TrialData]] = {}
    for trial in context.data.trials:
        if (
            trial.valid
            and trial.load is not None
            and trial.load.total_s is not None
            and trial.trial.stack in context.names
        ):
            key = (context.names.index(trial.trial.stack), trial.trial.scale, trial.load.how)
            groups.setdefault(key, []).append(trial)
    return [_load(key, trials) for key, trials in sorted(groups.items())]


def _load(key: tuple[int, int, str], trials: list[TrialData]) -> DrawnLoad:
    loads = [t.load for t in trials if t.load is not None]
    names = list(dict.fromkeys(name for load in loads for name in load.phases_s))
    phases = {name: _digits(float(np.mean([load.phases_s.get(name, 0.0) for load in loads]))) or 0.0 for name in names}
    total = float(np.mean([load.total_s for load in loads if load.total_s is not None]))
    return DrawnLoad(*key, trials=len(trials), total_s=_digits(total) or 0.0, phases_s=phases)


def _spaces(context: _Context) -> list[DrawnSpace]:
    trials = {t.id: t for t in context.data.trials}
    groups: dict[tuple[int, int], list[CellData]] = {}
    for run in context.compared():
        groups.setdefault((context.names.index(run.stack), context.cells[run.id]), []).append(run)
    return [_space(*key, runs, trials) for key, runs in sorted(groups.items())]


def _space(stack: int, cell: int, runs: list[CellData], trials: dict[str, TrialData]) -> DrawnSpace:
    loaded = [trials[r.trial_id].space_after("after load") for r in runs]
    after = [trials[r.trial_id].space_after(f"after {r.id}") for r in runs]
    per_transaction = [
        r.result.wal_bytes / r.result.transactions for r in runs if r.result.wal_bytes and r.result.transactions
    ]
    return DrawnSpace(
        stack=stack,
        cell=cell,
        physical_loaded=_mean([s.physical_bytes for s in loaded if s]),
        database_loaded=_mean([s.database_bytes for s in loaded if s]),
        physical_after=_mean([s.physical_bytes for s in after if s]),
        wal=_mean([r.result.wal_bytes for r in runs]),
        wal_per_transaction=_mean(per_transaction),
    )


def _drift(context: _Context) -> list[DrawnDrift]:
    """Return the drift; without blocks it is unknown which runs saw the machine in the same state."""
    if not context.data.record.paired:
        return []
    runs = [(r, float(np.log(r.result.tps))) for r in context.compared() if r.result.tps]
    logs: dict[tuple[str, str], list[float]] = {}
    for run, level in runs:
        logs.setdefault((run.stack, run.id), []).append(level)
    means = {key: float(np.mean(values)) for key, values in logs.items()}
    return [
        DrawnDrift(
            stack=context.names.index(r.stack),
            cell=context.cells[r.id],
            block=r.block,
            trial=r.trial_id,
            deviation=_digits(float(np.exp(level - means[r.stack, r.id])) - 1) or 0.0,
        )
        for r, level in runs
        if (r.trial_id, r.id) in context.sample.shown
    ]


def _mean(values: list[int | None] | list[float]) -> float | None:
    known = [v for v in values if v is not None]
    return _digits(float(np.mean(known))) if known else None


def _digits(value: float | None) -> float | None:
    """Round to six significant digits: more than any chart can show."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")
