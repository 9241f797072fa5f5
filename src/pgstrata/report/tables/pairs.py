"""Selection of the comparison of two stacks to show, and of its direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pgstrata.analyze.finding import Modes, Rounds, Verdict
from pgstrata.analyze.findings import CellFinding, Comparison, Findings, StackFinding

_FLIPPED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better", "equal": "equal", "undecided": "undecided"}


def flip(comparison: Comparison) -> Comparison:
    """Return the same comparison with b against a."""
    low, high = comparison.high, comparison.low
    turn = _inverse if comparison.scale == "ratio" else _negative
    return comparison.model_copy(
        update={
            "a": comparison.b,
            "b": comparison.a,
            "low": turn(low),
            "high": turn(high),
            "ratio": turn(comparison.ratio),
            "cross_check": turn(comparison.cross_check),
            "verdict": _FLIPPED[comparison.verdict],
            "rounds": comparison.rounds and _flip_rounds(comparison.rounds, turn),
            "modes": comparison.modes and _flip_modes(comparison.modes, turn),
            "leaning": None if comparison.leaning is None else _FLIPPED[comparison.leaning],
        }
    )


def _flip_rounds(rounds: Rounds, turn: Callable[[float | None], float | None]) -> Rounds:
    return rounds.model_copy(
        update={
            "better": rounds.worse,
            "worse": rounds.better,
            "low": turn(rounds.high),
            "high": turn(rounds.low),
        }
    )


def _flip_modes(modes: Modes, turn: Callable[[float | None], float | None]) -> Modes:
    return modes.model_copy(
        update={
            "low": turn(modes.high),
            "high": turn(modes.low),
            "below": modes.above,
            "above": modes.below,
        }
    )


def _inverse(value: float | None) -> float | None:
    return None if not value else 1 / value


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


def _rank(comparison: Comparison) -> int:
    """Rank `equal` first, then verdicts of confirmation, then of screening."""
    if comparison.kind == "equivalence" and comparison.verdict == "equal":
        return 0
    return {"confirm": 1, "equivalence": 2, "screen": 3}[comparison.kind]


@dataclass(frozen=True)
class Index:
    """Findings by cell, stack and pair."""

    findings: Findings

    @cached_property
    def _pairs(self) -> dict[tuple[str, str, str, str], list[Comparison]]:
        found: dict[tuple[str, str, str, str], list[Comparison]] = {}
        for c in self.findings.comparisons:
            found.setdefault((c.cell, c.metric, c.a, c.b), []).append(c)
        return found

    @cached_property
    def _stacks(self) -> dict[tuple[str, str], StackFinding]:
        return {(s.cell, s.name): s for s in self.findings.stacks}

    def pair(self, cell: str, a: str, b: str, metric: str | None = None) -> Comparison | None:
        """Return a against b in the primary metric (or another): the strongest statement available."""
        name = metric or self.findings.campaign.primary
        same = self._pairs.get((cell, name, a, b), [])
        flipped = (flip(c) for c in self._pairs.get((cell, name, b, a), ()))
        return min([*same, *flipped], key=_rank, default=None)

    def stack(self, cell: str, name: str) -> StackFinding | None:
        return self._stacks.get((cell, name))

    def quotient(self, cell: str, a: str, b: str, metric: str | None = None) -> float | None:
        """Return the ratio of two estimates in the primary metric (or another); None if one is missing or not
        positive."""
        name, found = metric or self.findings.campaign.primary, []
        for one in (a, b):
            stack = self.stack(cell, one)
            level = stack.metrics.get(name) if stack else None
            if level is None or level.estimate is None or level.estimate <= 0:
                return None
            found.append(level.estimate)
        return found[0] / found[1]

    def stacks_of(self, cell: CellFinding) -> tuple[StackFinding, ...]:
        """Return the stacks best first; those without a rank last, in declared order."""
        found = [s for s in self.findings.stacks if s.cell == cell.id]
        rank = {name: i for i, name in enumerate(cell.ranking)}
        return tuple(sorted(found, key=lambda s: rank.get(s.name, len(rank))))
