"""Imported runs of any source, and their conversion to a campaign directory."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pgstrata.errors import PgstrataError, UsageError
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder, utc_now
from pgstrata.record.schema import (
    LONGEST_RUN_S,
    CellResult,
    HostFacts,
    LoadRecord,
    Origin,
    PlannedRecord,
    SpaceRecord,
    TrialVerdict,
)
from pgstrata.spec.campaign import Campaign, Goal, Stage, Trial
from pgstrata.spec.layers.kind import Filesystem
from pgstrata.spec.layers.not_built import Imported
from pgstrata.spec.printable import plain_name
from pgstrata.spec.stack import Postgres, Stack, Volume
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.pgbench import script_of


@dataclass(frozen=True)
class ImportedCell:
    """One measured run with the files it was read from (name below raw/ -> source)."""

    result: CellResult
    series: Mapping[str, Iterable[Sequence[Any]]] = field(default_factory=dict)
    raw: Mapping[str, Path] = field(default_factory=dict)
    space: SpaceRecord | None = None


@dataclass(frozen=True)
class ImportedTrial:
    """The runs of one stack at one scale in one round."""

    stack: Stack
    block: int
    cells: tuple[ImportedCell, ...]
    facts: HostFacts
    load: LoadRecord | None = None
    raw: Mapping[str, Path] = field(default_factory=dict)
    stage: Stage = "screen"


@dataclass(frozen=True)
class ImportSummary:
    """Items that an import took and left out."""

    directory: Path
    stacks: tuple[str, ...]
    trials: int
    runs: int
    rejected: Mapping[str, int]
    notices: tuple[str, ...]

    @property
    def text(self) -> str:
        """Summary for people, one item per line."""
        runs, stacks = (f"{n} {noun}{'s' * (n != 1)}" for n, noun in ((self.runs, "run"), (len(self.stacks), "stack")))
        lines = [f"imported {runs} of {stacks} to {self.directory}"]
        lines += [f"left out {count}: {reason}" for reason, count in sorted(self.rejected.items())]
        return "\n".join([*lines, *(f"notice: {n}" for n in self.notices)])


UNPAIRED = "the runs are unpaired: nothing protects them from drift of the machine"


def imported_facts(told: Mapping[str, str]) -> HostFacts:
    """Return the facts of a run whose machine is unknown."""
    return HostFacts(name="imported", told=dict(told), medium="imported, medium not known")


def imported_stack(name: str, fs: Filesystem | None = None, settings: Mapping[str, str] | None = None) -> Stack:
    """Return a stack of an import; without `fs` only its name is known. UsageError for a name that cannot be shown."""
    try:
        plain_name(name)
    except ValueError as error:
        raise UsageError(f"stack: {error}", hint="a stack is called by one line of text") from None
    return Stack(name=name, data=Volume(fs=fs or Imported()), postgresql=Postgres(settings=dict(settings or {})))


def imported_cell(script: str, scale: int = 0, clients: int = 0) -> Cell:
    """Return a cell of an import; unknown values are 0. UsageError for a script's name that cannot be shown."""
    try:
        plain_name(script)
    except ValueError as error:
        raise UsageError(f"script: {error}", hint="a script is called by one line of text") from None
    return Cell(script=script_of(script), scale=scale, clients=clients)


def imported_result(where: str, **fields: Any) -> CellResult:
    """Return the figures of a run; UsageError for an impossible value, which names the file in `where`."""
    try:
        return CellResult(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(
            f"{where}: a run has {'.'.join(map(str, first['loc']))} = {str(first['input'])[:30]}: {first['msg']}",
            hint="correct or remove it where it was measured",
        ) from None


def write_campaign(
    trials: Sequence[ImportedTrial],
    out: Path,
    *,
    name: str,
    origin: Origin,
    paired: bool,
    goal: Goal,
    rejected: Mapping[str, int],
    notices: Sequence[str] = (),
    sources: Mapping[str, bytes] | None = None,
) -> ImportSummary:
    """Write the runs as a campaign directory; UsageError if `out` is not empty.

    `sources` are files common to all runs, by name: they are stored once, while the raw files of a run are stored with
    it.
    """
    if (out / "campaign.json").exists():
        raise UsageError(
            f"{out} already holds a campaign: an import is not added to it", hint="choose a new folder with --out DIR"
        )
    stacks = tuple({t.stack.name: t.stack for t in trials}.values())
    workload, note = _workload(trials), " ".join(notices)
    try:
        campaign = Campaign(name=name, stacks=stacks, workload=workload, goal=goal, note=note, host="imported")
    except ValidationError as error:
        where, why = error.errors()[0]["loc"], error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"the runs make no campaign: {'.'.join(map(str, where))}: {why}",
                         hint="import them in parts") from None  # fmt: skip
    runs = sum(len(trial.cells) for trial in trials)
    with (
        _whole_or_nothing(out),
        CampaignDirectory.create_or_open(
            out, campaign, origin, paired=paired, rejected=rejected, sources=sources
        ) as directory,
    ):
        for position, imported in enumerate(trials):
            _write_trial(directory, imported, position)
        stored = sum(len(trial.cells) for trial in directory.finished())
        if stored != runs:
            raise PgstrataError(
                f"{runs} runs were read and {stored} are in {out}", hint="please report it with the names of the files"
            )
    return ImportSummary(out, tuple(s.name for s in stacks), len(trials), runs, rejected, tuple(notices))


@contextmanager
def _whole_or_nothing(out: Path) -> Iterator[None]:
    """Restore the folder after an error: absent, or with its previous contents."""
    before = set(out.iterdir()) if out.exists() else None
    try:
        yield
    except BaseException:
        if before is None:
            shutil.rmtree(out, ignore_errors=True)
        else:
            for made in set(out.iterdir()) - before:
                shutil.rmtree(made) if made.is_dir() else made.unlink()
        raise


def _workload(trials: Sequence[ImportedTrial]) -> Workload:
    """Return the grid that the runs span; values unknown to all runs (0) stay at their defaults."""
    cells = [cell.result.cell for trial in trials for cell in trial.cells]
    grid = {
        "script": tuple(dict.fromkeys(c.script for c in cells)),
        "scale": tuple(sorted({c.scale for c in cells if c.scale})),
        "clients": tuple(sorted({c.clients for c in cells if c.clients})),
    }
    _require_distinct(cells)
    try:
        return Workload.model_validate({key: values for key, values in grid.items() if values})
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"the runs make no grid: {why}", hint="give scripts names that differ in letters") from None


def _require_distinct(cells: Sequence[Cell]) -> None:
    """Raise UsageError if different cells would be taken for repetitions of one: without a scale they share a name."""
    first: dict[str, Cell] = {}
    for cell in cells:
        other = first.setdefault(cell.id, cell)
        if (other.script, other.rate_tps) == (cell.script, cell.rate_tps) and other.clients != cell.clients:
            both = f"{other.clients} and with {cell.clients} clients"
            raise UsageError(
                f"runs with {both} cannot be told apart: their scale is not known",
                hint="add a column scale",
            )


def _write_trial(directory: CampaignDirectory, imported: ImportedTrial, position: int) -> None:
    cells: tuple[Cell, ...] = tuple(c.result.cell for c in imported.cells)
    twice = [name for name, count in Counter(cell.id for cell in cells).items() if count > 1]
    if twice:
        raise PgstrataError(
            f"two runs of {imported.stack.name} would both be stored as {twice[0]}",
            hint="please report it with the names of the files",
        )
    scale = cells[0].scale
    slug = re.sub(r"[^A-Za-z0-9]+", "-", imported.stack.name).strip("-")[:60]
    trial = Trial(
        id=f"b{imported.block:03d}-{position:03d}-{slug}" + (f"-s{scale}" if scale else ""),
        stack=imported.stack.name,
        block=imported.block,
        position=position,
        stage=imported.stage,
        load="fresh",
        scale=scale,
        cells=cells,
        workload_seed=0,
    )
    recorder = directory.start_trial(trial, PlannedRecord(trial=trial, stack=imported.stack, steps=()))
    recorder.write("facts.json", imported.facts)
    if imported.load is not None:
        recorder.write("load.json", imported.load)
    space = [c.space for c in imported.cells if c.space is not None]
    if space:
        recorder.write_list("space.json", space)
    for name, source in imported.raw.items():
        shutil.copyfile(source, recorder.raw(name))
    for cell in imported.cells:
        _write_cell(recorder, cell)
    started = imported.cells[0].result.started
    recorder.finish(TrialVerdict(trial_id=trial.id, status="ok", started=started, ended=utc_now()))


def _within_a_run(series: str, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    for row in rows:
        if not abs(row[0]) <= LONGEST_RUN_S:
            raise UsageError(
                f"a row of {series} lies {row[0]:g} s from the start of its run",
                hint="no run takes that long: a line has another time than the rest; remove it",
            )
        yield row


def _write_cell(recorder: TrialRecorder, cell: ImportedCell) -> None:
    cell_id = cell.result.cell.id
    recorder.write(f"cells/{cell_id}/result.json", cell.result)
    for series, rows in cell.series.items():
        recorder.series(cell_id, series, _within_a_run(series, rows))
    for name, source in cell.raw.items():
        shutil.copyfile(source, recorder.cell(cell_id, f"raw/{name}"))
