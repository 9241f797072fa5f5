"""The steady state rule of the SNIA PTS."""

from __future__ import annotations

import pytest

from pgstrata.trial.steps.measure import warmup_settled


@pytest.mark.parametrize(
    ("tps", "settled"),
    [
        ([100.0] * 4, None),
        ([100.0] * 5, True),
        ([0.0] * 5, False),
        ([100, 100, 121, 100, 100], False),  # range of 21 % over a mean of 104
        ([100, 110, 100, 110, 100], True),
        ([95, 98, 100, 103, 106], False),  # range 11 %, trend 11 %
        ([96, 98, 100, 102, 104], True),  # trend 8 %
        ([5, 5, 5] + [100.0] * 10, True),  # only the last full windows count
    ],
)
def test_rule(tps: list[float], settled: bool | None) -> None:
    assert warmup_settled(tps) is settled
