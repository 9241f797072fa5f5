"""Stacks that stay built from block to block (`load: keep`), as some published comparisons ran theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pgstrata.spec.campaign import Trial
from pgstrata.stack.journal import Journal, failures
from pgstrata.stack.plan import StackPlan


@dataclass(frozen=True)
class KeptStack:
    """A stack that stays up: the results of its steps, and the journal that takes it down."""

    plan: StackPlan
    bindings: Mapping[str, str]
    journal: Journal

    def undo(self) -> tuple[str, ...]:
        """Takes it down; what could not be undone, a line each."""
        return failures(self.journal.undo_all())


@dataclass
class KeptStacks:
    """By stack and scale."""

    _kept: dict[tuple[str, int], KeptStack] = field(default_factory=dict)

    def of(self, trial: Trial) -> KeptStack | None:
        """The stack that the trial would find still standing, with its data."""
        return self._kept.get((trial.stack, trial.scale))

    def keep(self, trial: Trial, kept: KeptStack) -> None:
        self._kept[trial.stack, trial.scale] = kept

    def give_up(self, trial: Trial) -> None:
        """Keeps it no longer; the caller takes it down."""
        self._kept.pop((trial.stack, trial.scale), None)

    def undo_all(self) -> tuple[str, ...]:
        """Takes every kept stack down; what could not be undone, a line each."""
        lines: list[str] = []
        while self._kept:
            _, kept = self._kept.popitem()
            lines += kept.undo()
        return tuple(lines)

    def forget(self) -> None:
        """After `clean` has taken every stack down, because the host was lost."""
        self._kept.clear()
