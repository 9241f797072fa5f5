"""Events of a running campaign as data, passed to every listener as they happen.

A listener is a function of one event. The command line's are a live line, lines for logs, and silence; the trial's own
writes `events.jsonl`. Events of a trial carry its campaign and its id, so several trials may run at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pgstrata.host.protocol import Command
from pgstrata.record.recorder import TrialRecorder, utc_now
from pgstrata.record.schema import AttestedRecord, CommandKind, EventRecord, TrialVerdict
from pgstrata.spec.campaign import Trial


@dataclass(frozen=True)
class Notice:
    """Something the user should know now."""

    text: str


@dataclass(frozen=True)
class BlockBegun:
    """A block, or on several hosts a block of each; `number`, of the first one, counts from 0."""

    campaign: str
    number: int
    trials: int
    stage: str
    reason: str
    spent_s: float = 0.0
    """Part of the budget spent before it, from the record: includes earlier sessions."""
    hosts: int = 1
    """Number of hosts that run its trials in parallel."""


@dataclass(frozen=True)
class TrialBegun:
    campaign: str
    trial: Trial


@dataclass(frozen=True)
class TrialSkipped:
    """A trial that was finished in an earlier run."""

    campaign: str
    trial: Trial


@dataclass(frozen=True)
class TrialEnded:
    campaign: str
    trial: Trial
    verdict: TrialVerdict


@dataclass(frozen=True)
class StepBegun:
    """`expected_s` where its length is known (warm-up, measuring), `left_s` that of all such steps from here on;
    `progress` is the file on the host that its program writes its progress to."""

    campaign: str
    trial: str
    step: str
    expected_s: float | None = None
    left_s: float = 0.0
    host: str | None = None
    progress: str | None = None


@dataclass(frozen=True)
class StepEnded:
    """`error` is empty when it ended well."""

    campaign: str
    trial: str
    step: str
    duration_s: float
    error: str = ""


@dataclass(frozen=True)
class CommandRun:
    """A command or program, once it has ended; `began` is in UTC. No exit code: not ended in time, or not known."""

    campaign: str
    trial: str
    step: str
    kind: CommandKind
    command: Command
    host: str
    began: str
    exit_code: int | None = None
    duration_s: float | None = None


@dataclass(frozen=True)
class AttestedRows:
    """Values compared with the plan."""

    campaign: str
    trial: str
    rows: tuple[AttestedRecord, ...]


Event = Notice | BlockBegun | TrialBegun | TrialSkipped | TrialEnded | StepBegun | StepEnded | CommandRun | AttestedRows

Tell = Callable[[Event], None]
"""A listener: must not raise, and must return at once."""


def silent(event: Event) -> None:
    """Ignores the event."""


@dataclass(frozen=True)
class EventLog:
    """Writes `events.jsonl` of one trial. Events of other trials are left out, except notices."""

    recorder: TrialRecorder

    def __call__(self, event: Event) -> None:
        record = self._record(event)
        if record is not None:
            self.recorder.append("events.jsonl", record)

    def _record(self, event: Event) -> EventRecord | None:
        now = utc_now()
        match event:
            case Notice(text=text):
                return EventRecord(at=now, event="note", text=text)
            case StepBegun():
                return EventRecord(
                    at=now,
                    event="step_begun",
                    step=event.step,
                    expected_s=event.expected_s,
                    host=event.host,
                    progress=event.progress,
                )
            case StepEnded(step=step, duration_s=duration_s, error=error):
                return EventRecord(at=now, event="step_ended", step=step, duration_s=duration_s, error=error or None)
            case CommandRun():
                return EventRecord(
                    at=event.began,
                    event=event.kind,
                    step=event.step,
                    argv=event.command.argv,
                    user=event.command.user or "",
                    host=event.host,
                    exit_code=event.exit_code,
                    duration_s=event.duration_s,
                )
            case AttestedRows(rows=rows):
                return EventRecord(at=now, event="attested", rows=rows)
            case TrialEnded(verdict=verdict):
                return EventRecord(at=now, event="verdict", status=verdict.status, reason=verdict.reason)
            case _:
                return None
