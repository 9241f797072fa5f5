"""Reads a campaign directory, or a zip of one, wherever it was moved to.

The small JSON files are read at once; series and raw output only when asked for, one cell at a time, so that a
campaign of any length streams.
"""

from __future__ import annotations

import errno
import io
import json
import lzma
import struct
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, Protocol, TypeVar

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
    PlannedRecord,
    Record,
    SettingRecord,
    SpaceRecord,
    StepRecord,
    TrialVerdict,
)
from pgstrata.record.upgrade import campaign_format, format_of, upgraded
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell

R = TypeVar("R", bound=Record)

MAX_JSON_BYTES = 256 << 20
MAX_MEMBER_BYTES = 2 << 30
SMALL_BYTES = 16 << 20
MAX_RATIO = 200
"""Unpacked to packed size of a member above SMALL_BYTES; logs of pgbench shrink to a tenth."""
MAX_MEMBERS = 1_000_000
MAX_ROWS = 50_000_000
"""Of one series: a day of a hundred rows a second is nine million."""

_UNPACK_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, RuntimeError, ValueError,
)  # fmt: skip

DAMAGED = "the file was changed or damaged: copy the directory again, whole, or open it with the version that wrote it"


class Source(Protocol):
    """Where the files of a campaign are."""

    @property
    def text(self) -> str: ...

    def trials(self, folder: str = "trials") -> tuple[str, ...]:
        """Names of the finished trials, sorted: the folders below `folder`, whether or not their files are there."""
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

    def trials(self, folder: str = "trials") -> tuple[str, ...]:
        # The trial that is being written comes and goes; its name begins with a dot.
        return tuple(sorted(p.name for p in (self.root / folder).glob("[!.]*") if p.is_dir()))

    def has(self, name: str) -> bool:
        try:
            return (self.root / name).is_file()
        except OSError as error:
            if (
                error.errno == errno.ENAMETOOLONG
            ):  # names come from the record, which may be damaged: no file has this one
                return False
            raise

    def below(self, folder: str) -> tuple[str, ...]:
        files = (p for p in (self.root / folder).rglob("*") if p.is_file())
        return tuple(sorted(p.relative_to(self.root).as_posix() for p in files))

    def open(self, name: str) -> io.BufferedIOBase:
        try:
            return (self.root / name).open("rb")
        except OSError as error:
            raise UsageError(f"{self.text}/{name} cannot be read: {error.strerror}", hint=DAMAGED) from None


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

    def trials(self, folder: str = "trials") -> tuple[str, ...]:
        root = f"{self.prefix}{folder}/"
        below = (n.removeprefix(root) for n in self.archive.namelist() if n.startswith(root))
        return tuple(sorted({n.split("/", 1)[0] for n in below if "/" in n and not n.startswith(("/", "."))}))

    def has(self, name: str) -> bool:
        at = bisect_left(self._names, name)
        return at < len(self._names) and self._names[at] == name

    def below(self, folder: str) -> tuple[str, ...]:
        # "0" follows "/".
        first, end = (bisect_left(self._names, f"{folder}{last}") for last in "/0")
        return tuple(self._names[first:end])

    def open(self, name: str) -> io.BufferedIOBase:
        member = self.archive.getinfo(self.prefix + name)
        packed_bytes = max(member.compress_size, 1)
        if member.file_size > MAX_MEMBER_BYTES or member.file_size > SMALL_BYTES + MAX_RATIO * packed_bytes:
            raise UsageError(
                f"{self.text}/{name} would unpack to {member.file_size} bytes from {member.compress_size}",
                hint="no record packs so well: it is not what pgstrata wrote; unpack it yourself if you trust it",
            )
        try:
            return io.BytesIO(self.archive.read(member))
        except _UNPACK_ERRORS as error:
            raise UsageError(f"{self.text}/{name} cannot be unpacked: {error}", hint=DAMAGED) from None


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
    archive = _open_zip(directory)
    found = sorted((n for n in archive.namelist() if n.rsplit("/", 1)[-1] == "campaign.json"), key=len)
    if not found:
        archive.close()
        raise UsageError(f"{directory} holds no campaign: there is no campaign.json in it", hint=hint)
    return ZipSource(directory, found[0].removesuffix("campaign.json"), archive)


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except _UNPACK_ERRORS as error:
        raise UsageError(f"{path} cannot be unpacked: {error}", hint=DAMAGED) from None
    count = len(archive.namelist())
    if count > MAX_MEMBERS:
        archive.close()
        raise UsageError(f"{path} holds {count} files, more than {MAX_MEMBERS}", hint="unpack it, and name the folder")
    return archive


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

    @property
    def baselines(self) -> tuple[MediumRecord, ...]:
        """Without the short checks before blocks."""
        return tuple(record for record in self.media if record.kind == "baseline")

    @property
    def campaign(self) -> Campaign:
        return self.record.campaign

    def cells(self, *, valid_only: bool = True) -> Iterator[CellData]:
        """Every measured run, in the order of the trials."""
        for trial in self.trials:
            if trial.valid or not valid_only:
                yield from trial.cells


def read(directory: str | Path) -> CampaignData:
    """The campaign in `directory` or zip; UsageError when it is none, or was written by a later version.

    A trial with a damaged or missing file is left out and named in `unreadable`.
    """
    source = _open_source(Path(directory))
    record = read_campaign(source)
    trials: list[TrialData] = []
    unreadable: list[UnreadableTrial] = []
    for name in source.trials():
        try:
            trials.append(read_trial(source, name, series=True))
        except UsageError as error:
            unreadable.append(UnreadableTrial(name, error.message, error.hint))
    return CampaignData(
        record,
        tuple(sorted(trials, key=place)),
        read_decisions(source),
        source,
        unreadable=tuple(unreadable),
        media=read_media(source),
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
    """What finished crash trials found; a trial that failed shows nothing that holds."""
    return tuple(_read_crash(source, name) for name in source.trials(CRASH))


def _read_crash(source: Source, name: str) -> CrashRecord:
    folder = f"{CRASH}/{name}"
    _require(source, folder, ("planned.json", "verdict.json"))
    value = _load_json(source, f"{folder}/planned.json")
    files = _TrialFiles(source, folder, format_of(value, f"{source.text}/{folder}/planned.json"))
    planned = files.validated("planned.json", value, PlannedRecord)
    verdict = files.validated("verdict.json", _load_json(source, f"{folder}/verdict.json"), TrialVerdict)
    found = files.one("durability.json", CrashRecord) or CrashRecord(stack=planned.stack.name, seed=0)
    if verdict.status != "ok" and found.verdict == "held":
        return found.model_copy(update={"verdict": "unknown"})
    return found


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
