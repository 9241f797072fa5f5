"""Distributions against scipy's, over the ranges that the statistics use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

from pgstrata.analyze.stats import distributions as own

FREEDOM = (0.5, 1, 1.5, 2, 3, 4.7, 7, 12, 19.9, 20.1, 33, 100, 999.5, 1e4, 1e6)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-300)


def test_t() -> None:
    freedom, t = np.meshgrid(FREEDOM, [-40, -9, -3.3, -1, -0.1, -1e-6, 0, 1e-3, 0.7, 2, 5, 30])
    close(own.t_cdf(freedom, t), scipy.special.stdtr(freedom, t))
    assert own.t_cdf(math.inf, -1.5) == pytest.approx(scipy.special.ndtr(-1.5), rel=1e-12)
    assert np.isnan(own.t_cdf([0, -1, 3], [1, 1, math.nan])).all()


@pytest.mark.parametrize("p", [1e-9, 1e-4, 0.005, 0.025, 0.05, 0.3, 0.4999, 0.5, 0.6, 0.9, 0.975, 0.9999, 1 - 1e-7])
def test_quantiles_of_t(p: float) -> None:
    found = [own.t_quantile(nu, p) for nu in FREEDOM]
    np.testing.assert_allclose(found, scipy.special.stdtrit(FREEDOM, p), rtol=1e-9)
    assert own.t_quantile(math.inf, p) == pytest.approx(scipy.special.ndtri(p), rel=1e-12)


def test_f_and_beta() -> None:
    one, other, ratio = np.meshgrid(FREEDOM, FREEDOM, [0, 1e-3, 0.2, 0.9, 1, 1.3, 4, 30, 1e4])
    close(own.f_above(one, other, ratio), scipy.special.fdtrc(one, other, ratio))
    a, b, x = np.meshgrid(FREEDOM[:-2], FREEDOM[:-2], [0, 1e-6, 0.03, 0.5, 0.8, 0.999, 1])
    close(own.beta_above(a, b, x), scipy.special.betaincc(a, b, x))
    assert np.isnan(own.f_above(3, 4, [-1, math.nan])).all()
    assert own.f_above(3, 4, math.inf) == 0


@pytest.mark.parametrize("p", [0.001, 0.05, 0.5, 0.95, 0.999])
def test_quantiles_of_f(p: float) -> None:
    pairs = [(a, b) for a in FREEDOM[1:] for b in FREEDOM[1:]]
    found = [own.f_quantile(a, b, p) for a, b in pairs]
    np.testing.assert_allclose(found, [scipy.special.fdtri(a, b, p) for a, b in pairs], rtol=1e-9)


def test_normal() -> None:
    x = [-30, -5, -1, 0, 0.3, 8]
    np.testing.assert_allclose([own.normal_cdf(one) for one in x], scipy.special.ndtr(x), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("n", [4, 8, 33, 34, 120])
@pytest.mark.parametrize("ties", [False, True])
def test_kendall(n: int, ties: bool) -> None:
    rng = np.random.default_rng(n)
    for slope in (-0.3, 0.0, 0.1, 2.0):
        values = np.asarray(rng.normal(size=n) + slope * np.arange(n), dtype=np.float64)
        values = np.rint(values) if ties else values
        if np.ptp(values) == 0:
            continue
        expected = scipy.stats.kendalltau(np.arange(n), values, alternative="greater").pvalue
        assert own.kendall_rising_p(values) == pytest.approx(expected, rel=1e-9, abs=1e-300)
