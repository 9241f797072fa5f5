"""Reads a campaign directory, or a zip of one, wherever it was moved to.

The small JSON files are read at once; series and raw output only when asked for, one cell at a time, so that a
campaign of any length streams.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.record.crash import CRASH, CrashRecord, MinimalRecord
from pgstrata.record.parquet import SERIES, ParquetFile, Table, check_times, empty_table, open_parquet, series_kinds
from pgstrata.record.schema import (
    ADDED_COLUMNS,
    AttestedRecord,
    CampaignRecord,
    CellResult,
    DecisionRecord,
    EventRecord,
    HostFacts,
    LoadRecord,
    MediumRecord,
    PlannedRecord,
    PlannedTrial,
    Record,
    SettingRecord,
    SpaceRecord,
    StepRecord,
    TrialVerdict,
)
from pgstrata.record.source import (
    DAMAGED,
    MAX_JSON_BYTES,
    MAX_MEMBER_BYTES,
    Source,
    open_source,
    parse_json,
    parse_text,
    require_bounded,
)
from pgstrata.record.upgrade import campaign_format, format_of, upgraded
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell

R = TypeVar("R", bound=Record)
P = TypeVar("P", bound=PlannedTrial)
T = TypeVar("T")

SMALL_JSON_BYTES = 64 << 10
"""Read first: the memory of what may be read is taken before it is."""
MAX_ROWS = 10_000_000
"""Most rows of one series: a day of a hundred rows a second is nine million."""
LEAST_ROWS, ROWS_A_SECOND = 100_000, 1_000
"""A series may have so many rows whatever the length of its run, and so many more for each second of it."""


@dataclass(frozen=True)
class CellData:
    """One measured run of pgbench."""

    trial_id: str
    stack: str
    block: int
    result: CellResult
    source: Source = field(repr=False, compare=False)
    folder: str
    """`trials/ID/cells/CELL`, relative to the campaign directory."""

    @property
    def cell(self) -> Cell:
        return self.result.cell

    @property
    def id(self) -> str:
        return self.result.cell.id

    @property
    def whole(self) -> CellData | None:
        """The run that the series are of: the whole run itself, or the one after slices; None for slices alone."""
        if not self.result.slices:
            return self
        return None if self.result.whole is None else replace(self, result=self.result.whole)

    def has(self, series: str) -> bool:
        """True if that series (a key of `parquet.SERIES`) was recorded."""
        return self.source.has(f"{self.folder}/{series}.parquet")

    def table(self, series: str, columns: Sequence[str] | None = None) -> Table:
        """One series as arrays by column; an empty one with the right columns when it was not recorded."""
        wanted = columns or SERIES[series]
        if not self.has(series):
            empty = empty_table(series)
            return {column: empty[column] for column in wanted}
        name = f"{self.folder}/{series}.parquet"
        with self.source.open(name) as file:
            try:
                parquet = open_parquet(file.read())
                _check_series(parquet, series, (self.whole or self).result.duration_s)
                # Further columns are left where they are.
                table = parquet.read([column for column in wanted if column in parquet.kinds])
                check_times(table)
            except (OSError, ValueError, OverflowError, MemoryError) as error:
                raise UsageError(f"{self.source.text}/{name} is no whole Parquet file: {error}", hint=DAMAGED) from None
            # The series has got further columns since some files were written.
            return {column: table.get(column, np.full(parquet.rows, np.nan)) for column in wanted}

    def raw_names(self) -> tuple[str, ...]:
        """Files of raw output, relative to the campaign directory."""
        return self.source.below(f"{self.folder}/raw")


@dataclass(frozen=True)
class TrialHead:
    """Request of a finished trial, and its verdict."""

    trial: Trial
    verdict: TrialVerdict

    @property
    def id(self) -> str:
        return self.trial.id


@dataclass(frozen=True)
class TrialData(TrialHead):
    """One recorded trial."""

    stack: Stack
    facts: HostFacts | None
    attested: tuple[AttestedRecord, ...]
    settings: tuple[SettingRecord, ...]
    """Settings of the server; empty if they were not recorded."""
    steps: tuple[StepRecord, ...]
    load: LoadRecord | None
    space: tuple[SpaceRecord, ...]
    cells: tuple[CellData, ...]
    planned: PlannedRecord
    source: Source = field(repr=False, compare=False)

    @property
    def folder(self) -> str:
        """`trials/ID`, relative to the campaign directory."""
        return f"trials/{self.trial.id}"

    @property
    def valid(self) -> bool:
        return self.verdict.status == "ok"

    def found_in(self, source: Source) -> TrialData:
        """The same trial, whose files are read from there."""
        return replace(self, source=source, cells=tuple(replace(cell, source=source) for cell in self.cells))

    def space_after(self, moment: str) -> SpaceRecord | None:
        """The space measured at `after load` or `after CELL-ID`."""
        return next((s for s in self.space if s.moment == moment), None)

    def raw_names(self) -> tuple[str, ...]:
        """Files of raw output of the trial itself, relative to the campaign directory."""
        return self.source.below(f"{self.folder}/raw")


@dataclass(frozen=True)
class UnreadableTrial:
    """A finished trial that is damaged: it counts for nothing, and every report names it."""

    id: str
    reason: str
    hint: str


@dataclass(frozen=True)
class CrashData(TrialHead):
    """One recorded crash trial."""

    found: CrashRecord
    facts: HostFacts | None
    minimal: MinimalRecord | None = None
    """Fewest lost writes with which one of its states still fails."""

    @property
    def folder(self) -> str:
        """`crash/ID`, relative to the campaign directory."""
        return f"{CRASH}/{self.trial.id}"


@dataclass(frozen=True)
class CampaignData:
    """A recorded campaign."""

    record: CampaignRecord
    trials: tuple[TrialData, ...]
    """In the order of block and position; every status."""
    decisions: tuple[DecisionRecord, ...]
    source: Source = field(repr=False, compare=False)
    unreadable: tuple[UnreadableTrial, ...] = ()
    media: tuple[MediumRecord, ...] = ()
    """Rates of the medium itself, whenever a run began and before each block; empty if nobody measured them."""
    crashes: tuple[CrashData, ...] = ()
    """Crash trials, by the places of their stacks; every status."""

    @property
    def baselines(self) -> tuple[MediumRecord, ...]:
        """Without the short checks before blocks."""
        return tuple(record for record in self.media if record.kind == "baseline")

    @property
    def campaign(self) -> Campaign:
        return self.record.campaign

    @property
    def first_facts(self) -> HostFacts | None:
        """Facts of the first trial that has some."""
        return next((t.facts for t in self.every_trial if t.facts is not None), None)

    @property
    def every_trial(self) -> tuple[TrialData | CrashData, ...]:
        """Also those of power cuts."""
        return (*self.trials, *self.crashes)

    def cells(self, *, valid_only: bool = True) -> Iterator[CellData]:
        """Every measured run, in the order of the trials."""
        for trial in self.trials:
            if trial.valid or not valid_only:
                yield from trial.cells


def read(directory: str | Path) -> CampaignData:
    """The campaign in `directory` or zip; UsageError when it is none, or was written by a later version.

    A trial with a damaged or missing file is left out and named in `unreadable`.
    """
    source = open_source(Path(directory))
    record = read_campaign(source)
    trials, unreadable = read_trials(source, partial(read_trial, series=True))
    crashes, damaged = read_crash_trials(source)
    return CampaignData(
        record,
        tuple(sorted(trials, key=place)),
        read_decisions(source),
        source,
        unreadable=(*unreadable, *damaged),
        media=read_media(source),
        crashes=crashes,
    )


def read_trials(
    source: Source, read_one: Callable[[Source, str], T], folder: str = "trials"
) -> tuple[list[T], list[UnreadableTrial]]:
    """Every finished trial of a folder, and those that could not be read."""
    found: list[T] = []
    unreadable: list[UnreadableTrial] = []
    with without_collection():
        for name in source.trials(folder):
            try:
                found.append(read_one(source, name))
            except (UsageError, MemoryError) as error:
                unreadable.append(_unreadable(name if folder == "trials" else f"{folder}/{name}", error))
    return found, unreadable


def _unreadable(name: str, error: UsageError | MemoryError) -> UnreadableTrial:
    if isinstance(error, UsageError):
        return UnreadableTrial(name, error.message, error.hint)
    return UnreadableTrial(name, "there is not enough memory to read it", DAMAGED)


def place(trial: TrialHead) -> tuple[int, int, str]:
    """By which trials are ordered."""
    return trial.trial.block, trial.trial.position, trial.id


def read_campaign(source: Source) -> CampaignRecord:
    """The record of the campaign itself, in today's format."""
    value = _load_json(source, "campaign.json")
    format_ = campaign_format(value, f"{source.text}/campaign.json")
    return _validated(CampaignRecord, value, source, "campaign.json", format_)


@contextmanager
def without_collection() -> Iterator[None]:
    """Pauses the search for circles of dead objects, which takes a third of the time to read thousands of trials and
    finds none in them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def read_head(source: Source, name: str) -> TrialHead:
    """One finished trial without its results. UsageError where what says it is damaged, or any file is missing."""
    files, planned, verdict = _read_start(source, f"trials/{name}", PlannedTrial)
    _require(source, files.folder, verdict.files)
    return TrialHead(planned.trial, verdict)


def read_trial(source: Source, name: str, *, series: bool = False) -> TrialData:
    """One finished trial; it never changes any more. UsageError where a file of it is damaged or missing.

    `series` reads every series too, to be sure of them.
    """
    files, planned, verdict = _read_start(source, f"trials/{name}", PlannedRecord)
    _require(source, files.folder, verdict.files)
    trial = planned.trial
    if trial.stack != planned.stack.name:
        raise _another_trial(files, trial)
    cells = _read_cells(files, trial)
    for cell in cells if series else ():
        for one in SERIES:
            cell.table(one)
    return TrialData(
        trial=trial,
        stack=planned.stack,
        verdict=verdict,
        facts=files.one("facts.json", HostFacts),
        attested=files.listed("attested.json", AttestedRecord),
        settings=files.listed("settings.json", SettingRecord),
        steps=_read_steps(files),
        load=files.one("load.json", LoadRecord),
        space=files.listed("space.json", SpaceRecord),
        cells=cells,
        planned=planned,
        source=source,
    )


def _read_start(source: Source, folder: str, kind: type[P]) -> tuple[_TrialFiles, P, TrialVerdict]:
    """Return the request of the trial in that folder, and its verdict."""
    _require(source, folder, ("planned.json", "verdict.json"))
    value = _load_json(source, f"{folder}/planned.json")
    files = _TrialFiles(source, folder, format_of(value, f"{source.text}/{folder}/planned.json"))
    planned = files.validated("planned.json", value, kind)
    verdict = files.validated("verdict.json", _load_json(source, f"{folder}/verdict.json"), TrialVerdict)
    if not folder.rpartition("/")[2] == planned.trial.id == verdict.trial_id:
        raise _another_trial(files, planned.trial)
    return files, planned, verdict


def _another_trial(files: _TrialFiles, trial: Trial) -> UsageError:
    return UsageError(f"{files.source.text}/{files.folder} is the record of another trial ({trial.id})", hint=DAMAGED)


@dataclass(frozen=True)
class _TrialFiles:
    """The files of one trial, which are all in one format."""

    source: Source
    folder: str
    format: int

    def validated(self, name: str, value: Any, kind: type[R]) -> R:
        return _validated(kind, value, self.source, f"{self.folder}/{name}", self.format)

    def one(self, name: str, kind: type[R]) -> R | None:
        path = f"{self.folder}/{name}"
        return self.validated(name, _load_json(self.source, path), kind) if self.source.has(path) else None

    def listed(self, name: str, kind: type[R]) -> tuple[R, ...]:
        path = f"{self.folder}/{name}"
        values = _load_json(self.source, path) if self.source.has(path) else []
        if not isinstance(values, list):
            raise UsageError(f"{self.source.text}/{path} is not a list", hint=DAMAGED)
        return tuple(self.validated(name, value, kind) for value in values)

    def lines(self, name: str, kind: type[R]) -> tuple[R, ...]:
        values = _load_lines(self.source, f"{self.folder}/{name}")
        return tuple(self.validated(name, value, kind) for value in values)


def _read_steps(files: _TrialFiles) -> tuple[StepRecord, ...]:
    """The steps that have ended. Format 1 had a file of them, and no events."""
    if files.format == 1:
        return files.lines("steps.jsonl", StepRecord)
    begun: dict[str, str] = {}
    steps = []
    for event in files.lines("events.jsonl", EventRecord):
        name = event.step or ""
        if event.event == "step_begun":
            begun[name] = event.at
        elif event.event == "step_ended":
            steps.append(
                StepRecord(
                    name=name,
                    started=begun.get(name, event.at),
                    duration_s=event.duration_s or 0.0,
                    error=event.error or "",
                )
            )
    return tuple(steps)


def _require(source: Source, folder: str, names: Iterable[str]) -> None:
    for missing in (name for name in names if not source.has(f"{folder}/{name}")):
        raise UsageError(
            f"{source.text}/{folder} is incomplete: {missing} is missing",
            hint="copy the directory again, whole; or move this trial's folder out of it",
        )


def _read_cells(files: _TrialFiles, trial: Trial) -> tuple[CellData, ...]:
    cells = []
    for cell in trial.cells:
        folder = f"cells/{cell.id}"
        result = files.one(f"{folder}/result.json", CellResult)
        if result is not None:
            path = f"{files.folder}/{folder}"
            cells.append(CellData(trial.id, trial.stack, trial.block, result, files.source, path))
    return tuple(cells)


def read_decisions(source: Source) -> tuple[DecisionRecord, ...]:
    """Return what the scheduler decided; a torn last line (the machine lost power) is left out."""
    return _read_lines(source, "decisions.jsonl", DecisionRecord)


def read_media(source: Source) -> tuple[MediumRecord, ...]:
    """Return what the medium itself did, without a torn last line."""
    return _read_lines(source, "media.jsonl", MediumRecord)


def read_crash_trials(source: Source) -> tuple[tuple[CrashData, ...], tuple[UnreadableTrial, ...]]:
    """Every finished crash trial by the place of its stack, and those that could not be read."""
    found, damaged = read_trials(source, read_crash, CRASH)
    return tuple(sorted(found, key=lambda crash: crash.trial.position)), tuple(damaged)


def read_crash(source: Source, name: str) -> CrashData:
    """One finished crash trial; one that failed shows nothing that holds. UsageError where it is damaged."""
    files, planned, verdict = _read_start(source, f"{CRASH}/{name}", PlannedRecord)
    found = files.one("durability.json", CrashRecord) or CrashRecord(stack=planned.stack.name, seed=0)
    trial, stacks = planned.trial, {planned.trial.stack, planned.stack.name, found.stack}
    if len(stacks) > 1:
        raise _another_trial(files, trial)
    if found.verdict == "held" and (verdict.status != "ok" or not _all_held(found)):
        found = found.model_copy(update={"verdict": "unknown"})
    if verdict.status != "ok":
        found = found.model_copy(update={"unknown_reason": verdict.reason or found.unknown_reason})
    minimal = files.one("minimal.json", MinimalRecord)
    return CrashData(planned.trial, verdict, found, files.one("facts.json", HostFacts), minimal)


def _all_held(found: CrashRecord) -> bool:
    """True if there was anything to hold, and nothing did otherwise. Failures are counted for the loss of nodes."""
    failed = found.lost + found.corrupt + found.repair + found.unknown + found.missing
    return found.cluster is not None or found.states > failed == 0


def _read_lines(source: Source, name: str, kind: type[R]) -> tuple[R, ...]:
    """The lines of a file of the campaign itself, each of which says its format."""
    where = f"{source.text}/{name}"
    values = _load_lines(source, name)
    return tuple(_validated(kind, value, source, name, format_of(value, where)) for value in values)


def _check_series(parquet: ParquetFile, series: str, duration_s: float) -> None:
    """ValueError for a file of other columns, or of a size that no run leaves: a small one can unpack to anything."""
    wanted, added = series_kinds(series), ADDED_COLUMNS.get(series, ())
    if any(parquet.kinds.get(name, kind if name in added else "") != kind for name, kind in wanted.items()):
        raise ValueError(f"it has other columns than {', '.join(wanted)}")
    most_rows = min(MAX_ROWS, LEAST_ROWS + ROWS_A_SECOND * duration_s)
    if parquet.rows > most_rows or parquet.unpacked_bytes > MAX_MEMBER_BYTES:
        raise ValueError(f"it would unpack to {parquet.rows} rows and {parquet.unpacked_bytes} bytes")


def _load_json(source: Source, name: str) -> Any:
    return _loaded(source, name, parse_json, "is not JSON")


def _load_lines(source: Source, name: str) -> list[Any]:
    """The objects of a JSON-lines file, none when it is not there; without a last line that was torn."""
    found: list[Any] = _loaded(source, name, _parse_lines, "has a line that is not JSON") if source.has(name) else []
    return found


def _parse_lines(content: bytes) -> list[Any]:
    require_bounded(content)
    # The text ends in a newline, so the last part is empty unless the line was torn.
    return [parse_text(line) for line in content.decode().split("\n")[:-1] if line]


def _loaded(source: Source, name: str, parse: Callable[[bytes], Any], wrong: str) -> Any:
    with source.open(name, MAX_JSON_BYTES) as file:
        try:
            return parse(_whole(file))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{source.text}/{name} {wrong}: {error}", hint=DAMAGED) from None
        except OSError as error:
            raise UsageError(f"{source.text}/{name} cannot be read: {error.strerror}", hint=DAMAGED) from None


def _whole(file: io.BufferedIOBase) -> bytes:
    content = file.read(SMALL_JSON_BYTES)
    if len(content) == SMALL_JSON_BYTES:
        content += file.read(MAX_JSON_BYTES + 1 - SMALL_JSON_BYTES)
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"it is longer than {MAX_JSON_BYTES} bytes")
    return content


def _validated(kind: type[R], value: Any, source: Source, name: str, format_: int) -> R:
    try:
        return kind.model_validate(upgraded(name.rsplit("/", 1)[-1], value, format_))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{source.text}/{name}: {where}: {first['msg']}", hint=DAMAGED) from None
