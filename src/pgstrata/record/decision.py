"""The seam between the scheduler and statistics: a policy decides what runs next.

Types only. `trial` must not import `analyze`, so the command line hands the scheduler a policy from there. A policy
is a pure function of what was observed, so that a resumed campaign decides the same again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Stage = Literal["screen", "confirm", "done"]


@dataclass(frozen=True)
class Observation:
    """One valid run of one cell: the primary metric's value."""

    stack: str
    block: int
    cell: str
    value: float
    stage: Stage = "screen"
    duration_s: float = 0.0
    """Machine time that the whole trial took, spread over its cells."""


@dataclass(frozen=True)
class Decision:
    """What to run next: one more block with these stacks, or nothing more."""

    stage: Stage
    run: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    reason: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


class Policy(Protocol):
    """Decides before each block, from every valid observation so far."""

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision: ...
