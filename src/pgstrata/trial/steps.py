"""Runs the named steps of a trial: times each, writes `steps.jsonl`, watches the deadline and interruptions."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pgstrata.errors import TrialError
from pgstrata.record.recorder import TrialRecorder, utc_now
from pgstrata.record.schema import StepRecord
from pgstrata.spec.units import render_duration
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.progress import Progress

KILL_HOOK = "PGSTRATA_KILL_AFTER_STEP"
"""For the tests of `pgstrata clean`: the process kills itself after that many steps (counted from 1)."""

_steps_done = 0


def _obey_kill_hook() -> None:
    global _steps_done
    _steps_done += 1
    if os.environ.get(KILL_HOOK) == str(_steps_done):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Steps:
    """The steps of one trial."""

    recorder: TrialRecorder
    progress: Progress
    interruption: Interruption
    limit_s: float
    started_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    @contextmanager
    def step(self, name: str, *, expected_s: float | None = None) -> Iterator[None]:
        """One step; TrialError when the trial's time is up before it begins."""
        self.interruption.check()
        if self.elapsed_s > self.limit_s:
            raise TrialError(
                f"the trial took longer than {render_duration(self.limit_s)} and was given up before: {name}",
                hint="raise runs.max_trial_duration",
            )
        self.progress.step(name, expected_s)
        started, began = utc_now(), time.monotonic()
        try:
            yield
        except BaseException as error:
            self._record(name, started, began, f"{type(error).__name__}: {error}")
            raise
        self._record(name, started, began, "")
        _obey_kill_hook()

    @contextmanager
    def closing(self, name: str) -> Iterator[None]:
        """A step of taking down: no deadline and no interruption keeps it from being done."""
        self.progress.step(name, None)
        started, began = utc_now(), time.monotonic()
        try:
            yield
        finally:
            self._record(name, started, began, "")
        _obey_kill_hook()

    def _record(self, name: str, started: str, began: float, error: str) -> None:
        duration_s = round(time.monotonic() - began, 6)
        self.recorder.append("steps.jsonl", StepRecord(name=name, started=started, duration_s=duration_s, error=error))
