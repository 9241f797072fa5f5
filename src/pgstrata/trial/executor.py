"""Runs the steps of a program one after the other, times and reports them, and holds them to the plan.

Every command that a host runs during a step passes through here. It is refused unless it is the step's next one, so
that the plan matches the execution. Read-only commands (`Host.looking`) and undo commands are distinguished.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Command, Completed, Host, Process
from pgstrata.record.recorder import utc_now
from pgstrata.record.schema import CommandKind
from pgstrata.spec.units import render_duration
from pgstrata.stack.build import StepRunner
from pgstrata.stack.step import PlannedCommand, Ref, Step
from pgstrata.trial.events import CommandRun, StepBegun, StepEnded, Tell
from pgstrata.trial.interruption import Interruption

KILL_HOOK = "PGSTRATA_KILL_AFTER_STEP"
"""For the tests of `pgstrata clean`: the process kills itself after that many steps (counted from 1)."""

_steps_done = (0, 0)
"""A process, and its number of finished steps; a forked one starts from zero."""


def _obey_kill_hook() -> None:
    global _steps_done
    process, done = _steps_done
    done = done + 1 if process == os.getpid() else 1
    _steps_done = os.getpid(), done
    if os.environ.get(KILL_HOOK) == str(done):
        os.kill(os.getpid(), signal.SIGKILL)


class NotAsPlanned(Exception):
    """A defect of ours: a step is about to run a command that is not in its plan, or has left one out."""


@dataclass(frozen=True)
class Identity:
    """The campaign's name and the trial's id."""

    campaign: str
    trial: str


@dataclass(frozen=True)
class _Elsewhere:
    """The watcher of another host of the trial."""

    executor: Executor
    at: str

    def begin(self, command: Command, *, look: bool) -> int:
        return self.executor.begin_at(self.at, command, look=look)

    def end(self, number: int, exit_code: int | None, duration_s: float) -> None:
        self.executor.end(number, exit_code, duration_s)


@dataclass
class Executor:
    """Runs programs on one host, and where nodes are on several on all of these. As their watcher it sees every
    command; `close` ends that."""

    host: Host
    identity: Identity
    tell: Tell
    interruption: Interruption
    limit_s: float
    """The time that a trial may take."""
    elsewhere: Mapping[str, Host] = field(default_factory=dict)
    """Other hosts of the trial, by their names."""
    started_s: float = field(default_factory=time.monotonic)
    marker: str = ""
    """Mark of the trial's commands."""
    away_s: float = 0.0
    """The time of turns of the trials beside this one."""
    _step: str = ""
    _planned: list[PlannedCommand] | None = None
    """Remaining commands of the running step; None outside of steps and while undoing."""
    _bindings: dict[str, str] = field(default_factory=dict)
    _undoing: bool = False
    _begun: dict[int, CommandRun] = field(default_factory=dict)
    """Commands that have started: they are reported in the order of their start, once they have a duration."""
    _numbers: int = 0

    def __post_init__(self) -> None:
        self.host.watched(self)
        for name, host in self.elsewhere.items():
            host.watched(_Elsewhere(self, name))

    def close(self) -> None:
        for host in (self.host, *self.elsewhere.values()):
            host.watched(None)

    def host_of(self, name: str) -> Host:
        """One of the trial's hosts; an empty name is its own."""
        return self.elsewhere[name] if name else self.host

    def run(self, steps: Sequence[Step], runner: StepRunner, context: object) -> None:
        """Runs all steps in order, of a trial that stands alone."""
        for _ in self.turns(steps, runner, context):
            pass

    def turns(self, steps: Sequence[Step], runner: StepRunner, context: object) -> Generator[None, None, None]:
        """Runs all steps in order, and yields before each turn. Raises TrialError if the trial's time is up before a
        step starts."""
        expected = [step.expected_s or 0.0 for step in steps]
        for number, step in enumerate(steps):
            if step.begins_turn:
                yield from self._stand_aside()
            with self._timed(step, sum(expected[number:])):
                self._follow(step, runner, context)

    def _stand_aside(self) -> Iterator[None]:
        """Leaves the host to other trials until this one is continued, or ended by an error thrown into it."""
        left_s = time.monotonic()
        try:
            yield
        finally:
            self.away_s += time.monotonic() - left_s
            self.host.watched(self)
            self.host.mark(self.marker)

    @property
    def elapsed_s(self) -> float:
        """The trial's own time so far."""
        return time.monotonic() - self.started_s - self.away_s

    def _follow(self, step: Step, runner: StepRunner, context: object) -> None:
        """Runs one step; its commands must be those that were planned, no more and no fewer."""
        self._planned, self._bindings = list(step.commands), runner.bindings
        act = step.act
        try:
            runner.run(step, None if act is None else lambda: act(context))
            if self._planned:
                raise NotAsPlanned(f"step {step.name} ended without running {self._planned[0].shown}")
        finally:
            self._planned = None

    @property
    def has_next(self) -> bool:
        """True while the running step's plan has a further command."""
        return bool(self._planned)

    def next_command(self) -> Command:
        """The command that the running step's plan has next, with the values that are known by now."""
        return self._next.resolve(self._bindings)

    @property
    def _next(self) -> PlannedCommand:
        if not self._planned:
            raise NotAsPlanned(f"step {self._step} has no further command")
        return self._planned[0]

    def run_next(self, *, stdin: str | None = None, check: bool = True) -> Completed:
        """Runs the step's next command; `stdin` is what was not known when it was planned."""
        command, host = self.next_command(), self.host_of(self._next.host)
        if stdin is not None:
            command = replace(command, stdin=stdin)
        return host.run(command, check=check)

    def run_rest(self) -> list[Completed]:
        """Runs all further commands of the step."""
        done = []
        while self.has_next:
            done.append(self.run_next())
        return done

    def start_next(self, *, stdout: str, stderr: str) -> tuple[Process, Command]:
        """Starts the step's next command in the background."""
        command, host = self.next_command(), self.host_of(self._next.host)
        return host.start(command, stdout=stdout, stderr=stderr), command

    @contextmanager
    def _timed(self, step: Step, left_s: float) -> Iterator[None]:
        self.interruption.check()
        if self.elapsed_s > self.limit_s:
            raise TrialError(
                f"the trial took longer than {render_duration(self.limit_s)} and was aborted before step {step.name}",
                hint="raise runs.max_trial_duration",
            )
        with self._told(step.name, step.expected_s, left_s, step.progress):
            yield
        _obey_kill_hook()

    @contextmanager
    def undoing(self, name: str = "undo") -> Iterator[None]:
        """A step that undoes changes: neither deadline, interruption nor plan prevents it."""
        self._undoing = True
        try:
            with self._told(name, None, 0.0):
                yield
        finally:
            self._undoing = False
        _obey_kill_hook()

    @contextmanager
    def _told(self, name: str, expected_s: float | None, left_s: float, progress: str | None = None) -> Iterator[None]:
        campaign, trial = self.identity.campaign, self.identity.trial
        self._step = name
        self.tell(StepBegun(campaign, trial, name, expected_s, left_s, self.host.name, progress))
        began_s = time.monotonic()
        error = ""
        try:
            yield
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
            raise
        finally:
            self._tell_commands(all_of_them=True)
            self.tell(StepEnded(campaign, trial, name, round(time.monotonic() - began_s, 6), error))
            self._step = ""

    # ------------------------------------------------------------ the host's watcher

    def begin(self, command: Command, *, look: bool) -> int:
        return self.begin_at("", command, look=look)

    def begin_at(self, host: str, command: Command, *, look: bool) -> int:
        """The same for any host of the trial."""
        kind: CommandKind = "undo_command" if self._undoing else "look" if look or self._planned is None else "command"
        if kind == "command":
            self._check_planned(command, host)
        self._numbers += 1
        run = (kind, command, self.host_of(host).name, utc_now())
        self._begun[self._numbers] = CommandRun(self.identity.campaign, self.identity.trial, self._step, *run)
        return self._numbers

    def end(self, number: int, exit_code: int | None, duration_s: float) -> None:
        begun = self._begun.get(number)
        if begun is None:  # it was told of as unfinished when its step ended
            return
        self._begun[number] = replace(begun, exit_code=exit_code, duration_s=round(duration_s, 6))
        self._tell_commands(all_of_them=False)

    def _check_planned(self, command: Command, host: str) -> None:
        if not self._planned:
            raise NotAsPlanned(f"step {self._step} was about to run what is not in its plan: {command.text}")
        planned = self._planned.pop(0)
        if planned.host != host or not _is_planned(planned, command, self._bindings):
            here, there = (self.host_of(name).name for name in (host, planned.host))
            raise NotAsPlanned(
                f"step {self._step} was about to run {command.text} (as {command.user or 'the caller'} on {here}), "
                f"planned is {planned.shown} (as {planned.user or 'the caller'} on {there})"
            )

    def _tell_commands(self, *, all_of_them: bool) -> None:
        """Tells of those that have ended, in the order in which they began."""
        for number in list(self._begun):
            if self._begun[number].duration_s is None and not all_of_them:
                return
            self.tell(self._begun.pop(number))


def _is_planned(planned: PlannedCommand, command: Command, bindings: dict[str, str]) -> bool:
    if planned.user != command.user or len(planned.argv) != len(command.argv):
        return False
    return all(
        given == (asked.resolve(bindings) if isinstance(asked, Ref) else asked)
        for asked, given in zip(planned.argv, command.argv, strict=True)
    )
