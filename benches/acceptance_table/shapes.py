"""Rows 7 and 8: shapes of a run without a shape, and campaigns with a part left out."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import scipy

from acceptance_table.checks import Check
from acceptance_table.outcome import mean
from acceptance_table.scenarios import SPREAD
from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.campaign.simulate import CELL, LEVELS, Scenario, run_campaign
from pgstrata.analyze.stats.changepoint import changepoints_s
from pgstrata.analyze.stats.checkpoint_cycle import checkpoint_cycle
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.periodogram import strongest_period
from pgstrata.analyze.stats.trend import trend_p, trend_per_hour
from pgstrata.record.decision import Observation


def shape_checks(count: int) -> Iterator[Check]:
    """Row 7: false alarms on AR(1) seconds without trend, cycle, period or step."""
    rng = np.random.default_rng(7)
    series = [_ar1(rng, 3600) for _ in range(count)]
    starts = np.arange(0, 3601, 300, dtype=float)
    cycles = [f.p < 0.05 for s in series if (f := checkpoint_cycle(s, starts)) is not None]
    yield Check("7", "checkpoint cycle", "false alarm", mean(cycles), True, 0.06, len(cycles))
    periods = [line.found for s in series if (line := strongest_period(s)) is not None]
    yield Check("7", "periodogram", "false alarm", mean(periods), True, 0.05, len(periods))
    steps = [bool(changepoints_s(s)) for s in series]
    yield Check("7", "PELT", "false alarm", mean(steps), True, 0.02, count)
    slopes = np.array([trend_per_hour(_ar1(rng, 300)) for _ in range(5 * count)]).reshape(-1, 5)
    trends = [trend_p(row) < 0.05 for row in slopes]
    yield Check("7", "trend", "false alarm", mean(trends), True, 0.06, len(trends))


def _ar1(rng: np.random.Generator, seconds: int, phi: float = 0.8, cv: float = 0.1) -> np.ndarray:
    shocks = rng.normal(0, cv * math.sqrt(1 - phi**2), seconds + 100)
    return 2000 * (1 + scipy.signal.lfilter([1], [1, -phi], shocks)[100:])


def robustness_checks(count: int) -> Iterator[Check]:
    """Row 8: the same seed gives the same conclusions, and no block or stack is indispensable."""
    same = crashes = dropped = 0
    for number in range(count):
        scenario = Scenario(SPREAD[:6], LEVELS["typical"])
        first, again = (run_campaign(scenario, (8, number)) for _ in range(2))
        same += _told(scenario.design, first.observations) == _told(scenario.design, again.observations)
        for part in _without_one(first.observations):
            dropped += 1
            try:
                _told(scenario.design, part)
            except Exception as error:
                print(f"row 8: {error!r} with {len(part)} of {len(first.observations)} runs", file=sys.stderr)
                crashes += 1
    yield Check("8", "the same seed", "same conclusions", same / count, False, 1.0, count)
    yield Check("8", "a block or stack left out", "crashes", crashes / dropped, True, 0.0, dropped)


def _told(design: Design, observations: Sequence[Observation]) -> str:
    found = conclude(design, observations, CELL)
    verdicts = [(p.a, p.b, p.verdict) for p in (*found.screened, *found.confirmed)]
    return repr((found.ranking, found.chosen, found.leader, found.own, verdicts))


def _without_one(observations: Sequence[Observation]) -> Iterator[list[Observation]]:
    for block in sorted({o.block for o in observations}):
        yield [o for o in observations if o.block != block]
    for stack in sorted({o.stack for o in observations}):
        yield [o for o in observations if o.stack != stack]
