"""The simplest policy: a fixed number of complete blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgstrata.record.decision import Decision, Observation


@dataclass(frozen=True)
class FixedBlocks:
    """A fixed number of complete blocks."""

    stacks: tuple[str, ...]
    blocks: int
    budget_s: float | None = None

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        if blocks_done >= self.blocks:
            return Decision("done", (), reason=f"blocks done: {self.blocks}, as planned")
        if self.budget_s is not None and blocks_done and elapsed_s * (1 + 1 / blocks_done) > self.budget_s:
            return Decision("done", (), reason=f"another block would exceed the budget of {self.budget_s:.0f} s")
        return Decision("screen", self.stacks)
