"""A host's trials as work for a `concurrent.futures.Executor`: from submission to result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Protocol

from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.trial.events import Tell, TrialBegun


class TrialRunner(Protocol):
    """Runs one trial to its verdict; everything that it built is gone when it returns or raises."""

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        """Records the checks before the trials of a block. Raises as `run` does."""
        ...

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        """Records the trial. Raises `Interrupted` or an error that no further trial could survive."""
        ...


class ScheduledHost(ABC):
    """One host of a campaign, as the scheduler sees it."""

    @abstractmethod
    def submit(self, executor: Executor, trial: Trial, *, begins_block: bool) -> Future[Any]:
        """Has the trial run; the scheduler submits one trial of each host at a time."""

    @abstractmethod
    def take(self, found: Any, trial: Trial) -> TrialVerdict:
        """Called in the thread of the scheduler: makes the result a trial of the record."""

    def give_up(self, trial: Trial) -> None:  # noqa: B027 (most hosts have nothing to do)
        """Gives the trial up: its host was lost."""


@dataclass(frozen=True)
class LocalHostRunner(ScheduledHost):
    """Runs trials in a thread of this process, which records them as they run."""

    runner: TrialRunner
    directory: CampaignDirectory
    tell: Tell

    def submit(self, executor: Executor, trial: Trial, *, begins_block: bool) -> Future[TrialVerdict]:
        return executor.submit(self._run, trial, begins_block)

    def take(self, found: TrialVerdict, trial: Trial) -> TrialVerdict:
        return found

    def _run(self, trial: Trial, begins_block: bool) -> TrialVerdict:
        if begins_block:
            self.runner.begin_block(trial.block, self.directory)
        self.tell(TrialBegun(self.directory.campaign.name, trial))
        return self.runner.run(trial, self.directory, self.tell)
