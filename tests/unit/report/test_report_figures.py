"""Numbers as text: digits, units, and `n/a` for what is not known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.analyze.campaign.scale import in_order, metric_of
from pgstrata.report.sentences.figures import (
    render_count,
    render_interval,
    render_metric,
    render_number,
    render_percent,
    render_ratio,
    render_ratio_interval,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346"),
        (1234.4, "1,234"),
        (12.34, "12.3"),
        (0.01234, "0.0123"),
        (0, "0"),
        (3.0, "3"),
        (0.99999, "1"),
        (9.999, "10"),
        (None, "n/a"),
    ],
)
def test_three_significant_digits_and_whole_numbers_in_full(value: float | None, text: str) -> None:
    assert render_number(value) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_available(value: float) -> None:
    assert render_number(value) == "n/a"
    assert render_percent(value) == "n/a"


@given(st.floats(min_value=1e-5, max_value=1e12))
def test_a_rendered_number_is_within_half_a_percent_of_the_value(value: float) -> None:
    assert float(render_number(value).replace(",", "")) == pytest.approx(value, rel=0.006)


def test_ratios_read_as_percent_near_one_and_as_factors_from_two_on() -> None:
    assert render_ratio(0.88) == "−12.0 %"
    assert render_ratio(1.031) == "+3.1 %"
    assert render_ratio(10.2) == "10.2×"
    assert render_ratio_interval(0.984, 1.011) == "−1.6 … +1.1 %"
    assert render_ratio_interval(0.087, 2.18) == "0.087 … 2.18×"
    assert render_ratio_interval(None, None) == "no bounds yet"


def test_every_metric_has_its_unit() -> None:
    assert render_metric(2050.4, metric_of("tps")) == "2,050 TPS"
    assert render_metric(0.123, metric_of("cv_1s")) == "12.3 %"
    assert render_metric(950_009_856, metric_of("space_physical_bytes")) == "906.0 MiB"
    assert render_metric(9.23, metric_of("load_s")) == "9.23 s"
    assert render_metric(250.0, metric_of("load_s")) == "4 min 10 s"
    assert render_metric(None, metric_of("tps")) == "n/a"
    assert render_metric(-0.02, metric_of("trend_per_hour")) == "−2.0 %/h"


def test_a_metric_of_an_import_takes_its_unit_from_its_suffix() -> None:
    assert metric_of("commit_wait_ms").unit == "ms"
    assert metric_of("commit_wait_ms").better == "lower"
    assert metric_of("score").unit == ""
    assert in_order({"score", "cv_1s", "tps"}) == ("tps", "cv_1s", "score")


def test_an_interval_names_its_unit_once_at_most() -> None:
    assert render_interval(1200, 1268, metric_of("tps")) == "1,200 … 1,268"
    assert render_interval(900 * 1024**2, 950 * 1024**2, metric_of("wal_bytes")) == "900.0 … 950.0 MiB"
    assert render_interval(-5e-7, 5e-7, metric_of("longest_stall_s")) == "0 … 0"


def test_counts_have_a_plural() -> None:
    assert render_count(1, "run") == "1 run"
    assert render_count(1200, "run") == "1,200 runs"
