"""Reads a campaign directory, or a zip of one, wherever it was moved to.

The small JSON files are read at once; series and raw output only when asked for, one cell at a time, so that a
campaign of any length streams.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.record.parquet import SERIES, arrow_schema, check_times, with_added
from pgstrata.record.schema import (
    ADDED_COLUMNS,
    CRASH,
    AttestedRecord,
    CampaignRecord,
    CellResult,
    CrashRecord,
    DecisionRecord,
    EventRecord,
    HostFacts,
    LoadRecord,
    MediumRecord,
    MinimalRecord,
    PlannedRecord,
    Record,
    SettingRecord,
    SpaceRecord,
    StepRecord,
    TrialVerdict,
)
from pgstrata.record.source import DAMAGED, MAX_MEMBER_BYTES, Source, open_source
from pgstrata.record.upgrade import campaign_format, format_of, upgraded
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell

R = TypeVar("R", bound=Record)

MAX_JSON_BYTES = 256 << 20
MAX_ROWS = 50_000_000
"""Of one series: a day of a hundred rows a second is nine million."""


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

    def has(self, series: str) -> bool:
        """Whether that series (a key of `parquet.SERIES`) was recorded."""
        return self.source.has(f"{self.folder}/{series}.parquet")

    def table(self, series: str, columns: list[str] | None = None) -> pa.Table:
        """One series as an Arrow table; an empty one with the right columns when it was not recorded."""
        if not self.has(series):
            empty = arrow_schema(SERIES[series]).empty_table()
            return empty if columns is None else empty.select(columns)
        name = f"{self.folder}/{series}.parquet"
        with self.source.open(name) as file:
            try:
                # Not pq.read_table: for files this small its data set machinery costs four times the reading.
                parquet = pq.ParquetFile(file)
                _check_series(parquet, series)
                table = with_added(parquet.read(columns=columns, use_threads=False), series)
                check_times(table)
            except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
                raise UsageError(f"{self.source.text}/{name} is no whole Parquet file: {error}", hint=DAMAGED) from None
            return table if columns is None else table.select(columns)

    def raw_names(self) -> tuple[str, ...]:
        """Files of raw output, relative to the campaign directory."""
        return self.source.below(f"{self.folder}/raw")


@dataclass(frozen=True)
class TrialData:
    """One recorded trial."""

    trial: Trial
    stack: Stack
    verdict: TrialVerdict
    facts: HostFacts | None
    attested: tuple[AttestedRecord, ...]
    settings: tuple[SettingRecord, ...]
    """Of the server; empty where they were not recorded."""
    steps: tuple[StepRecord, ...]
    load: LoadRecord | None
    space: tuple[SpaceRecord, ...]
    cells: tuple[CellData, ...]
    planned: PlannedRecord
    source: Source = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        return self.trial.id

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
class CrashData:
    """One recorded crash trial."""

    trial: Trial
    verdict: TrialVerdict
    found: CrashRecord
    facts: HostFacts | None
    minimal: MinimalRecord | None = None
    """Of one state that failed."""

    @property
    def id(self) -> str:
        return self.trial.id

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
    """What the medium itself did, whenever a run began and before each block; empty where nobody measured it."""
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
        """Of the first trial that has some."""
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
    trials: list[TrialData] = []
    unreadable: list[UnreadableTrial] = []
    for name in source.trials():
        try:
            trials.append(read_trial(source, name, series=True))
        except UsageError as error:
            unreadable.append(UnreadableTrial(name, error.message, error.hint))
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


def place(trial: TrialData) -> tuple[int, int, str]:
    """By which trials are ordered."""
    return trial.trial.block, trial.trial.position, trial.id


def read_campaign(source: Source) -> CampaignRecord:
    """The record of the campaign itself, in today's format."""
    value = _load_json(source, "campaign.json")
    format_ = campaign_format(value, f"{source.text}/campaign.json")
    return _validated(CampaignRecord, value, source, "campaign.json", format_)


def read_trial(source: Source, name: str, *, series: bool = False) -> TrialData:
    """One finished trial; it never changes any more. UsageError where a file of it is damaged or missing.

    `series` reads every series too, to be sure of them.
    """
    folder = f"trials/{name}"
    _require(source, folder, ("planned.json", "verdict.json"))
    value = _load_json(source, f"{folder}/planned.json")
    files = _TrialFiles(source, folder, format_of(value, f"{source.text}/{folder}/planned.json"))
    planned = files.validated("planned.json", value, PlannedRecord)
    verdict = files.validated("verdict.json", _load_json(source, f"{folder}/verdict.json"), TrialVerdict)
    _require(source, folder, verdict.files)
    trial = planned.trial
    if not name == trial.id == verdict.trial_id or trial.stack != planned.stack.name:
        raise UsageError(f"{source.text}/{folder} is the record of another trial ({trial.id})", hint=DAMAGED)
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
    """What the scheduler decided; a torn last line (the machine lost power) is left out."""
    return _read_lines(source, "decisions.jsonl", DecisionRecord)


def read_media(source: Source) -> tuple[MediumRecord, ...]:
    """What the medium itself did, without a torn last line."""
    return _read_lines(source, "media.jsonl", MediumRecord)


def read_crashes(source: Source) -> tuple[CrashRecord, ...]:
    """What finished crash trials found."""
    return tuple(read_crash(source, name).found for name in source.trials(CRASH))


def read_crash_trials(source: Source) -> tuple[tuple[CrashData, ...], tuple[UnreadableTrial, ...]]:
    """Every finished crash trial by the place of its stack, and those that could not be read."""
    found: list[CrashData] = []
    damaged: list[UnreadableTrial] = []
    for name in source.trials(CRASH):
        try:
            found.append(read_crash(source, name))
        except UsageError as error:
            damaged.append(UnreadableTrial(f"{CRASH}/{name}", error.message, error.hint))
    return tuple(sorted(found, key=lambda crash: crash.trial.position)), tuple(damaged)


def read_crash(source: Source, name: str) -> CrashData:
    """One finished crash trial; one that failed shows nothing that holds. UsageError where it is damaged."""
    folder = f"{CRASH}/{name}"
    _require(source, folder, ("planned.json", "verdict.json"))
    value = _load_json(source, f"{folder}/planned.json")
    files = _TrialFiles(source, folder, format_of(value, f"{source.text}/{folder}/planned.json"))
    planned = files.validated("planned.json", value, PlannedRecord)
    verdict = files.validated("verdict.json", _load_json(source, f"{folder}/verdict.json"), TrialVerdict)
    found = files.one("durability.json", CrashRecord) or CrashRecord(stack=planned.stack.name, seed=0)
    trial, stacks = planned.trial, {planned.trial.stack, planned.stack.name, found.stack}
    if not name == trial.id == verdict.trial_id or len(stacks) > 1:
        raise UsageError(f"{source.text}/{folder} is the record of another trial ({trial.id})", hint=DAMAGED)
    if found.verdict == "held" and (verdict.status != "ok" or not _all_held(found)):
        found = found.model_copy(update={"verdict": "unknown"})
    minimal = files.one("minimal.json", MinimalRecord)
    return CrashData(planned.trial, verdict, found, files.one("facts.json", HostFacts), minimal)


def _all_held(found: CrashRecord) -> bool:
    """Whether there was anything to hold, and nothing did otherwise. Of the loss of nodes failures are counted."""
    return found.cluster is not None or found.states > found.lost + found.corrupt + found.unknown == 0


def _read_lines(source: Source, name: str, kind: type[R]) -> tuple[R, ...]:
    """The lines of a file of the campaign itself, each of which says its format."""
    where = f"{source.text}/{name}"
    values = _load_lines(source, name)
    return tuple(_validated(kind, value, source, name, format_of(value, where)) for value in values)


def _check_series(parquet: pq.ParquetFile, series: str) -> None:
    """ValueError for a file of other columns, or of a size that no run leaves: a small one can unpack to anything."""
    metadata, wanted = parquet.metadata, arrow_schema(SERIES[series])
    found = parquet.schema_arrow
    added = ADDED_COLUMNS.get(series, ())
    expected = [name for name in wanted.names if name in found.names or name not in added]
    if any(name not in found.names or found.field(name).type != wanted.field(name).type for name in expected):
        raise ValueError(f"it has other columns than {', '.join(wanted.names)}")
    size_bytes = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS or size_bytes > MAX_MEMBER_BYTES:
        raise ValueError(f"it would unpack to {metadata.num_rows} rows and {size_bytes} bytes")


def _load_json(source: Source, name: str) -> Any:
    with source.open(name) as file:
        try:
            return _parse_json(_whole(file))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{source.text}/{name} is not JSON: {error}", hint=DAMAGED) from None
        except OSError as error:
            raise UsageError(f"{source.text}/{name} cannot be read: {error.strerror}", hint=DAMAGED) from None


def _whole(file: io.BufferedIOBase) -> bytes:
    content = file.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"it is longer than {MAX_JSON_BYTES} bytes")
    return content


def _parse_json(text: bytes | str) -> Any:
    return json.loads(text, parse_constant=_no_number, parse_int=_integer, parse_float=_finite)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:30]} is too large")
    return value


def _integer(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{text[:30]} is too large")
    return value


def _load_lines(source: Source, name: str) -> list[Any]:
    """The objects of a JSON-lines file, none when it is not there; without a last line that was torn."""
    if not source.has(name):
        return []
    with source.open(name) as file:
        try:
            # The text ends in a newline, so the last part is empty unless the line was torn.
            return [_parse_json(line) for line in _whole(file).decode().split("\n")[:-1] if line]
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{source.text}/{name} has a line that is not JSON: {error}", hint=DAMAGED) from None
        except OSError as error:
            raise UsageError(f"{source.text}/{name} cannot be read: {error.strerror}", hint=DAMAGED) from None


def _validated(kind: type[R], value: Any, source: Source, name: str, format_: int) -> R:
    try:
        return kind.model_validate(upgraded(name.rsplit("/", 1)[-1], value, format_))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{source.text}/{name}: {where}: {first['msg']}", hint=DAMAGED) from None
