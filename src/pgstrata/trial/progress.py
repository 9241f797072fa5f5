"""What a running campaign tells its onlooker; a tiny protocol with a no-op."""

from __future__ import annotations

from typing import Protocol

from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Trial


class Progress(Protocol):
    """Called by the scheduler and the trials; must not raise and must return at once."""

    def notice(self, text: str) -> None:
        """Something the user should know now."""
        ...

    def block(self, number: int, trials: int, stage: str, reason: str) -> None:
        """A block begins (`number` from 0) with that many trials."""
        ...

    def trial(self, trial: Trial) -> None:
        """A trial begins."""
        ...

    def step(self, name: str, expected_s: float | None) -> None:
        """A step of the trial begins; `expected_s` where its length is known (warm-up, measuring)."""
        ...

    def finished(self, trial: Trial, verdict: TrialVerdict) -> None:
        """A trial has its verdict."""
        ...

    def skipped(self, trial: Trial) -> None:
        """A trial was finished in an earlier run."""
        ...


class NoProgress:
    """Says nothing."""

    def notice(self, text: str) -> None:
        pass

    def block(self, number: int, trials: int, stage: str, reason: str) -> None:
        pass

    def trial(self, trial: Trial) -> None:
        pass

    def step(self, name: str, expected_s: float | None) -> None:
        pass

    def finished(self, trial: Trial, verdict: TrialVerdict) -> None:
        pass

    def skipped(self, trial: Trial) -> None:
        pass
