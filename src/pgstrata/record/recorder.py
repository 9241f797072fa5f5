"""Writes a campaign directory: one immutable directory a trial, moved to its name when its verdict is written.

A trial is written to `trials/.ID.partial/`. `verdict.json` is its last file; then the directory is renamed, so a
trial either is there whole or is not there. What a killed run left behind moves to `interrupted/`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pgstrata import __version__
from pgstrata.errors import PgstrataError, PreflightError, UsageError, writing
from pgstrata.record.crash import CRASH
from pgstrata.record.delivered import delivered_trial, sync, unpack, write_files
from pgstrata.record.parquet import write_series
from pgstrata.record.reader import (
    CampaignData,
    CrashData,
    TrialData,
    place,
    read_campaign,
    read_crash_trials,
    read_decisions,
    read_media,
    read_trial,
    without_collection,
)
from pgstrata.record.schema import (
    RUNNING,
    CampaignRecord,
    DecisionRecord,
    MediumRecord,
    Origin,
    PlannedRecord,
    Record,
    TrialVerdict,
)
from pgstrata.record.source import FolderSource
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import block_of

LOCK = ".lock"


def utc_now() -> str:
    """ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_atomically(path: Path, text: str) -> None:
    """Writes a file whole or not at all, durably; RecordError on a read-only or full filesystem."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync(path.parent)


@dataclass
class TrialRecorder:
    """The directory of one trial while it is being written."""

    trial: Trial
    partial: Path
    final: Path
    ended: Callable[[Trial, TrialVerdict], None] = lambda trial, verdict: None
    """Is told how it ended, once it is finished."""

    def path(self, name: str) -> Path:
        """A file below the trial's directory, its folder made."""
        path = self.partial / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def raw(self, name: str) -> Path:
        """`raw/NAME` of the trial."""
        return self.path(f"raw/{name}")

    def cell(self, cell_id: str, name: str) -> Path:
        """`cells/CELL/NAME`."""
        return self.path(f"cells/{cell_id}/{name}")

    def write(self, name: str, record: Record) -> None:
        """One record as a JSON file."""
        self.write_text(name, record.model_dump_json(indent=1) + "\n")

    def write_list(self, name: str, records: Sequence[Record]) -> None:
        """A list of records as one JSON file."""
        self.write_text(name, json.dumps([r.model_dump(mode="json") for r in records], indent=1) + "\n")

    def write_text(self, name: str, text: str) -> None:
        path = self.path(name)
        with writing(path):
            path.write_text(text, encoding="utf-8")

    def append(self, name: str, record: Record) -> None:
        """One more line of a JSON-lines file."""
        path = self.path(name)
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(record.model_dump_json(exclude_none=True) + "\n")

    def series(self, cell_id: str, series: str, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> int:
        """One series of a cell as Parquet; returns the number of rows."""
        path = self.cell(cell_id, f"{series}.parquet")
        with writing(path):
            return write_series(path, series, rows)

    def finish(self, verdict: TrialVerdict) -> None:
        """The verdict, and with it the final name; nothing may be written afterwards."""
        with writing(self.partial):
            for path in self.partial.rglob("*"):
                sync(path)
        whole = verdict.model_copy(update={"files": self._files()})
        write_atomically(self.partial / "verdict.json", whole.model_dump_json(indent=1) + "\n")
        self._give_name()
        self.ended(self.trial, whole)

    def adopt(self, files: Mapping[str, memoryview]) -> None:
        """The files of the trial, which was recorded on another machine."""
        write_files(files, self.partial)
        self._give_name()

    def _give_name(self) -> None:
        with writing(self.final):
            self.partial.rename(self.final)
            sync(self.final.parent)

    def _files(self) -> tuple[str, ...]:
        """Raw output may be removed later to save space; everything else is needed."""
        names = (p.relative_to(self.partial) for p in self.partial.rglob("*") if p.is_file())
        return tuple(sorted(name.as_posix() for name in names if "raw" not in name.parts))


@dataclass
class CampaignDirectory:
    """A campaign directory that this process writes to; locked against a second run while open."""

    path: Path
    record: CampaignRecord
    _lock: IO[str] = field(repr=False)
    _made: tuple[Path, ...] | None = field(default=None, repr=False)
    """Folders made for a new directory, deepest first. None for one that was there, or once it is used."""
    _trials: dict[str, TrialData] = field(default_factory=dict, repr=False)
    """Finished trials that `finished` has read."""
    _arrived: dict[str, TrialData] = field(default_factory=dict, repr=False)
    """Trials that came from other machines and were not asked for yet."""
    _appending: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Several hosts are measured at once, and their lines go to one file."""
    _next_block: int | None = field(default=None, repr=False)
    _counting: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def create_or_open(
        cls,
        out: Path,
        campaign: Campaign,
        origin: Origin = "run",
        *,
        source_text: str | None = None,
        paired: bool = True,
        rejected: Mapping[str, int] | None = None,
        sources: Mapping[str, bytes] | None = None,
    ) -> CampaignDirectory:
        """Makes the directory, or opens it to go on with the same campaign.

        `source_text` is what the user wrote, `sources` are the files that all runs of an import come from, by name.
        UsageError when another campaign or another version's is there, PreflightError when another process runs in it
        or it cannot be written. A new directory is removed again when an error ends the `with` block before anything
        was decided or begun.
        """
        made = tuple(folder for folder in (out, *out.parents) if not folder.exists())
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            lock = _lock_directory(out)
        is_new = not (out / "campaign.json").exists()
        try:
            digests = {name: hashlib.sha256(content).hexdigest() for name, content in (sources or {}).items()}
            record = _record_of(out, campaign, origin, paired, rejected or {}, digests)
            if source_text is not None:
                write_atomically(out / "campaign.yaml", source_text)
            directory = cls(out, record, lock, made if is_new else None)
            directory._make_folders(sources or {})
            directory._set_interrupted_aside()
            directory._forget_all_running()
        except BaseException:
            lock.close()
            raise
        return directory

    def _make_folders(self, sources: Mapping[str, bytes]) -> None:
        with writing(self.path):
            for name in ("trials", "interrupted", *(["source"] if sources else [])):
                (self.path / name).mkdir(exist_ok=True)
            for name, content in sources.items():
                (self.path / "source" / name).write_bytes(content)

    def _set_interrupted_aside(self) -> None:
        """Partial trials of a killed run are kept for inspection, but are no trials."""
        for partial in sorted(p for folder in ("trials", CRASH) for p in (self.path / folder).glob(".*.partial")):
            self._set_aside(partial)

    def _set_aside(self, partial: Path) -> None:
        name = partial.name.removeprefix(".").removesuffix(".partial")
        number = 1
        while (self.path / "interrupted" / f"{name}.{number}").exists():
            number += 1
        aside = self.path / "interrupted" / f"{name}.{number}"
        with writing(aside):
            partial.rename(aside)

    @property
    def campaign(self) -> Campaign:
        return self.record.campaign

    def start_trial(self, trial: Trial, planned: PlannedRecord) -> TrialRecorder:
        """A recorder for a trial that is not finished; `planned.json` is written at once."""
        return self._start("trials", trial, planned)

    def start_crash(self, trial: Trial, planned: PlannedRecord) -> TrialRecorder:
        """The same for a crash trial."""
        return self._start(CRASH, trial, planned)

    def _start(self, folder: str, trial: Trial, planned: PlannedRecord) -> TrialRecorder:
        recorder = self._recorder(folder, trial)
        recorder.write("planned.json", planned)
        return recorder

    def _recorder(self, folder: str, trial: Trial) -> TrialRecorder:
        self._made = None
        final = self.path / folder / trial.id
        partial = self.path / folder / f".{trial.id}.partial"
        if final.exists():
            raise PgstrataError(f"trial {trial.id} is finished: its directory is never written again")
        with writing(partial):
            partial.mkdir(parents=True)
        return TrialRecorder(trial, partial, final, self._count if folder != CRASH else TrialRecorder.ended)

    def adopt(self, trial: Trial, archive: bytes) -> TrialVerdict:
        """A trial that was recorded on another machine: it is there whole or not at all.

        NotUnderstood where it is not this very trial, or cannot be read.
        """
        recorder = self._recorder("trials", trial)
        try:
            files = unpack(archive)
            found = delivered_trial(files, trial)
            recorder.adopt(files)
            self._count(trial, found.verdict)
            self._arrived[trial.id] = found.found_in(FolderSource(self.path))
            return found.verdict
        except BaseException:
            shutil.rmtree(recorder.partial, ignore_errors=True)
            raise

    def note_running(self, trial: Trial) -> None:
        """For whoever follows the campaign: it runs on another machine, from where its files come when it has ended."""
        path = self._note(trial)
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            path.write_text(trial.model_dump_json(), encoding="utf-8")

    def forget_running(self, trial: Trial) -> None:
        """Forgets a trial that has come, or whose machine was lost."""
        with suppress(OSError):
            self._note(trial).unlink(missing_ok=True)

    def _note(self, trial: Trial) -> Path:
        return self.path / RUNNING / f"{trial.id}.json"

    def _forget_all_running(self) -> None:
        shutil.rmtree(self.path / RUNNING, ignore_errors=True)

    def set_aside(self, recorder: TrialRecorder) -> None:
        """Gives an interrupted trial up: it is not finished, and a resumed campaign runs it again."""
        if recorder.partial.exists():
            self._set_aside(recorder.partial)

    def finished(self) -> tuple[TrialData, ...]:
        """Every finished trial, of whatever verdict; what was read here is not read again, for it never changes."""
        with without_collection():
            for name in FolderSource(self.path).trials():
                self._trials[name] = self.finished_trial(name)
        return tuple(sorted(self._trials.values(), key=place))

    def has_finished(self, id_: str) -> bool:
        """True if a trial of that id is in the record, of whatever verdict."""
        return (self.path / "trials" / id_).is_dir()

    def finished_trial(self, id_: str) -> TrialData:
        """One of them, not kept in memory. UsageError when it cannot be read: it would neither count nor run again."""
        if id_ in self._trials:
            return self._trials[id_]
        if id_ in self._arrived:
            return self._arrived.pop(id_)
        try:
            return read_trial(FolderSource(self.path), id_)
        except UsageError as error:
            hint = f"move {self.path}/trials/{id_} out of the campaign directory: it runs again then"
            raise UsageError(error.message, hint=hint) from None

    def forget(self) -> None:
        """Gives the memory of finished trials back: whatever is asked for is read again."""
        self._trials.clear()

    def next_block(self) -> int:
        """The first one without a finished trial, by names: a fleet has hundreds of thousands of trials. A stack that
        cannot be built ran in no block."""
        with self._counting:
            if self._next_block is None:
                self._next_block = self._last_block() + 1
            return self._next_block

    def _last_block(self) -> int:
        for name in sorted(FolderSource(self.path).trials(), key=block_of, reverse=True):
            if self.finished_trial(name).verdict.status != "unsupported":
                return block_of(name)
        return -1

    def _count(self, trial: Trial, verdict: TrialVerdict) -> None:
        with self._counting:
            if self._next_block is not None and verdict.status != "unsupported":
                self._next_block = max(self._next_block, trial.block + 1)

    def data(self) -> CampaignData:
        """The campaign as it is recorded so far."""
        source = FolderSource(self.path)
        crashes, damaged = read_crash_trials(source)
        return CampaignData(
            self.record,
            self.finished(),
            self.decisions(),
            source,
            unreadable=damaged,
            media=self.media(),
            crashes=crashes,
        )

    def crash_trials(self) -> tuple[CrashData, ...]:
        """Every crash trial that can be read."""
        return read_crash_trials(FolderSource(self.path))[0]

    def media(self) -> tuple[MediumRecord, ...]:
        return read_media(FolderSource(self.path))

    def decisions(self) -> tuple[DecisionRecord, ...]:
        return read_decisions(FolderSource(self.path))

    def record_decision(self, decision: DecisionRecord) -> None:
        """Appends a decision, durably."""
        self._append("decisions.jsonl", decision)

    def record_medium(self, medium: MediumRecord) -> None:
        """Appends a baseline of the medium, durably."""
        self._append("media.jsonl", medium)

    def _append(self, name: str, record: Record) -> None:
        """One more line; one that was torn by a power cut before is closed first."""
        self._made = None
        path = self.path / name
        with self._appending, writing(path):
            _close_torn_line(path)
            with path.open("a", encoding="utf-8") as file:
                file.write(record.model_dump_json() + "\n")
                file.flush()
                os.fsync(file.fileno())

    def close(self) -> None:
        self._forget_all_running()
        self._lock.close()

    def __enter__(self) -> CampaignDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._made is not None:
            self._remove(self._made)
        self.close()

    def _remove(self, made: Sequence[Path]) -> None:
        """Takes a new directory back; whatever else somebody put there stays, and the folders with it."""
        with suppress(OSError):  # the error that ends the block is the one to tell
            for name in ("campaign.json", "campaign.yaml", LOCK):
                (self.path / name).unlink(missing_ok=True)
            for folder in (self.path / "trials", self.path / "interrupted", *made):
                folder.rmdir()


def _close_torn_line(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def _lock_directory(out: Path) -> IO[str]:
    """The kernel drops the lock when the process ends, however it ends."""
    lock = (out / LOCK).open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise PreflightError(
            f"another pgstrata (process {owner}) is running in {out}",
            hint="wait for it to end, or choose another folder with --out DIR",
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def is_locked(directory: str) -> bool:
    """True if some process runs in a campaign directory; False for a zip."""
    path = Path(directory) / LOCK
    if not path.is_file():
        return False
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _record_of(
    out: Path, campaign: Campaign, origin: Origin, paired: bool, rejected: Mapping[str, int], sources: Mapping[str, str]
) -> CampaignRecord:
    path = out / "campaign.json"
    if not path.exists():
        _refuse_foreign(out)
        record = CampaignRecord(
            version=__version__,
            created=utc_now(),
            campaign=campaign,
            origin=origin,
            declared_blocks=campaign.runs.blocks,
            paired=paired,
            rejected=dict(rejected),
            sources=dict(sources),
        )
        write_atomically(path, record.model_dump_json(indent=1) + "\n")
        return record
    before = read_campaign(FolderSource(out))
    if before.campaign != campaign or before.origin != origin:
        _refuse_other(out, before, campaign, origin)
    record = before.model_copy(update={"campaign": campaign})
    written = path.read_text(encoding="utf-8")
    text = record.model_dump_json(indent=1) + "\n"
    if written != text:  # extended, or of an earlier format
        _keep_earlier(out / "campaign-before.jsonl", written)
        write_atomically(path, text)
    return record


def _keep_earlier(path: Path, written: str) -> None:
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(json.loads(written), separators=(",", ":")) + "\n")


def _refuse_foreign(out: Path) -> None:
    foreign = sorted(p.name for p in out.iterdir() if not p.name.startswith("."))
    if foreign:
        raise UsageError(
            f"{out} is not empty and holds no campaign (it has {', '.join(foreign[:3])})",
            hint="choose a new folder with --out DIR",
        )


def _fixed_part(campaign: Campaign) -> dict[str, Any]:
    """Return what must stay as it was: all but when to stop, what is asked of the result, and notes."""
    value = campaign.model_dump(mode="json")
    for key in ("blocks", "max_blocks", "budget", "max_trial_duration"):
        value["runs"].pop(key)
    for key in ("goal", "note", "scratch", "crash"):
        value.pop(key)
    value["hosts"] = bool(value["hosts"])  # which ones may change: hosts join and leave
    return value


def _refuse_other(out: Path, before: CampaignRecord, campaign: Campaign, origin: Origin) -> None:
    """A campaign may be extended (more blocks, another goal); anything else would mix unlike runs."""
    if before.origin != origin:
        raise UsageError(
            f"{out} holds a campaign made by `{before.origin}`, not by `{origin}`",
            hint="choose another folder with --out DIR",
        )
    old, new = _fixed_part(before.campaign), _fixed_part(campaign)
    differing = sorted(key for key in new if old.get(key) != new[key])
    if differing:
        raise UsageError(
            f"{out} holds another campaign: {', '.join(differing)} differ",
            hint=f"choose another folder with --out DIR, or undo the change (recorded in {out}/campaign.json)",
        )
