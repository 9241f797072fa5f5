"""The seam between the scheduler and statistics: a policy decides what runs next.

`trial` must not import `analyze`; the command line hands the scheduler a policy from there. A policy is a pure
function of what was observed, so that a resumed campaign decides the same again.
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
    """Decides after each block. `failed` counts trials that gave no observation, by stack."""

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision: ...


@dataclass(frozen=True)
class FixedBlocks:
    """A fixed number of complete blocks."""

    stacks: tuple[str, ...]
    blocks: int
    budget_s: float | None = None

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        if blocks_done >= self.blocks:
            return Decision("done", (), reason=f"all {self.blocks} blocks are done")
        if self.budget_s is not None and blocks_done and elapsed_s * (1 + 1 / blocks_done) > self.budget_s:
            return Decision("done", (), reason=f"another block would exceed the budget of {self.budget_s:.0f} s")
        return Decision("screen", self.stacks)
