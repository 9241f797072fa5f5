"""The seam between the scheduler and statistics: a policy decides what runs next.

Types only. `trial` must not import `analyze`, so the command line hands the scheduler a policy from there. A policy
is a pure function of what was observed, so that a resumed campaign decides the same again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pgstrata.record.schema import DecisionRecord
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.campaign import Stage as TrialStage
from pgstrata.spec.expand import block_trials
from pgstrata.spec.workload import Cell

Stage = TrialStage | Literal["done"]
COMPARISON: tuple[Stage, ...] = ("screen", "confirm")
"""Stages whose runs the verdicts are about; they alone may be slices."""


@dataclass(frozen=True)
class OpenLoop:
    """Result of an open-loop run; late and skipped transactions as a share of the scheduled ones."""

    rate_tps: float
    latency_ms: float
    """The percentile that the campaign asks for, counted from the scheduled start."""
    failed_share: float
    lag_rising: bool
    transactions: float = math.inf
    """Number of transactions that the percentile was taken from."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One valid run of one cell: the primary metric's value."""

    stack: str
    block: int
    cell: str
    value: float
    stage: Stage = "screen"
    duration_s: float = 0.0
    """Machine time that the whole trial took, spread over its cells."""
    open_loop: OpenLoop | None = None
    host: str = ""
    """Host that the block is of, in a campaign on several hosts."""


@dataclass(frozen=True)
class Decision:
    """Next runs: one more block with these stacks, or nothing more."""

    stage: Stage
    run: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    reason: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    cells: Mapping[str, tuple[Cell, ...]] | None = None
    """By stack, instead of the campaign's grid."""
    duration_s: float | None = None
    """Measured seconds of a run, instead of the workload's."""
    budget_notice: str = ""
    """At the end: the later stage that did not fit into the budget."""


@dataclass(frozen=True)
class Budget:
    """The machine time of a campaign; without a limit everything fits."""

    limit_s: float | None

    def fits(self, cost_s: float, spent_s: float) -> bool:
        """True if there is room for one more of that cost."""
        return self.limit_s is None or spent_s + cost_s <= self.limit_s

    def rounds(self, each_s: float, spent_s: float, most: int) -> int:
        """The number of rounds of that cost that fit, `most` at most."""
        if self.limit_s is None or each_s <= 0:
            return most
        return min(most, max(0, int((self.limit_s - spent_s) / each_s)))


class Policy(Protocol):
    """Decides before each block, from every valid observation so far."""

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision: ...


def begun_rounds(decisions: Iterable[DecisionRecord]) -> list[int]:
    """The first block of every round that was decided, in order."""
    return sorted({decision.after_block for decision in decisions if decision.stage != "done"})


def round_trials(campaign: Campaign, decision: DecisionRecord, turn: int) -> dict[int, tuple[Trial, ...]]:
    """The blocks of a round by their number, each of one host; `turn` counts the rounds before it."""
    assert decision.stage != "done"
    on_hosts = bool(decision.hosts)
    return {
        decision.after_block + k: block_trials(
            campaign,
            decision.after_block + k,
            decision.continue_with,
            decision.stage,
            cells=decision.cells,
            duration_s=decision.duration_s,
            slices=decision.slices,
            host=host,
            turn=turn if on_hosts else None,
        )
        for k, host in enumerate(decision.hosts or ("",))
    }
