"""Reads a campaign directory, or a zip of one, wherever it was moved to.

The small JSON files are read at once; series and raw output only when asked for, one cell at a time, so that a
campaign of any length streams.
"""

from __future__ import annotations

import io
import json
import zipfile
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.record.parquet import SERIES, arrow_schema
from pgstrata.record.schema import (
    CAMPAIGN_SCHEMA,
    AttestedRecord,
    CampaignRecord,
    CellResult,
    DecisionRecord,
    HostFacts,
    LoadRecord,
    PlannedRecord,
    Record,
    SpaceRecord,
    StepRecord,
    TrialVerdict,
)
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell

R = TypeVar("R", bound=Record)

DAMAGED = "the file was changed or damaged: copy the directory again, whole, or open it with the version that wrote it"


class Source(Protocol):
    """Where the files of a campaign are."""

    @property
    def text(self) -> str: ...

    def trials(self) -> tuple[str, ...]:
        """Names of the finished trials, sorted: the folders below `trials` that hold a verdict."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is that file; names are relative to the campaign directory, with `/`."""
        ...

    def below(self, folder: str) -> tuple[str, ...]:
        """Every file below a folder, sorted."""
        ...

    def open(self, name: str) -> io.BufferedIOBase: ...


@dataclass(frozen=True)
class FolderSource:
    """A campaign directory."""

    root: Path

    @property
    def text(self) -> str:
        return str(self.root)

    def trials(self) -> tuple[str, ...]:
        # The trial that is being written comes and goes; its name begins with a dot.
        found = (p.name for p in (self.root / "trials").glob("[!.]*"))
        return tuple(sorted(name for name in found if self.has(f"trials/{name}/verdict.json")))

    def has(self, name: str) -> bool:
        return (self.root / name).is_file()

    def below(self, folder: str) -> tuple[str, ...]:
        files = (p for p in (self.root / folder).rglob("*") if p.is_file())
        return tuple(sorted(p.relative_to(self.root).as_posix() for p in files))

    def open(self, name: str) -> io.BufferedIOBase:
        return (self.root / name).open("rb")


@dataclass(frozen=True)
class ZipSource:
    """A zipped campaign directory; the campaign may lie below folders of the zip."""

    path: Path
    prefix: str
    archive: zipfile.ZipFile = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        return str(self.path)

    @cached_property
    def _names(self) -> list[str]:
        cut = len(self.prefix)
        names = self.archive.namelist()
        return sorted({n[cut:] for n in names if n.startswith(self.prefix) and not n.endswith("/")})

    def trials(self) -> tuple[str, ...]:
        paths = (name.split("/") for name in self.below("trials"))
        return tuple(p[1] for p in paths if len(p) == 3 and p[2] == "verdict.json" and not p[1].startswith("."))

    def has(self, name: str) -> bool:
        at = bisect_left(self._names, name)
        return at < len(self._names) and self._names[at] == name

    def below(self, folder: str) -> tuple[str, ...]:
        # "0" follows "/".
        first, end = (bisect_left(self._names, f"{folder}{last}") for last in "/0")
        return tuple(self._names[first:end])

    def open(self, name: str) -> io.BufferedIOBase:
        return io.BytesIO(self.archive.read(self.prefix + name))


def _open_source(directory: Path) -> Source:
    hint = "name the folder that `pgstrata run` or `pgstrata import` wrote, or a zip of it"
    if directory.is_dir():
        if not (directory / "campaign.json").is_file():
            raise UsageError(f"{directory} is no campaign directory: it has no campaign.json", hint=hint)
        return FolderSource(directory)
    if not directory.is_file():
        raise UsageError(f"no campaign directory at {directory}", hint=hint)
    if not zipfile.is_zipfile(directory):
        raise UsageError(f"{directory} is neither a campaign directory nor a zip of one", hint=hint)
    archive = zipfile.ZipFile(directory)
    found = sorted((n for n in archive.namelist() if n.rsplit("/", 1)[-1] == "campaign.json"), key=len)
    if not found:
        archive.close()
        raise UsageError(f"{directory} holds no campaign: there is no campaign.json in it", hint=hint)
    return ZipSource(directory, found[0].removesuffix("campaign.json"), archive)


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
        with self.source.open(f"{self.folder}/{series}.parquet") as file:
            # Not pq.read_table: for files this small its data set machinery costs four times the reading.
            table = pq.ParquetFile(file).read(columns=columns, use_threads=False)
            return table if columns is None else table.select(columns)

    def raw_names(self) -> tuple[str, ...]:
        """Files of raw output, relative to the campaign directory."""
        return self.source.below(f"{self.folder}/raw")

    def open_raw(self, name: str) -> io.BufferedIOBase:
        """A raw file of this cell, by its name below `raw/`."""
        return self.source.open(f"{self.folder}/raw/{name}")


@dataclass(frozen=True)
class TrialData:
    """One recorded trial."""

    trial: Trial
    stack: Stack
    verdict: TrialVerdict
    facts: HostFacts | None
    attested: tuple[AttestedRecord, ...]
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

    def space_after(self, moment: str) -> SpaceRecord | None:
        """The space measured at `after load` or `after CELL-ID`."""
        return next((s for s in self.space if s.moment == moment), None)

    def raw_names(self) -> tuple[str, ...]:
        """Files of raw output of the trial itself, relative to the campaign directory."""
        return self.source.below(f"{self.folder}/raw")


@dataclass(frozen=True)
class CampaignData:
    """A recorded campaign."""

    record: CampaignRecord
    trials: tuple[TrialData, ...]
    """In the order of block and position; every status."""
    decisions: tuple[DecisionRecord, ...]
    source: Source = field(repr=False, compare=False)

    @property
    def campaign(self) -> Campaign:
        return self.record.campaign

    def cells(self, *, valid_only: bool = True) -> Iterator[CellData]:
        """Every measured run, in the order of the trials."""
        for trial in self.trials:
            if trial.valid or not valid_only:
                yield from trial.cells


def read(directory: str | Path) -> CampaignData:
    """The campaign in `directory` or zip; UsageError when it is none, or was written by a later version."""
    source = _open_source(Path(directory))
    record = _read_campaign(source)
    trials = sorted((read_trial(source, name) for name in source.trials()), key=place)
    return CampaignData(record, tuple(trials), read_decisions(source), source)


def place(trial: TrialData) -> tuple[int, int, str]:
    """By which trials are ordered."""
    return trial.trial.block, trial.trial.position, trial.id


def _read_campaign(source: Source) -> CampaignRecord:
    value = _load_json(source, "campaign.json")
    version = value.get("schema_", value.get("schema")) if isinstance(value, dict) else None
    if version != CAMPAIGN_SCHEMA:
        raise UsageError(
            f"{source.text} has schema {version}, this version of pgstrata reads {CAMPAIGN_SCHEMA}",
            hint="open it with the version of pgstrata that wrote it (`version` in campaign.json)",
        )
    return _validated(CampaignRecord, value, source, "campaign.json")


def read_trial(source: Source, name: str) -> TrialData:
    """One finished trial; it never changes any more."""
    folder = f"trials/{name}"
    planned = _read_one(source, f"{folder}/planned.json", PlannedRecord)
    verdict = _read_one(source, f"{folder}/verdict.json", TrialVerdict)
    if planned is None or verdict is None:
        raise UsageError(
            f"{source.text}/{folder} is incomplete: planned.json is missing",
            hint="copy the directory again, whole; or move this trial's folder out of it",
        )
    trial = planned.trial
    return TrialData(
        trial=trial,
        stack=planned.stack,
        verdict=verdict,
        facts=_read_one(source, f"{folder}/facts.json", HostFacts),
        attested=_read_list(source, f"{folder}/attested.json", AttestedRecord),
        steps=_read_lines(source, f"{folder}/steps.jsonl", StepRecord),
        load=_read_one(source, f"{folder}/load.json", LoadRecord),
        space=_read_list(source, f"{folder}/space.json", SpaceRecord),
        cells=_read_cells(source, folder, trial),
        planned=planned,
        source=source,
    )


def _read_cells(source: Source, folder: str, trial: Trial) -> tuple[CellData, ...]:
    cells = []
    for cell in trial.cells:
        result = _read_one(source, f"{folder}/cells/{cell.id}/result.json", CellResult)
        if result is not None:
            cells.append(CellData(trial.id, trial.stack, trial.block, result, source, f"{folder}/cells/{cell.id}"))
    return tuple(cells)


def read_decisions(source: Source) -> tuple[DecisionRecord, ...]:
    """What the scheduler decided; a torn last line (the machine lost power) is left out."""
    return _read_lines(source, "decisions.jsonl", DecisionRecord)


def _load_json(source: Source, name: str) -> Any:
    with source.open(name) as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise UsageError(f"{source.text}/{name} is not JSON: {error}", hint=DAMAGED) from None


def _validated(kind: type[R], value: Any, source: Source, name: str) -> R:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{source.text}/{name}: {where}: {first['msg']}", hint=DAMAGED) from None


def _read_one(source: Source, name: str, kind: type[R]) -> R | None:
    return _validated(kind, _load_json(source, name), source, name) if source.has(name) else None


def _read_list(source: Source, name: str, kind: type[R]) -> tuple[R, ...]:
    if not source.has(name):
        return ()
    return tuple(_validated(kind, value, source, name) for value in _load_json(source, name))


def _read_lines(source: Source, name: str, kind: type[R]) -> tuple[R, ...]:
    if not source.has(name):
        return ()
    with source.open(name) as file:
        lines = file.read().decode().split("\n")
    # The text ends in a newline, so the last part is empty unless the line was torn.
    return tuple(_validated(kind, json.loads(line), source, name) for line in lines[:-1] if line)
