"""Jitter, trend, checkpoint cycle, periods, changepoints, run length, warm-up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import ruptures
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.signal import lfilter
from scipy.stats import theilslopes

from pgstrata.analyze.campaign.run_features import is_beyond_sampling
from pgstrata.analyze.stats import jitter
from pgstrata.analyze.stats.changepoint import changepoints_s, pelt
from pgstrata.analyze.stats.checkpoint_cycle import checkpoint_cycle
from pgstrata.analyze.stats.periodogram import Line, strongest_period
from pgstrata.analyze.stats.run_length import autocorrelation, best_length_s, suggest
from pgstrata.analyze.stats.trend import theil_sen, trend_p, trend_per_hour

SERIES = arrays(np.float64, st.integers(2, 200), elements=st.integers(0, 10**8).map(lambda n: n / 1000))


def ar1(seed: int, seconds: int, phi: float = 0.8, cv: float = 0.1) -> np.ndarray:
    shocks = np.random.default_rng(seed).normal(0, cv * math.sqrt(1 - phi**2), seconds + 100)
    return np.asarray(2000 * (1 + lfilter([1], [1, -phi], shocks)[100:]))


def test_missing_seconds_are_zero() -> None:
    t_s, tps = np.array([1.0, 2.0, 5.0]), np.array([10.0, 20.0, 30.0])
    assert jitter.per_second(t_s, tps, 6.0, 120).tolist() == [10, 20, 0, 0, 30, 0]


@pytest.mark.parametrize(
    ("told_s", "transactions", "last"),
    [
        (range(1, 60), 6000, 59),  # the last line was not printed
        (range(1, 60), 5905, 60),  # a stall of the last second
        (range(1, 61), 6100, 60),  # every second has its line
        (range(1, 59), 6000, 60),  # two lines are missing: pgbench hung
        ([*range(1, 30), *range(33, 60)], 6000, 59),  # the line after a gap tells of all of it
        ([], 6000, 60),
    ],
)
def test_a_last_line_that_was_not_printed_is_no_stall(told_s: Sequence[int], transactions: int, last: int) -> None:
    t_s = np.array(told_s, dtype=float)
    seconds = jitter.per_second(t_s, np.full(t_s.size, 100.0), 60.0, transactions)
    assert seconds.size == last
    assert np.flatnonzero(seconds).tolist() == [t - 1 for t in told_s]


def test_jitter_by_hand() -> None:
    tps = np.array([100.0] * 10 + [4.0] * 3 + [40.0] * 2 + [100.0] * 5 + [0.0])
    assert jitter.share_below(tps, 0.5) == pytest.approx(6 / 21)
    assert jitter.share_below(tps, 0.1) == pytest.approx(4 / 21)
    assert jitter.longest_stall_s(tps) == 3
    assert jitter.coefficient_of_variation(np.array([1.0, 3.0])) == 0.5
    assert jitter.means(np.arange(31.0)).tolist() == [7.0, 22.0]
    assert jitter.p1_to_median(np.full(50, 7.0)) == 1.0


def test_a_run_that_did_nothing() -> None:
    dead = np.zeros(20)
    assert jitter.share_below(dead, 0.5) == 1
    assert jitter.longest_stall_s(dead) == 20
    assert math.isnan(jitter.coefficient_of_variation(dead))
    assert math.isnan(trend_per_hour(dead))
    assert math.isnan(jitter.longest_stall_s(np.zeros(0)))


@given(SERIES, st.floats(0.01, 100))
def test_jitter_has_no_unit(tps: np.ndarray, factor: float) -> None:
    assert jitter.coefficient_of_variation(tps * factor) == pytest.approx(
        jitter.coefficient_of_variation(tps), rel=1e-6, abs=1e-9, nan_ok=True
    )
    assert 0 <= jitter.share_below(tps, 0.1) <= jitter.share_below(tps, 0.5) <= 1
    assert 0 <= jitter.longest_stall_s(tps) <= tps.size


@settings(max_examples=30)
@given(arrays(np.float64, st.integers(2, 60), elements=st.floats(-100, 100)))
def test_theil_sen_is_scipys(y: np.ndarray) -> None:
    t = np.arange(y.size, dtype=np.float64)
    assert theil_sen(t, y) == pytest.approx(theilslopes(y, t)[0], abs=1e-9)


def test_trend_of_a_falling_run() -> None:
    # from 2000 to 1000 in an hour: -1000 an hour, of a median of 1500
    tps = np.linspace(2000, 1000, 3600)
    assert trend_per_hour(tps) == pytest.approx(-1000 / 1500, rel=0.01)
    assert trend_p(np.array([-0.5, -0.52, -0.49, -0.51])) < 0.001
    assert trend_p(np.array([-0.5, 0.5])) == 1
    assert trend_p(np.array([0.3, -0.2, 0.1, -0.25, 0.05])) > 0.5


def test_fold_finds_a_checkpoint_and_nothing_else() -> None:
    starts = np.arange(0, 1801, 300, dtype=float)
    quiet = ar1(1, 1800)
    plain = checkpoint_cycle(quiet, starts)
    assert plain is not None
    assert plain.p > 0.01
    slowed = quiet.copy()
    for start in range(0, 1800, 300):
        slowed[start : start + 60] *= 0.7
    found = checkpoint_cycle(slowed, starts)
    assert found is not None
    assert found.p < 0.001
    assert found.cycles == 6
    assert found.phases[0] == min(found.phases)
    assert found.depth == pytest.approx(0.3, abs=0.08)


def test_fold_needs_whole_cycles() -> None:
    assert checkpoint_cycle(np.ones(100), np.array([0.0, 50.0])) is None
    assert checkpoint_cycle(np.ones(100), np.array([])) is None


def test_a_period_is_found_and_noise_is_not() -> None:
    noise = ar1(3, 1800)
    swinging = noise * (1 + 0.08 * np.sin(2 * np.pi * np.arange(1800) / 30))
    line = strongest_period(swinging)
    assert line is not None
    assert line.found
    assert line.period_s == pytest.approx(30, rel=0.02)
    assert sum(bool(x and x.found) for x in (strongest_period(ar1(seed, 900)) for seed in range(60))) <= 4
    assert strongest_period(np.ones(600)) is None
    assert strongest_period(noise[:100]) is None


def test_changepoints_are_where_the_level_changed() -> None:
    tps = ar1(4, 1800)
    assert changepoints_s(tps) == ()
    tps[900:] *= 0.6
    assert changepoints_s(tps) == pytest.approx((900,), abs=15)
    assert changepoints_s(np.ones(30)) == ()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 20))
def test_pelt_is_as_cheap_as_ruptures(seed: int, penalty: float) -> None:
    rng = np.random.default_rng(seed)
    y = np.concatenate([rng.normal(0, 1, 15), rng.normal(rng.uniform(-4, 4), 1, 15)])
    ours = [*pelt(y, penalty), 30]
    theirs = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(y.reshape(-1, 1)).predict(pen=penalty)

    def cost(ends: list[int]) -> float:
        parts = np.split(y, ends[:-1])
        return float(sum(((p - p.mean()) ** 2).sum() + penalty for p in parts))

    assert cost(ours) <= cost(theirs) + 1e-9


def test_best_length_by_the_formula() -> None:
    # 180 s of overhead, seconds of 10 % with tau 9, runs of 2.5 %
    assert best_length_s(180, 0.1, 9, 0.025) == pytest.approx(math.sqrt(180 * 0.01 * 9 / 0.000625))
    assert best_length_s(180, 0.1, 9, 0) == math.inf


def test_best_length_from_runs() -> None:
    rng = np.random.default_rng(5)
    runs = [ar1(i, 300) * math.exp(rng.normal(0, 0.03)) for i in range(20)]
    found = suggest(runs, 180, float(np.std(np.log([r.mean() for r in runs]), ddof=1)))
    assert found is not None
    assert found.within == pytest.approx(0.1, rel=0.2)
    assert found.tau_s == pytest.approx(9, rel=0.4)
    assert 60 < found.best_s < 400
    assert suggest(runs[:2], 180, 0.03) is None
    assert suggest(runs, 180, 0.0) is None
    assert autocorrelation(np.ones(10)) == 0


@pytest.mark.parametrize(("swing", "period_s", "beyond"), [(0.2, 10.0, False), (0.2, 60.0, False), (0.4, 60.0, True)])
def test_a_swing_of_counters_must_be_more_than_their_sampling_makes(
    swing: float, period_s: float, beyond: bool
) -> None:
    assert is_beyond_sampling(Line(period_s, 50.0, 1e-6, swing)) is beyond
