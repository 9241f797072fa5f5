"""Follows a campaign directory of any process by reading it: each read gives its progress.

Finished trials do not change and are not read again; only the new lines of growing files are read.
"""

from __future__ import annotations

import json
import os
import stat
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from pgstrata.errors import PgstrataError
from pgstrata.record.decision import begun_rounds, round_trials
from pgstrata.record.reader import (
    CampaignData,
    TrialData,
    UnreadableTrial,
    place,
    read_campaign,
    read_decisions,
    read_media,
    read_trial,
    without_collection,
)
from pgstrata.record.recorder import is_locked
from pgstrata.record.schema import RUNNING, CampaignRecord, DecisionRecord, EventRecord
from pgstrata.record.source import FolderSource
from pgstrata.spec.campaign import Trial
from pgstrata.workload.driver import LoadDriver, driver_of

State = Literal["running", "finished", "not running", "not begun", "gone"]


@dataclass(frozen=True)
class Second:
    """A second of the load that has just passed."""

    t_s: float
    tps: float
    latency_ms: float | None


@dataclass(frozen=True)
class Running:
    """A trial in progress."""

    trial: str
    host: str
    stack: str
    block: int
    step: str
    step_s: float
    """Elapsed time of the step, by the clock of this machine."""
    expected_s: float | None
    seconds: tuple[Second, ...]
    """The last seconds; empty outside of measured runs, and on other hosts."""


@dataclass(frozen=True)
class Incident:
    """A trial that does not count."""

    trial: str
    stack: str
    status: str
    reason: str


@dataclass(frozen=True)
class Progress:
    """Progress at one moment."""

    name: str
    state: State
    primary: str
    stacks: tuple[str, ...]
    trials: dict[str, dict[str, int]]
    """Finished trials by stack and status."""
    finished: int
    blocks: int
    """Number of started blocks."""
    stage: str
    reason: str
    """Reason for the present block."""
    block_trials: int
    """Trials of the present block; with several hosts, of all blocks that run in parallel."""
    block_finished: int
    machine_time_s: float
    """Total over all hosts."""
    budget_left_s: float | None
    block_left_s: float | None
    """Estimate from the mean of the trials so far; with hosts in parallel, for the one with the most left."""
    running: tuple[Running, ...]
    incidents: tuple[Incident, ...]
    """The last incidents."""
    unreadable_lines: int
    """Number of event lines that cannot be read."""


# ---------------------------------------------------------------- growing files

FIRST_BYTES = 256 << 10
"""Bytes read at the end of a file that already existed: its last events tell the current state."""
PIECE_BYTES = 1 << 20
"""Maximum bytes per read, and the longest line."""


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """Yield descriptor and size of a regular file; OSError for any other. The path may come from a record: no link is
    followed, and a pipe does not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        yield descriptor, found.st_size
    finally:
        os.close(descriptor)


def last_bytes(path: Path, most: int) -> bytes:
    """Return the end of a regular file; empty for other files, or if it cannot be read. Never waits."""
    with suppress(OSError), _opened(path) as (descriptor, size):
        return os.pread(descriptor, most, max(0, size - most))
    return b""


@dataclass
class Tail:
    """The whole lines added since the last read."""

    path: Path
    _at: int = -1
    _torn: bool = False
    """True if the next line began before the bytes read, and is omitted."""

    def lines(self) -> list[bytes]:
        with suppress(OSError), _opened(self.path) as (descriptor, size):
            return self._read(descriptor, size)
        return []

    def _read(self, descriptor: int, size: int) -> list[bytes]:
        if self._at < 0 or size < self._at:  # started, or started again
            self._at = max(0, size - FIRST_BYTES)
            self._torn = self._at > 0
        piece = os.pread(descriptor, PIECE_BYTES, self._at)
        whole = piece.rfind(b"\n") + 1
        if whole == 0:
            if len(piece) == PIECE_BYTES:  # longer than a line may be
                self._at, self._torn = self._at + len(piece), True
            return []
        self._at += whole
        lines = piece[: whole - 1].split(b"\n")
        if self._torn:
            self._torn, lines = False, lines[1:]
        return lines


# ---------------------------------------------------------------- campaign directories

MOST_SECONDS = 120
PROGRESS_BYTES = 32 << 10
"""Maximum size of a driver's lines for the shown number of seconds."""
MOST_INCIDENTS = 5
LOCAL = "local"
"""Host whose files are on this machine."""


@dataclass(frozen=True)
class Finished:
    """Data of a finished trial that the progress needs."""

    id: str
    stack: str
    block: int
    status: str
    reason: str
    duration_s: float


@dataclass
class _Following:
    """A trial that is being written."""

    folder: Path
    events: Tail
    stack: str = ""
    block: int = 0
    host: str = ""
    begun: EventRecord | None = None
    """The current step."""


@dataclass
class Follower:
    """Reads one campaign directory."""

    directory: Path
    _finished: dict[str, Finished] = field(default_factory=dict)
    _following: dict[str, _Following] = field(default_factory=dict)
    _unreadable_lines: int = 0
    _trials: dict[str, TrialData | UnreadableTrial] = field(default_factory=dict)
    _round: _Round = field(default_factory=lambda: _Round())
    _seen: bool = False

    def look(self) -> Progress:
        """Return the current progress. Damaged, missing or incomplete files are omitted and reported."""
        source = FolderSource(self.directory)
        try:
            record = read_campaign(source)
            decisions = read_decisions(source)
        except (PgstrataError, OSError):
            return _nothing(self.directory, "gone" if self._seen else "not begun")
        self._seen = True
        self._look_at_running(record)
        self._look_at_finished(source)  # behind it: a trial that ends in between is counted, and runs no more
        return self._progress(record, decisions)

    @property
    def finished(self) -> int:
        """Number of finished trials at the last read."""
        return len(self._finished)

    def data(self) -> CampaignData:
        """Return the campaign for the judge; each trial is read once. UsageError if there is none."""
        source = FolderSource(self.directory)
        with without_collection():
            for name in source.trials():
                if name not in self._trials:
                    try:
                        self._trials[name] = read_trial(source, name)
                    except PgstrataError as error:
                        self._trials[name] = UnreadableTrial(name, error.message, error.hint)
        trials = sorted((t for t in self._trials.values() if isinstance(t, TrialData)), key=place)
        unreadable = tuple(t for t in self._trials.values() if isinstance(t, UnreadableTrial))
        record, decisions = read_campaign(source), read_decisions(source)
        return CampaignData(record, tuple(trials), decisions, source, unreadable, read_media(source))

    def _look_at_finished(self, source: FolderSource) -> None:
        for name in source.trials():
            if name not in self._finished:
                found = _finished_trial(self.directory / "trials" / name)
                if found is not None:
                    self._finished[name] = found
                    self._following.pop(f".{name}.partial", None)

    def _look_at_running(self, record: CampaignRecord) -> None:
        folders = {p.name: p for p in sorted((self.directory / "trials").glob(".*.partial"))}
        self._following = {
            name: self._following.get(name) or _Following(path, Tail(path / "events.jsonl"))
            for name, path in folders.items()
        }
        for one in self._following.values():
            if not one.stack:
                _get_to_know(one, record)
            for line in one.events.lines():
                self._take(one, line)

    def _take(self, one: _Following, line: bytes) -> None:
        try:
            event = EventRecord.model_validate_json(line)
        except ValidationError:
            self._unreadable_lines += 1
            return
        if event.event == "step_begun":
            one.begun = event
        elif event.event == "step_ended":
            one.begun = None

    def _progress(self, record: CampaignRecord, decisions: tuple[DecisionRecord, ...]) -> Progress:
        campaign, last = record.campaign, decisions[-1] if decisions else None
        trials = {stack.name: Counter[str]() for stack in campaign.stacks}
        for one in self._finished.values():
            trials.setdefault(one.stack, Counter())[one.status] += 1
        if not self._round.is_of(decisions):
            self._round = _round(record, decisions)
        left = self._round.left(self._finished)
        machine_time_s = sum(one.duration_s for one in self._finished.values())
        spent_s = _spent_s(begun_rounds(decisions), self._finished.values())
        mean_s = machine_time_s / len(self._finished) if self._finished else None
        state = self._state(last)
        elsewhere = self._elsewhere() if state == "running" else ()
        driver = driver_of(campaign.workload)
        running = (*(_running(one, driver) for one in self._following.values()), *elsewhere)
        budget_s = campaign.runs.budget
        incidents = [one for one in self._finished.values() if one.status != "ok"][-MOST_INCIDENTS:]
        return Progress(
            name=campaign.name,
            state=state,
            primary=campaign.goal.primary,
            stacks=tuple(stack.name for stack in campaign.stacks),
            trials={name: dict(counts) for name, counts in trials.items()},
            finished=len(self._finished),
            blocks=1 + max((one.block for one in self._finished.values()), default=-1),
            stage=last.stage if last is not None else "",
            reason=last.reason if last is not None else "",
            block_trials=len(self._round.hosts),
            block_finished=len(self._round.hosts) - left.total(),
            machine_time_s=machine_time_s,
            budget_left_s=None if budget_s is None else max(0.0, budget_s - spent_s),
            block_left_s=None if mean_s is None else mean_s * max(left.values(), default=0),
            running=running,
            incidents=tuple(Incident(one.id, one.stack, one.status, one.reason) for one in incidents),
            unreadable_lines=self._unreadable_lines,
        )

    def _elsewhere(self) -> Iterator[Running]:
        """Yield trials on other machines, of which it is only known that they run."""
        for path in sorted((self.directory / RUNNING).glob("*.json")):
            if path.stem not in self._finished:
                try:
                    trial = Trial.model_validate_json(path.read_bytes())
                except (OSError, ValueError):  # it appeared just now, or is being written
                    continue
                yield Running(trial.id, trial.host, trial.stack, trial.block, "", 0.0, None, ())

    def _state(self, last: DecisionRecord | None) -> State:
        if is_locked(str(self.directory)):
            return "running"
        return "finished" if last is not None and last.stage == "done" else "not running"


def _nothing(directory: Path, state: State) -> Progress:
    name = directory.resolve().name
    return Progress(name, state, "tps", (), {}, 0, 0, "", "", 0, 0, 0.0, None, None, (), (), 0)


def _finished_trial(folder: Path) -> Finished | None:
    """Read a finished trial from two small files; the verdict so far reports a damaged trial."""
    try:
        planned: Any = json.loads((folder / "planned.json").read_bytes())
        verdict: Any = json.loads((folder / "verdict.json").read_bytes())
        trial = planned["trial"]
        return Finished(
            id=folder.name,
            stack=str(trial["stack"]),
            block=int(trial["block"]),
            status=str(verdict["status"]),
            reason=str(verdict.get("reason", "")),
            duration_s=float(verdict.get("duration_s", 0.0)),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _get_to_know(one: _Following, record: CampaignRecord) -> None:
    """Read plan and facts of a trial once they are written."""
    try:
        trial: Any = json.loads((one.folder / "planned.json").read_bytes())["trial"]
        one.stack, one.block = str(trial["stack"]), int(trial["block"])
        one.host = str(trial.get("host") or record.campaign.host)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return


def _running(one: _Following, driver: LoadDriver) -> Running:
    begun = one.begun
    return Running(
        trial=one.folder.name.removeprefix(".").removesuffix(".partial"),
        host=(begun.host if begun is not None else None) or one.host,
        stack=one.stack,
        block=one.block,
        step=(begun.step if begun is not None else None) or "",
        step_s=_since_s(begun.at) if begun is not None else 0.0,
        expected_s=begun.expected_s if begun is not None else None,
        seconds=_seconds(begun, driver) if begun is not None else (),
    )


def _since_s(at: str) -> float:
    try:
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _seconds(begun: EventRecord, driver: LoadDriver) -> tuple[Second, ...]:
    """Return the driver's output for the last seconds: a file of this machine, if that is the host."""
    if begun.progress is None or begun.host != LOCAL:
        return ()
    text = last_bytes(Path(begun.progress), PROGRESS_BYTES).decode(errors="replace")
    whole = text[: text.rfind("\n") + 1]
    rows = [Second(row[0] or 0.0, row[1] or 0.0, row[2]) for row in driver.parse_seconds(whole)]
    return tuple(rows[-MOST_SECONDS:])


@dataclass(frozen=True)
class _Round:
    """The last decision."""

    decisions: int = 0
    """Number of decisions at that time."""
    hosts: dict[str, str] = field(default_factory=dict)
    """Hosts of its trials, by trial id."""

    def is_of(self, decisions: Sequence[DecisionRecord]) -> bool:
        return self.decisions == len(decisions)

    def left(self, finished: Container[str]) -> Counter[str]:
        """Return the number of unfinished trials by host: hosts run in parallel."""
        return Counter(host for id_, host in self.hosts.items() if id_ not in finished)


def _round(record: CampaignRecord, decisions: Sequence[DecisionRecord]) -> _Round:
    last = decisions[-1] if decisions else None
    if last is None or last.stage == "done":
        return _Round(len(decisions))
    try:
        blocks = round_trials(record.campaign, last, len(begun_rounds(decisions)) - 1)
    except PgstrataError:
        return _Round(len(decisions))
    return _Round(len(decisions), {trial.id: trial.host for trials in blocks.values() for trial in trials})


def _spent_s(rounds: Sequence[int], finished: Iterable[Finished]) -> float:
    """Return the time that counts for a budget: of the blocks of a round, which run in parallel, the longest."""
    spent_s: defaultdict[int, float] = defaultdict(float)
    for one in finished:
        spent_s[one.block] += one.duration_s
    longest_s: defaultdict[int, float] = defaultdict(float)
    for block, own_s in spent_s.items():
        at = bisect_right(rounds, block)
        longest_s[at] = max(longest_s[at], own_s)
    return sum(longest_s.values())
