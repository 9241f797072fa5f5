"""Progress on stderr: a live line on a terminal, one line an event elsewhere, nothing when quiet."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from pgstrata.cli.output import print_notice
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.spec.printable import printable
from pgstrata.spec.units import render_duration
from pgstrata.trial.events import (
    BlockBegun,
    Event,
    Notice,
    StepBegun,
    StepEnded,
    Tell,
    TrialBegun,
    TrialEnded,
    TrialSkipped,
    silent,
)

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


def _describe(trial: Trial) -> str:
    if not trial.cells:
        return f"crash trial of {trial.stack}"
    return f"{trial.stack}, block {trial.block + 1}, scale {trial.scale}"


def _ending(trial: Trial, verdict: TrialVerdict) -> str:
    reason = f": {verdict.reason.splitlines()[0]}" if verdict.reason else ""
    return f"{_describe(trial)}: {verdict.status} in {render_duration(verdict.duration_s)}{reason}"


@dataclass
class BlockClock:
    """Time left: the budget's, or the block's by the trials finished so far; hosts run theirs side by side."""

    budget_s: float | None
    now_s: Callable[[], float] = time.monotonic
    spent_s: float = 0.0
    """Before the block that runs."""
    block_began_s: float = 0.0
    block_trials: int = 0
    block_done: int = 0
    hosts: int = 1
    trials: int = 0
    trials_s: float = 0.0
    """Seconds of the trials that this session ran."""

    def begin(self, block: BlockBegun) -> None:
        self.block_trials, self.block_done, self.hosts = block.trials, 0, block.hosts
        self.spent_s, self.block_began_s = block.spent_s, self.now_s()

    def end_trial(self, duration_s: float) -> None:
        self.block_done += 1
        self.trials += 1
        self.trials_s += duration_s

    def left(self) -> str:
        parts = []
        if self.trials and self.block_done < self.block_trials:
            left_s = self.trials_s / self.trials * math.ceil((self.block_trials - self.block_done) / self.hosts)
            parts.append(f"block ends in about {render_duration(left_s)}")
        if self.budget_s is not None:
            left_s = max(0.0, self.budget_s - self.spent_s - (self.now_s() - self.block_began_s))
            parts.append(f"budget left {render_duration(left_s)}")
        return ", ".join(parts)


@dataclass
class Lines:
    """The listener that writes a line for each trial and block: for logs and pipes."""

    clock: BlockClock
    write: Callable[[str], None] = print_notice

    def __call__(self, event: Event) -> None:
        clock = self.clock
        match event:
            case Notice(text=text):
                self.write(text)
            case BlockBegun():
                from pgstrata.report.sentences.figures import render_count

                clock.begin(event)
                why = f" ({event.reason})" if event.reason else ""
                self.write(f"block {event.number + 1}, {event.stage}: {render_count(event.trials, 'trial')}{why}")
            case TrialEnded():
                clock.end_trial(event.verdict.duration_s)
                left = clock.left()
                self.write(f"  {_ending(event.trial, event.verdict)}{f'; {left}' if left else ''}")
            case TrialSkipped():
                clock.block_done += 1


@dataclass
class _Running:
    """A trial that is running, and its present step."""

    trial: str
    step: str = ""
    expected_s: float | None = None
    step_began_s: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        spent_s = time.monotonic() - self.step_began_s
        of = f" of {render_duration(self.expected_s)}" if self.expected_s else ""
        return f"{self.trial}: {self.step} {render_duration(round(spent_s))}{of}"


class LiveLine:
    """The listener that writes the same lines, and below them a live one with the step of every running trial."""

    def __init__(self, clock: BlockClock) -> None:
        from rich.console import Console
        from rich.live import Live

        self._clock = clock
        self._lines = Lines(clock, self._print)
        self._running: dict[tuple[str, str], _Running] = {}
        self._console = Console(stderr=True)
        self._live: Live = Live(
            console=self._console, get_renderable=self._render, refresh_per_second=2, transient=True
        )

    def __enter__(self) -> LiveLine:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case TrialBegun(campaign=campaign, trial=trial):
                self._running[campaign, trial.id] = _Running(_describe(trial))
            case TrialEnded(campaign=campaign, trial=trial):
                self._running.pop((campaign, trial.id), None)
            case StepBegun(campaign=campaign, trial=id_, step=step, expected_s=expected_s):
                running = self._running.setdefault((campaign, id_), _Running(id_))
                running.step, running.expected_s, running.step_began_s = step, expected_s, time.monotonic()
            case StepEnded(campaign=campaign, trial=id_) if (campaign, id_) in self._running:
                self._running[campaign, id_].step = ""  # it may wait for the turns of others
        self._lines(event)

    def _print(self, text: str) -> None:
        self._console.print(printable(text), markup=False, highlight=False)

    @property
    def line(self) -> str:
        """Empty while no trial runs."""
        if not self._running:
            return ""
        clock = self._clock
        done = f"[{clock.block_done + 1}/{clock.block_trials}] " if clock.block_trials else ""
        running = list(self._running.values())
        shown = [one for one in running if one.step] or running[:1]
        return f"{done}{' | '.join(one.text for one in shown)}  {clock.left()}"

    def _render(self) -> Text:
        from rich.text import Text

        return Text(self.line, no_wrap=True, overflow="ellipsis")


@contextmanager
def listening(*, quiet: bool, budget_s: float | None = None) -> Iterator[Tell]:
    """The listener fit for where stderr goes."""
    clock = BlockClock(budget_s)
    if quiet:
        yield silent
    elif not sys.stderr.isatty():
        yield Lines(clock)
    else:
        with LiveLine(clock) as live:
            yield live
