"""Equality within a margin, and the verdict on a pair.

Two one-sided tests as an interval (Schuirmann 1987): the 90 % interval inside (-bound, bound), here with the
anytime-valid interval (g = 0.1, finite from 9 pairs). *Equal* wins over a proven difference: a proven difference
that is smaller than the margin does not matter by the user's own declaration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pgstrata.analyze.interval import (
    ALPHA,
    CONFIRM_G,
    EQUIVALENCE_ALPHA,
    EQUIVALENCE_G,
    Estimate,
    Interval,
    anytime_p,
    interval,
)

Verdict = Literal["better", "worse", "equal", "undecided"]


@dataclass(frozen=True)
class PairVerdict:
    """A pair on the scale of the model; `better` when the first has the higher value."""

    estimate: Estimate
    interval: Interval
    """Of the difference."""
    equivalence: Interval
    p: float
    """Anytime p of no difference."""
    verdict: Verdict

    @property
    def decided(self) -> bool:
        return self.verdict != "undecided"

    @property
    def acceptable_bound(self) -> float:
        """The smallest margin, on the scale of the model, within which the pair is equal already."""
        return max(abs(self.equivalence.low), abs(self.equivalence.high))


def judge_pair(
    estimate: Estimate,
    bound: float,
    *,
    alpha: float = ALPHA,
    g: float = CONFIRM_G,
    equivalence_alpha: float = EQUIVALENCE_ALPHA,
    different: bool | None = None,
) -> PairVerdict:
    """The verdict on one pair; `different` overrides what the interval says (Holm over several pairs)."""
    difference = interval(estimate, alpha, g)
    equality = interval(estimate, equivalence_alpha, EQUIVALENCE_G)
    proven = difference.excludes_zero() if different is None else different
    verdict: Verdict = "undecided"
    if equality.inside(bound):
        verdict = "equal"
    elif proven:
        verdict = "better" if estimate.value > 0 else "worse"
    return PairVerdict(estimate, difference, equality, anytime_p(estimate, g), verdict)
