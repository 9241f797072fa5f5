"""A state by its name in reports: `DIR/crash/TRIAL/STATE`, with DIR a campaign directory or a zip of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pgstrata import __version__
from pgstrata.crash.event_log_archive import kept_log, state_file
from pgstrata.crash.program import ChosenState, parse_states
from pgstrata.errors import PreflightError, UsageError
from pgstrata.record.crash import CRASH, StateRecord
from pgstrata.record.reader import CampaignData, CrashData, read
from pgstrata.record.schema import PlannedRecord
from pgstrata.record.source import DAMAGED, Source

STATES = "raw/states"
MAX_STATES_BYTES = 64 << 20
"""Largest size in bytes of the file with the findings of all states, and of a file with one state."""


@dataclass(frozen=True)
class NamedState:
    """A recorded state, with its trial."""

    data: CampaignData
    trial: CrashData
    name: str
    """Name within the trial: `1.17`, or `1.17-minimal`."""
    state: ChosenState
    record: StateRecord | None
    """The report on it; None for a state derived from another."""

    @property
    def planned(self) -> PlannedRecord:
        name = f"{self.trial.folder}/planned.json"
        with self.data.source.open(name) as file, _understood(self.data.source, name):
            return PlannedRecord.model_validate_json(file.read())

    @property
    def title(self) -> str:
        return f"{self.trial.folder}/{self.name}"

    @property
    def recorded_digest(self) -> str:
        """Digest of the checked state; empty if the record has none."""
        minimal = self.trial.minimal
        if minimal is not None and minimal.state == self.name:
            return minimal.digest
        return self.record.digest if self.record else ""

    @property
    def log(self) -> str:
        """The event log from which it is made."""
        return _log_of(self.trial, self.record)

    @property
    def file(self) -> str:
        """The file with the line that makes it."""
        return f"{self.trial.folder}/{state_file(self.name)}"

    @property
    def files(self) -> frozenset[str]:
        """The files of the record that belong to this state."""
        folder = self.trial.folder
        own = {self.log, self.file}
        others = (name for name in self.data.source.below(folder) if not name.startswith(f"{folder}/raw/"))
        return frozenset({"campaign.json", *own, *others})


def named_state(text: str) -> NamedState:
    """Raises UsageError for a name that matches no state, PreflightError for a record of another version."""
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
    refuse_other_version(text, data)
    trial, name = found[0]
    record = recorded_states(data.source, trial).get(name)
    return NamedState(data, trial, name, _state_of(data.source, trial, name), record)


def refuse_other_version(text: str, data: CampaignData) -> None:
    """Raises PreflightError for a record of another version."""
    if data.record.version != __version__:
        raise PreflightError(
            f"{text} was recorded by pgstrata {data.record.version}, and this is {__version__}: "
            "only the same version makes the same states",
            hint=f"pip install pgstrata=={data.record.version}",
        )


def _why(text: str, data: CampaignData, found: list[tuple[CrashData, str]]) -> str:
    if found:
        return f"{text} has {len(found)} states that failed: one of them is to be named"
    return f"{text} is no state whose failure was kept" if list(_kept(data)) else f"{text} keeps no state that failed"


def _names(data: CampaignData) -> str:
    names = [f"{data.source.text}/{trial.folder}/{name}" for trial, name in _kept(data)]
    return f"for example {names[0]}" if names else "states are kept where a crash trial lost something"


def _kept(data: CampaignData) -> Iterator[tuple[CrashData, str]]:
    """Every state that can be recreated, in the order of stacks."""
    for trial in data.crashes:
        records = recorded_states(data.source, trial)
        files = data.source.below(f"{trial.folder}/{STATES}")
        names = (path.rpartition("/")[2].removesuffix(".json") for path in files)
        yield from ((trial, name) for name in names if data.source.has(_log_of(trial, records.get(name))))


def _log_of(trial: CrashData, record: StateRecord | None) -> str:
    return f"{trial.folder}/{kept_log(record.interrupts if record else None)}"


def recorded_states(source: Source, trial: CrashData) -> dict[str, StateRecord]:
    """The reports by state; empty for a trial that failed before it checked states, or of a cluster."""
    if not source.has(f"{trial.folder}/states.jsonl"):
        return {}
    name = f"{trial.folder}/states.jsonl"
    with source.open(name, MAX_STATES_BYTES) as file, _understood(source, name):
        states = [StateRecord.model_validate_json(line) for line in file.read(MAX_STATES_BYTES).splitlines()]
        return {state.id: state for state in states}


def _state_of(source: Source, trial: CrashData, name: str) -> ChosenState:
    path = f"{trial.folder}/{state_file(name)}"
    with _understood(source, path):
        (state,) = chosen_states(source, path)
    return state


def chosen_states(source: Source, name: str) -> tuple[ChosenState, ...]:
    """The states that the lines of a file make."""
    with source.open(name, MAX_STATES_BYTES) as file, _understood(source, name):
        return parse_states(file.read(MAX_STATES_BYTES).decode())


@contextmanager
def _understood(source: Source, name: str) -> Iterator[None]:
    """Raises UsageError if a file of the record is damaged."""
    try:
        yield
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        why = str(error).partition("\n")[0][:200] or type(error).__name__
        raise UsageError(f"{source.text}/{name} is not understood: {why}", hint=DAMAGED) from None
    except OSError as error:
        raise UsageError(f"{source.text}/{name} cannot be read: {error.strerror}", hint=DAMAGED) from None
