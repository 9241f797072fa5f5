"""Progress on stderr: a live line on a terminal, one line an event elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from pgstrata.cli.output import print_notice
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.spec.printable import printable
from pgstrata.spec.units import render_duration
from pgstrata.trial.progress import NoProgress, Progress

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


def _describe(trial: Trial) -> str:
    return f"{trial.stack}, block {trial.block + 1}, scale {trial.scale}"


def _ending(trial: Trial, verdict: TrialVerdict) -> str:
    reason = f": {verdict.reason.splitlines()[0]}" if verdict.reason else ""
    return f"{_describe(trial)}: {verdict.status} in {render_duration(verdict.duration_s)}{reason}"


@dataclass
class _Clock:
    """Time left: the budget's, or the block's by the trials finished so far."""

    budget_s: float | None
    started_s: float = field(default_factory=time.monotonic)
    block_trials: int = 0
    block_done: int = 0
    durations_s: list[float] = field(default_factory=list)

    def left(self) -> str:
        parts = []
        if self.durations_s and self.block_done < self.block_trials:
            mean_s = sum(self.durations_s) / len(self.durations_s)
            left_s = mean_s * (self.block_trials - self.block_done)
            parts.append(f"block ends in about {render_duration(left_s)}")
        if self.budget_s is not None:
            left_s = max(0.0, self.budget_s - (time.monotonic() - self.started_s))
            parts.append(f"budget left {render_duration(left_s)}")
        return ", ".join(parts)


@dataclass
class LineProgress:
    """One line for each trial and block: for logs and pipes."""

    clock: _Clock

    def notice(self, text: str) -> None:
        print_notice(text)

    def block(self, number: int, trials: int, stage: str, reason: str) -> None:
        self.clock.block_trials, self.clock.block_done = trials, 0
        why = f" ({reason})" if reason else ""
        self.notice(f"block {number + 1}, {stage}: {trials} trials{why}")

    def trial(self, trial: Trial) -> None:
        pass

    def step(self, name: str, expected_s: float | None) -> None:
        pass

    def finished(self, trial: Trial, verdict: TrialVerdict) -> None:
        self.clock.block_done += 1
        self.clock.durations_s.append(verdict.duration_s)
        left = self.clock.left()
        self.notice(f"  {_ending(trial, verdict)}{f'; {left}' if left else ''}")

    def skipped(self, trial: Trial) -> None:
        self.clock.block_done += 1


class LiveProgress(LineProgress):
    """The same lines, and below them a live one with the running step."""

    def __init__(self, clock: _Clock) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(clock)
        self._trial = ""
        self._step = ""
        self._step_started_s = time.monotonic()
        self._expected_s: float | None = None
        self._console = Console(stderr=True)
        self._live: Live = Live(
            console=self._console, get_renderable=self._render, refresh_per_second=2, transient=True
        )

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def notice(self, text: str) -> None:
        self._console.print(printable(text), markup=False, highlight=False)

    def trial(self, trial: Trial) -> None:
        self._trial = _describe(trial)

    def step(self, name: str, expected_s: float | None) -> None:
        self._step, self._expected_s, self._step_started_s = name, expected_s, time.monotonic()

    def _render(self) -> Text:
        from rich.text import Text

        spent_s = time.monotonic() - self._step_started_s
        of = f" of {render_duration(self._expected_s)}" if self._expected_s else ""
        done = f"[{self.clock.block_done + 1}/{self.clock.block_trials}] " if self.clock.block_trials else ""
        line = f"{done}{self._trial}: {self._step} {render_duration(round(spent_s))}{of}  {self.clock.left()}"
        return Text(line if self._trial else "", no_wrap=True, overflow="ellipsis")


@dataclass
class ShownProgress:
    """Context manager: the progress fit for where stderr goes."""

    quiet: bool
    budget_s: float | None = None
    _live: LiveProgress | None = None

    def __enter__(self) -> Progress:
        if self.quiet:
            return NoProgress()
        clock = _Clock(self.budget_s)
        if not sys.stderr.isatty():
            return LineProgress(clock)
        self._live = LiveProgress(clock)
        return self._live.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
