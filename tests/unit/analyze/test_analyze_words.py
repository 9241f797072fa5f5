"""Sentences say what the figures say."""

from __future__ import annotations

import numpy as np
import pytest

from pgstrata.analyze.conclude import PairConclusion
from pgstrata.analyze.equivalence import PairVerdict, Verdict
from pgstrata.analyze.interval import Estimate, Interval
from pgstrata.analyze.scale import metric_of
from pgstrata.analyze.stages import ErrorRates
from pgstrata.analyze.words import pair_sentence


def conclusion(verdict: Verdict, value: float, low: float, high: float) -> PairConclusion:
    """A confirmed pair; values on the scale of the model, higher is better."""
    wide = Interval(-1.0, 1.0, 0.9)
    judged = PairVerdict(Estimate(value, 0.01, 9, 10), Interval(low, high, 0.95), wide, 0.01, verdict)
    runs = np.zeros(10)
    return PairConclusion("a", "b", 0.02, judged, True, 0.03, ErrorRates(0.05, 0.05, 0.1), 10, runs, runs, True)


@pytest.mark.parametrize(
    ("metric", "verdict", "value", "low", "high", "text"),
    [
        ("tps", "worse", -0.05, -0.08, -0.02, "`a` is slower than `b` by 4.9 % (2 ... 7.7): **proven**."),
        ("tps", "better", 0.05, 0.02, 0.08, "`b` is slower than `a` by 4.9 % (2 ... 7.7): **proven**."),
        ("latency_avg_ms", "worse", -0.05, -0.08, -0.02, "`a` is slower than `b` by 5.1 % (2 ... 8.3): **proven**."),
        # Holm may reject where the wider printed interval does not exclude no difference.
        ("tps", "better", 0.05, -0.0024, 0.1033, "`b` is slower than `a` by 4.9 % (-0.2 ... 9.8): **proven**."),
        ("latency_avg_ms", "worse", -0.05, -0.12, 0.01, "`a` is slower than `b` by 5.1 % (-1 ... 13): **proven**."),
        (
            "longest_stall_s",
            "worse",
            -3.0,
            -7.0,
            1.0,
            "`a` is worse (longest stall) than `b` by 3 s (-1 ... 7): **proven**.",
        ),
    ],
)
def test_how_far_behind_is_told_with_the_signs_of_its_interval(
    metric: str, verdict: Verdict, value: float, low: float, high: float, text: str
) -> None:
    assert pair_sentence(conclusion(verdict, value, low, high), metric_of(metric), None) == text
