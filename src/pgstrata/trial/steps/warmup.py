"""Settling of a warm-up: the rule of the SNIA Performance Test Specification, 2.0.1, "steady state".

Five windows of equal length; their means range over at most 20 % of the overall mean, and the straight line through
them rises or falls by at most 10 % of it.
"""

from __future__ import annotations

from collections.abc import Sequence

WINDOWS = 5
RANGE_SHARE = 0.20
TREND_SHARE = 0.10


def warmup_settled(tps: Sequence[float]) -> bool | None:
    """By one value a second; None when there are fewer seconds than windows."""
    width = len(tps) // WINDOWS
    if width < 1:
        return None
    tail = tps[len(tps) - width * WINDOWS :]
    means = [sum(tail[i * width : (i + 1) * width]) / width for i in range(WINDOWS)]
    mean = sum(means) / WINDOWS
    if mean <= 0:
        return False
    middle = (WINDOWS - 1) / 2
    slope = sum((i - middle) * m for i, m in enumerate(means)) / sum((i - middle) ** 2 for i in range(WINDOWS))
    return max(means) - min(means) <= RANGE_SHARE * mean and abs(slope) * (WINDOWS - 1) <= TREND_SHARE * mean
