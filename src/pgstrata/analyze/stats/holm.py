"""Holm's step-down procedure over the declared pairs.

Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statist. 6 (1979): ordered p(1) <= p(2) <= ...,
reject while p(i) <= alpha / (count - i + 1). With anytime p values the family-wise error holds at any look.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm_rejects(p_values: Sequence[float], alpha: float) -> tuple[bool, ...]:
    """Return which hypotheses are rejected at family-wise level alpha, in the given order."""
    count = len(p_values)
    rejected = [False] * count
    for step, index in enumerate(sorted(range(count), key=lambda i: (p_values[i], i))):
        if not p_values[index] <= alpha / (count - step):
            break
        rejected[index] = True
    return tuple(rejected)
