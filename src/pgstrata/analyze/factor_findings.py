"""Findings on the factors of a screening (`pgstrata tune`)."""

from __future__ import annotations

from pydantic import Field

from pgstrata.analyze.finding import EffectVerdict, Finding


class FactorFinding(Finding):
    """Effect of one factor of a screening, averaged over the levels of the others; shares of the start's metric."""

    name: str
    start: str
    """The level that the stack has."""
    change: str
    """The level that was tried."""
    source: str
    cost: str
    """Price of the change, by the file of factors."""
    effect: float | None
    low: float | None
    high: float | None
    verdict: EffectVerdict
    """*no effect*: none beyond the margin."""
    chosen: bool = False
    """True if the chosen combination has the change."""
    class_: str = Field("", alias="class")
    """Durability of the start with this change alone, where it is weaker than the start's."""


class InteractionFinding(Finding):
    """Interaction of two factors that matter: by how much each changes the effect of the other, halved."""

    factors: tuple[str, str]
    effect: float | None
    low: float | None
    high: float | None
    verdict: EffectVerdict
    aliases: tuple[tuple[str, str], ...]
    """Pairs whose interaction no run of the design tells from this one."""


class TuningFinding(Finding):
    """Result of a screening (`pgstrata tune`)."""

    cell: str
    factors: tuple[FactorFinding, ...]
    interactions: tuple[InteractionFinding, ...]
    expected: float | None
    """Share that the chosen combination is expected to gain over the start; null if it is the start."""
    runs: int
    lost: tuple[str, ...]
    """Stacks of the design without a run that counts, with their levels and the reason."""
