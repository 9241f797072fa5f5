"""The runs of a recorded campaign that count, with their metrics; excluded trials with reasons; notices for the reader.

No trial is excluded silently; `selection` decides which trials count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from pgstrata.analyze.campaign.metrics import open_loop_of, run_metrics
from pgstrata.analyze.campaign.scale import Metric, metric_of
from pgstrata.analyze.campaign.selection import Selection
from pgstrata.analyze.crash import broken_promises, durability_found, effective_durability
from pgstrata.analyze.findings import DurabilityFinding, Excluded
from pgstrata.analyze.stats.comparison import Design, goal_within, mean_seconds
from pgstrata.analyze.why.medium import medium_notices
from pgstrata.record.decision import COMPARISON, Observation, Stage
from pgstrata.record.reader import CampaignData, CellData, TrialData
from pgstrata.record.schema import AttestedRecord, CellResult
from pgstrata.spec.campaign import Goal
from pgstrata.spec.durability import Durability, durability_class, of_class
from pgstrata.spec.durability_class import SURVIVES, UNKNOWN, BackingFs
from pgstrata.spec.layers.not_built import SAID, Imported
from pgstrata.spec.printable import summarise_names
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell

SOAK_S = 1800.0
BUSY_SHARE = 0.05
"""Share of a host's processors that others may use in a run before it is told: below it, clock ticks say little."""
CLIENT_BUSY_SHARE = 0.8
"""Share of the processors of a client's host above which they may limit the load."""
MEASURED: tuple[Stage, ...] = (*COMPARISON, "latency")


@dataclass(frozen=True)
class Run:
    """One measured run that counts."""

    trial: TrialData
    data: CellData
    cell: str
    """Id of the cell."""
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class Evidence:
    """The runs that count, by stack and cell, and the notices about those that do not."""

    data: CampaignData
    stacks: Mapping[str, Stack]
    cells: tuple[Cell, ...]
    """Cells of the comparison."""
    matched: tuple[Cell, ...]
    """Open-loop cells of the latency stage."""
    runs: tuple[Run, ...]
    excluded: Mapping[str, tuple[Excluded, ...]]
    durability: Mapping[str, DurabilityFinding]
    """Promised durability and results of crash trials, for every stack."""
    unsupported: Mapping[str, str]
    """Reason why this host cannot build a stack; without stacks that were built in a later trial."""
    notices: tuple[str, ...]
    emulated: bool

    @property
    def unranked(self) -> bool:
        """True if stacks are no candidates: on an emulated machine, and where they are the rows of a design."""
        return self.emulated or self.data.campaign.tuning is not None

    @property
    def imported(self) -> bool:
        return self.data.record.origin.startswith("import")

    @property
    def goal(self) -> Goal:
        return self.data.campaign.goal

    @property
    def primary(self) -> Metric:
        return metric_of(self.goal.primary)

    def whole(self, stack: str, cell: str) -> tuple[Run, ...]:
        """Return the whole runs of one stack in one cell, those after slices included: the runs that have a series."""
        found = (replace(run, data=run.data.whole) for run in self.of(stack, cell) if run.data.whole is not None)
        return tuple(found)

    def of(self, stack: str, cell: str, stages: Sequence[Stage] = MEASURED) -> tuple[Run, ...]:
        """Return the runs of one stack in one cell; soak runs only on request."""
        return tuple(r for r in self._by_place.get((stack, cell), ()) if r.trial.trial.stage in stages)

    @cached_property
    def _by_place(self) -> dict[tuple[str, str], list[Run]]:
        found: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            found.setdefault((run.trial.trial.stack, run.cell), []).append(run)
        return found

    @cached_property
    def lost_runs(self) -> dict[str, tuple[int, int]]:
        """Trials of the comparison that failed or were excluded, and the number of all, by stack. Interrupted trials
        are repeated and not counted."""
        gone = {one.trial for found in self.excluded.values() for one in found}
        found: dict[str, tuple[int, int]] = {}
        for trial in self.data.trials:
            if trial.trial.stage in COMPARISON and trial.verdict.status not in ("interrupted", "unsupported"):
                lost, trials = found.get(trial.trial.stack, (0, 0))
                found[trial.trial.stack] = lost + (trial.id in gone), trials + 1
        return found

    def observations(self, metric: str) -> tuple[Observation, ...]:
        """Return the runs of one metric in the form that the stages take."""
        return tuple(self._observations(metric))

    def _observations(self, metric: str) -> Iterator[Observation]:
        for run in self.runs:
            trial, value = run.trial.trial, run.metrics.get(metric)
            if value is not None and trial.stage in MEASURED:
                cost_s = run.trial.verdict.duration_s / max(1, len(run.trial.cells))
                # Blocks of the latency stage are randomised and complete like those of screening.
                stage: Stage = "screen" if trial.stage == "latency" else trial.stage
                yield Observation(trial.stack, trial.block, run.cell, value, stage, cost_s, host=trial.host)

    def open_loops(self, percentile: str) -> tuple[Observation, ...]:
        """Return every open-loop run, in the form that the capacity search takes."""
        found = []
        for run in self.runs:
            trial, loop = run.trial.trial, open_loop_of(run.data, percentile)
            tps = run.data.result.tps
            if loop is not None and tps is not None:
                found.append(Observation(trial.stack, trial.block, run.cell, tps, trial.stage, 0.0, loop))
        return tuple(found)

    def design(self) -> Design:
        """Return the declared design, without the stacks that never ran."""
        seen = {r.trial.trial.stack for r in self.runs}
        names = tuple(n for n in self.stacks if n in seen)
        goal, runs = goal_within(self.goal, names), self.data.campaign.runs
        cells = tuple(c.id for c in self.cells)
        classes = {n: effective_durability(self.durability[n]) for n in names}
        candidates = frozenset(of_class(classes, self.goal.durability))
        blocks, fixed = runs.blocks or runs.max_blocks, runs.blocks is not None
        as_declared = runs.blocks == self.data.record.declared_blocks and self._has_exactly(names, blocks)
        return Design(names, cells, goal, blocks, fixed, as_declared, candidates, proves=runs.budget is not None)

    def _has_exactly(self, names: Sequence[str], blocks: int) -> bool:
        """Return True if every one of these stacks ran, successfully or not, in exactly that number of blocks.

        False for a campaign on several hosts, because hosts are counted there.
        """
        measured = (t.trial for t in self.data.trials if t.trial.stage in ("screen", "confirm"))
        done = {(t.host, t.stack, t.block) for t in measured if t.stack in names}
        return done == {("", name, block) for name in names for block in range(blocks)}


def recorded_seconds(data: CampaignData) -> dict[str, float]:
    """Return the mean machine time of each stack in a block of the comparison, over all its trials there."""
    valid = (t for t in data.trials if t.valid and t.trial.stage in COMPARISON)
    return mean_seconds((t.trial.stack, t.trial.block, t.verdict.duration_s) for t in valid)


def gather(data: CampaignData) -> Evidence:
    """Sort the trials of a campaign into those that count and those that do not."""
    excluded: dict[str, list[Excluded]] = {}
    unsupported: dict[str, str] = {}
    selection = Selection.of(data.trials)
    runs: list[Run] = []
    mixed = Counter[str]()
    for trial in data.trials:
        reason = selection.why_not(trial)
        if trial.verdict.status == "unsupported":
            unsupported.setdefault(trial.trial.stack, trial.verdict.reason)
        elif reason:
            excluded.setdefault(trial.trial.stack, []).append(_excluded(trial, reason))
            mixed.update([reason] if trial.valid else ())
        else:
            for cell in trial.cells:
                runs.append(Run(trial, cell, cell.id, run_metrics(trial, cell)))
    for run in runs:
        value = run.metrics.get(data.campaign.goal.primary)
        if value is None or (metric_of(data.campaign.goal.primary).scale == "ratio" and value <= 0):
            reason = f"{run.cell}: {data.campaign.goal.primary} is {'missing' if value is None else f'{value:g}'}"
            excluded.setdefault(run.trial.trial.stack, []).append(_excluded(run.trial, reason))
    stacks, ran = _stacks(data), {run.trial.trial.stack for run in runs}
    durability = find_durability(data, stacks)
    emulated = _emulated(data)
    return Evidence(
        data=data,
        stacks=stacks,
        cells=_cells(data, [r for r in runs if r.trial.trial.stage in COMPARISON]),
        matched=tuple({r.cell: r.data.cell for r in runs if r.trial.trial.stage == "latency"}.values()),
        runs=tuple(runs),
        excluded={name: tuple(items) for name, items in excluded.items()},
        durability=durability,
        unsupported={name: reason for name, reason in unsupported.items() if name not in ran},
        notices=(
            *_unreadable_notice(data),
            *_first_notices(data, mixed),
            *medium_notices(data.media),
            *_durability_notice({n: d for n, d in durability.items() if n in ran}, emulated),
            *broken_promises(durability),
        ),
        emulated=emulated,
    )


def find_durability(data: CampaignData, stacks: Mapping[str, Stack]) -> dict[str, DurabilityFinding]:
    """Return the promised durability of each stack, with the results of its power-cut trials."""
    tested = {c.trial.stack: c.found for c in data.crashes if c.verdict.status != "unsupported"}
    untested = {c.trial.stack: c.verdict.reason for c in data.crashes if c.trial.stack not in tested}
    return {
        name: durability_found(durability_of(data, stack), tested.get(name), untested.get(name, ""))
        for name, stack in stacks.items()
    }


def _unreadable_notice(data: CampaignData) -> Iterator[str]:
    if lost := data.unreadable:
        yield f"trials that could not be read count for nothing: {summarise_names([trial.id for trial in lost], 3)}"


def _emulated(data: CampaignData) -> bool:
    return any(t.facts is not None and t.facts.kind == "emulated" for t in data.trials)


def _excluded(trial: TrialData, reason: str) -> Excluded:
    return Excluded(trial=trial.id, block=trial.trial.block, reason=reason)


def _stacks(data: CampaignData) -> dict[str, Stack]:
    """Return declared stacks in declared order, then those that only trials know (the second name of an A/A pair)."""
    found = {s.name: s for s in data.campaign.stacks}
    for trial in data.trials:
        found.setdefault(trial.trial.stack, trial.stack)
    return found


def _cells(data: CampaignData, runs: Sequence[Run]) -> tuple[Cell, ...]:
    """Return the measured cells, in declared order; all declared cells if none was measured yet."""
    measured = {r.cell: r.data.cell for r in runs}
    declared = [c for c in data.campaign.workload.cells if c.id in measured]
    known = {c.id for c in declared}
    cells = (*declared, *(c for i, c in measured.items() if i not in known))
    return cells or data.campaign.workload.cells


def _first_notices(data: CampaignData, mixed: Counter[str]) -> Iterator[str]:
    """Yield what a reader must know before any figure; `mixed` counts valid trials that do not count, by reason."""
    record = data.record
    if record.origin.startswith("import"):
        yield f"imported ({record.origin}): measured by others, not attested, not confirmed with fresh pairs"
        if not record.paired:
            yield "the runs are unpaired: nothing protects them from drift of the machine"
    for reason, count in sorted(record.rejected.items()):
        yield f"left out by the import, {count} times: {reason}"
    for reason, count in mixed.items():
        yield f"{'1 trial does' if count == 1 else f'{count} trials do'} not count: {reason}"
    results = [cell.result for cell in data.cells()]
    runs = [run for result in results for run in (result, result.whole) if run is not None]
    yield from busy_words(runs)
    yield from client_words(runs)
    yield from _crowded(data)
    if _emulated(data):
        yield "functional only: measured on an emulated machine, throughput there says nothing about real storage"
    if data.decisions and data.decisions[-1].budget_notice:
        yield data.decisions[-1].budget_notice
    if not data.record.origin.startswith("import"):
        yield from _soak(data)


def _crowded(data: CampaignData) -> Iterator[str]:
    measured = {cell.id for trial in data.trials if trial.valid for cell in trial.cells}
    if cells := [cell for cell in data.campaign.workload.crowded if cell.id in measured]:
        yield crowded_words(cells)


def _soak(data: CampaignData) -> Iterator[str]:
    ran = {t.trial.stack for t in data.trials if t.valid}
    wary = [name for name, stack in _stacks(data).items() if name in ran and copies_on_write(stack)]
    longest = max((c.result.duration_s for c in data.cells()), default=0.0)
    if wary and longest < SOAK_S:
        yield (
            f"copy on write ({', '.join(wary)}): runs of {longest:.0f} s on fresh data cannot show a decline "
            "over hours; two or three runs of an hour would"
        )


def client_words(results: Sequence[CellResult]) -> Iterator[str]:
    """Describe the work of a client on a host of its own, and the network between."""
    found = [one.client for one in results if one.client is not None and one.client.elapsed_s * one.client.processors]
    if not found:
        return
    busy = max(one.busy_s / (one.elapsed_s * one.processors) for one in found)
    trips = [one.round_trip_ms for one in found if one.round_trip_ms is not None]
    told = f", a statement without work took {fmean(trips):.2f} ms from there" if trips else ""
    limit = "; the load's program may have set the limit: give it more processors" if busy > CLIENT_BUSY_SHARE else ""
    yield f"the load ran on {found[0].host}: at most {100 * busy:.0f} % of its processors were busy{told}{limit}"


def busy_words(results: Sequence[CellResult]) -> Iterator[str]:
    """Describe how busy others kept the server's host during the runs, where one run had more than BUSY_SHARE of it."""
    told = [result.others for result in results if result.others is not None and result.others.elapsed_s > 0]
    elapsed_s = sum(others.elapsed_s for others in told)
    for taken, who, mend in (
        ([others.used_s for others in told], "other programs used", "end them, or give the campaign more time"),
        ([others.stolen_s for others in told], "the hypervisor withheld", "give the machine processors of its own"),
    ):
        noticed = [t > BUSY_SHARE * o.elapsed_s * o.processors for t, o in zip(taken, told, strict=True)]
        if any(noticed):
            processors = max(others.processors for others in told)
            yield (
                f"{who} {sum(taken) / elapsed_s:.1f} of {processors} processors during the runs, more than "
                f"{BUSY_SHARE * 100:.0f} % in {sum(noticed)} of {len(told)} runs: results scatter more than on an idle "
                f"host, and intervals are as wide as that; {mend}"
            )


def crowded_words(cells: Sequence[Cell]) -> str:
    """Describe what is hidden in cells that have more clients than branches."""
    which = summarise_names([f"{cell.clients} clients at scale {cell.scale}" for cell in cells], 3)
    return (
        f"more clients than branches ({which}): sessions wait for one another's row locks, "
        "which hides part of what storage does"
    )


def copies_on_write(stack: Stack) -> bool:
    """Return True if any volume is a copy-on-write filesystem, whose throughput can fall as it ages."""
    return any(v.fs.copy_on_write for v in stack.volumes.values())


def durability_of(data: CampaignData, stack: Stack) -> Durability:
    """Return the durability class from the configuration and the detected backing of directories and loop files. With a
    complete postgresql.conf, the settings reported by the server in its first successful trial count too."""
    if data.record.origin.startswith("import"):
        found = durability_class(stack)
        if found.class_ != SURVIVES:
            return found
        if isinstance(stack.data.fs, Imported):
            return Durability(SURVIVES, SAID)
        return Durability(UNKNOWN, "imported: nobody looked at what it ran on")
    own = [t.attested for t in data.trials if t.stack.name == stack.name and t.attested]
    grounds = _grounds(stack, own[0]) if own else {}
    if stack.postgresql.postgresql_conf is None:
        return durability_class(stack, grounds=grounds)
    said = next((rows for rows in own if _server_rows(rows)), ())
    lines = [f"{row.what.removeprefix(_SERVER)} = '{row.actual}'" for row in _server_rows(said)]
    return durability_class(stack, "\n".join(lines) if lines else None, grounds)


def _grounds(stack: Stack, rows: Sequence[AttestedRecord]) -> dict[str, BackingFs]:
    """Return the attested backing filesystem of the directories and of the first loop file of each volume."""
    found = {row.what: row.actual for row in rows}
    grounds = {}
    for role, volume in stack.volumes.items():
        kind, options = f"{role} mount fstype", f"{role} mount options"
        if volume.fs.kind != "dir":
            kind, options = f"loop {role}.0 file fstype", f"loop {role}.0 file mount options"
        if kind in found:
            grounds[role] = BackingFs(found[kind], frozenset(found.get(options, "").split(",")))
    return grounds


_SERVER = "PostgreSQL "


def _server_rows(rows: Sequence[AttestedRecord]) -> tuple[AttestedRecord, ...]:
    return tuple(row for row in rows if row.what.startswith(_SERVER))


def _durability_notice(stacks: Mapping[str, DurabilityFinding], emulated: bool) -> Iterator[str]:
    classes: dict[str, list[str]] = {}
    for name, durability in stacks.items():
        classes.setdefault(durability.class_, []).append(name)
    if len(classes) > 1:
        parts = "; ".join(f"{class_}: {', '.join(names)}" for class_, names in classes.items())
        together = "stand side by side" if emulated else "stand in one table"
        yield f"stacks of different durability {together} ({parts})"
