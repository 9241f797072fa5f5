"""A state by the name that reports print: `DIR/crash/TRIAL/STATE`, with DIR a campaign directory or a zip of one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgstrata import __version__
from pgstrata.crash.kept import kept_log, state_file
from pgstrata.crash.program import ChosenState, parse_states
from pgstrata.errors import PreflightError, UsageError
from pgstrata.record.reader import CampaignData, CrashData, read
from pgstrata.record.schema import CRASH, PlannedRecord, StateRecord
from pgstrata.record.source import Source

STATES = "raw/states"


@dataclass(frozen=True)
class NamedState:
    """A state that a record keeps, with the trial that it is of."""

    data: CampaignData
    trial: CrashData
    name: str
    """In the trial: `1.17`, or `1.17-minimal`."""
    state: ChosenState
    record: StateRecord | None
    """What was seen in it; None of one that was made from another."""

    @property
    def planned(self) -> PlannedRecord:
        with self.data.source.open(f"{self.trial.folder}/planned.json") as file:
            return PlannedRecord.model_validate_json(file.read())

    @property
    def title(self) -> str:
        return f"{self.trial.folder}/{self.name}"

    @property
    def recorded_digest(self) -> str:
        """Of what was looked at; empty where the record does not have it."""
        minimal = self.trial.minimal
        if minimal is not None and minimal.state == self.name:
            return minimal.digest
        return self.record.digest if self.record else ""

    @property
    def log(self) -> str:
        """The event log that it is made of."""
        return _log_of(self.trial, self.record)

    @property
    def file(self) -> str:
        """The line that makes it."""
        return f"{self.trial.folder}/{state_file(self.name)}"

    @property
    def files(self) -> frozenset[str]:
        """Of the record, what belongs to this state."""
        folder = self.trial.folder
        own = {self.log, self.file}
        others = (name for name in self.data.source.below(folder) if not name.startswith(f"{folder}/raw/"))
        return frozenset({"campaign.json", *own, *others})

    def open_log(self) -> io.BufferedIOBase:
        """The event log, packed."""
        return self.data.source.open(self.log)


def named_state(text: str) -> NamedState:
    """UsageError for a name that leads to no state, PreflightError for one of another version's record."""
    place, _, rest = text.rpartition(f"/{CRASH}/")
    wanted, _, name = rest.partition("/")
    if place and name and Path(place).exists():
        data = read(Path(place))
        found = [(t, n) for t, n in _kept(data) if (t.id, n) == (wanted, name)]
    else:
        data = read(Path(text))
        found = list(_kept(data))
    if len(found) != 1:
        raise UsageError(_why(text, data, found), hint=_names(data))
    if data.record.version != __version__:
        raise PreflightError(
            f"{text} was recorded by pgstrata {data.record.version}, and this is {__version__}: "
            "only the same version makes the same states",
            hint=f"pip install pgstrata=={data.record.version}",
        )
    trial, name = found[0]
    record = _records(data.source, trial).get(name)
    return NamedState(data, trial, name, _state_of(data.source, trial, name), record)


def _why(text: str, data: CampaignData, found: list[tuple[CrashData, str]]) -> str:
    if found:
        return f"{text} has {len(found)} states that failed: one of them is to be named"
    return f"{text} is no state whose failure was kept" if list(_kept(data)) else f"{text} keeps no state that failed"


def _names(data: CampaignData) -> str:
    names = [f"{data.source.text}/{trial.folder}/{name}" for trial, name in _kept(data)]
    return f"for example {names[0]}" if names else "states are kept where a crash trial lost something"


def _kept(data: CampaignData) -> Iterator[tuple[CrashData, str]]:
    """Every state that can be made again, in the order of stacks."""
    for trial in data.crashes:
        records = _records(data.source, trial)
        files = data.source.below(f"{trial.folder}/{STATES}")
        names = (path.rpartition("/")[2].removesuffix(".json") for path in files)
        yield from ((trial, name) for name in names if data.source.has(_log_of(trial, records.get(name))))


def _log_of(trial: CrashData, record: StateRecord | None) -> str:
    return f"{trial.folder}/{kept_log(record.interrupts if record else None)}"


def _records(source: Source, trial: CrashData) -> dict[str, StateRecord]:
    """None of a trial that failed before it looked at states, or that is of a cluster."""
    if not source.has(f"{trial.folder}/states.jsonl"):
        return {}
    with source.open(f"{trial.folder}/states.jsonl") as file:
        states = [StateRecord.model_validate_json(line) for line in file.read().splitlines()]
        return {state.id: state for state in states}


def _state_of(source: Source, trial: CrashData, name: str) -> ChosenState:
    path = f"{trial.folder}/{state_file(name)}"
    with source.open(path) as file:
        (state,) = parse_states(file.read().decode())
    return state
