"""A host's trials as work for a `concurrent.futures.Executor`: from submission to result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Protocol

from pgstrata.record.decision import Budget, Decision, Observation
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Slices, Trial
from pgstrata.trial.events import Tell, TrialBegun


class TrialRunner(Protocol):
    """Runs one trial to its verdict; everything that it built is gone when it returns or raises."""

    @property
    def slices(self) -> Slices | None:
        """Turns of the stacks of a block, which stand side by side; None if they run one after the other."""
        ...

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        """Records the checks before the trials of a block. Raises as `run` does."""
        ...

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        """Records the trial. Raises `Interrupted` or an error that no further trial could survive."""
        ...

    def run_together(
        self, trials: Sequence[Trial], directory: CampaignDirectory, tell: Tell
    ) -> tuple[TrialVerdict, ...]:
        """Records trials that stand side by side, or one that stands alone. Raises as `run` does."""
        ...


class OneByOne(ABC):
    """A runner whose trials do not need to stand side by side."""

    slices: Slices | None = None

    @abstractmethod
    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        """Run a trial as `TrialRunner.run` does."""

    def run_together(
        self, trials: Sequence[Trial], directory: CampaignDirectory, tell: Tell
    ) -> tuple[TrialVerdict, ...]:
        return tuple(self.run(trial, directory, tell) for trial in trials)


class ScheduledHost(ABC):
    """One host of a campaign, as the scheduler sees it."""

    @abstractmethod
    def submit(self, executor: Executor, trials: Sequence[Trial], *, begins_block: bool) -> Future[Any]:
        """Has trials run that stand side by side, or one; the scheduler submits the next ones of a host when they have
        ended."""

    @abstractmethod
    def take(self, found: Any, trials: Sequence[Trial]) -> tuple[TrialVerdict, ...]:
        """Called in the thread of the scheduler: makes the results trials of the record."""

    def give_up(self, trials: Sequence[Trial]) -> None:  # noqa: B027 (most hosts have nothing to do)
        """Gives the trials up: their host was lost."""


@dataclass(frozen=True)
class LocalHostRunner(ScheduledHost):
    """Runs trials in a thread of this process, which records them as they run."""

    runner: TrialRunner
    directory: CampaignDirectory
    tell: Tell

    def submit(
        self, executor: Executor, trials: Sequence[Trial], *, begins_block: bool
    ) -> Future[tuple[TrialVerdict, ...]]:
        return executor.submit(self._run, trials, begins_block)

    def take(self, found: tuple[TrialVerdict, ...], trials: Sequence[Trial]) -> tuple[TrialVerdict, ...]:
        return found

    def _run(self, trials: Sequence[Trial], begins_block: bool) -> tuple[TrialVerdict, ...]:
        if begins_block:
            self.runner.begin_block(trials[0].block, self.directory)
        for trial in trials:
            self.tell(TrialBegun(self.directory.campaign.name, trial))
        return self.runner.run_together(trials, self.directory, self.tell)


# ---------------------------------------------------------------- the simplest policy


@dataclass(frozen=True)
class FixedBlocks:
    """A fixed number of complete blocks."""

    stacks: tuple[str, ...]
    blocks: int
    budget_s: float | None = None

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        if blocks_done >= self.blocks:
            return Decision("done", (), reason=f"blocks done: {self.blocks}, as planned")
        if not Budget(self.budget_s).fits(elapsed_s / max(1, blocks_done), elapsed_s):
            return Decision("done", (), reason=f"another block would exceed the budget of {self.budget_s:.0f} s")
        return Decision("screen", self.stacks)
