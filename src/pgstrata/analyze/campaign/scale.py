"""The metrics: names, units, better direction, and comparison by ratio (logarithms) or by difference.

One table for analysis and reports.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal, get_args

from pgstrata.analyze.finding import MetricScale

Better = Literal["higher", "lower"]
Unit = Literal["TPS", "NOPM", "TPM", "tpmC", "req/s", "QPS", "IOPS", "MB/s", "ms", "s", "%", "bytes", "per hour", ""]


@dataclass(frozen=True)
class Metric:
    """A metric of a run: `title` heads a column, `phrase` is used in a sentence; `%` is stored as a share of one."""

    name: str
    scale: MetricScale
    better: Better
    unit: Unit
    title: str
    phrase: str

    @property
    def sign(self) -> int:
        """Sign that makes higher model values better."""
        return 1 if self.better == "higher" else -1

    def to_model(self, value: float | None) -> float:
        """Convert to the scale of the model, higher is better; nan if the value has none (zero has no logarithm)."""
        if value is None or not math.isfinite(value):
            return math.nan
        if self.scale == "difference":
            return self.sign * value
        return self.sign * math.log(value) if value > 0 else math.nan

    def from_model(self, level: float) -> float:
        """Convert a model value to the metric's own value."""
        return self.sign * level if self.scale == "difference" else math.exp(self.sign * level)

    def bound(self, margin: float) -> float:
        """Convert a margin to the scale of the model: ln(1 + margin) of ratios, the margin itself of differences."""
        return math.log1p(margin) if self.scale == "ratio" else margin

    def margin_of(self, bound: float) -> str:
        """Format a bound on the scale of the model as a margin: `2.1 %`, `0.5 s`."""
        if not math.isfinite(bound):
            return "out of reach"
        if self.scale == "ratio":
            return f"{100 * math.expm1(bound):.1f}".removesuffix(".0") + " %"
        return f"{bound:.3g} {self.unit_of_difference}".rstrip()

    @property
    def unit_of_difference(self) -> str:
        """Unit after a bare difference; shares have none."""
        return "" if self.unit in ("%", "per hour") else self.unit


_TABLE = (
    Metric("tps", "ratio", "higher", "TPS", "Throughput", "throughput"),
    Metric("latency_avg_ms", "ratio", "lower", "ms", "Mean latency", "mean latency"),
    Metric("latency_stddev_ms", "ratio", "lower", "ms", "Latency, standard deviation", "standard deviation of latency"),
    Metric("latency_p50_ms", "ratio", "lower", "ms", "Latency, median", "median latency"),
    Metric("latency_p95_ms", "ratio", "lower", "ms", "Latency, 95th percentile", "95th percentile of latency"),
    Metric("latency_p99_ms", "ratio", "lower", "ms", "Latency, 99th percentile", "99th percentile of latency"),
    Metric("latency_p999_ms", "ratio", "lower", "ms", "Latency, 99.9th percentile", "99.9th percentile of latency"),
    Metric("cv_1s", "ratio", "lower", "%", "Jitter (CV of 1 s)", "variation from second to second"),
    Metric("cv_15s", "ratio", "lower", "%", "Jitter (CV of 15 s)", "variation of 15 s means"),
    Metric("half_fraction", "difference", "lower", "%", "Seconds below half", "share of seconds below half the median"),
    Metric("stall_fraction", "difference", "lower", "%", "Stalled seconds",
           "share of seconds below a tenth of the median"),
    Metric("longest_stall_s", "difference", "lower", "s", "Longest stall", "longest stall"),
    Metric("p1_to_median", "ratio", "higher", "%", "1st percentile to median",
           "1st percentile of throughput over its median"),
    Metric("trend_per_hour", "difference", "higher", "per hour", "Trend", "trend of throughput, share an hour"),
    Metric("load_s", "ratio", "lower", "s", "Load time", "time to load"),
    Metric("space_physical_bytes", "ratio", "lower", "bytes", "Space on the medium", "space used"),
    Metric("space_database_bytes", "ratio", "lower", "bytes", "Database size", "size of the database"),
    Metric("wal_bytes", "ratio", "lower", "bytes", "WAL written", "WAL written"),
    Metric("wal_bytes_per_transaction", "ratio", "lower", "bytes", "WAL per transaction", "WAL a transaction"),
    Metric("failed_fraction", "difference", "lower", "%", "Failed, late or skipped",
           "share of failed, late or skipped transactions"),
)  # fmt: skip
METRICS = {m.name: m for m in _TABLE}
"""Metrics by name, in display order."""
_IMPORTED = {
    m.name: m
    for m in (
        Metric("nopm", "ratio", "higher", "NOPM", "New orders per minute", "new orders per minute"),
        Metric("tpm", "ratio", "higher", "TPM", "Transactions per minute", "transactions per minute"),
        Metric("tpmc", "ratio", "higher", "tpmC", "tpmC", "tpmC"),
        Metric("throughput_rps", "ratio", "higher", "req/s", "Requests", "requests per second"),
        Metric("goodput_rps", "ratio", "higher", "req/s", "Goodput", "successful requests per second"),
        Metric("qps", "ratio", "higher", "QPS", "Queries per second", "queries per second"),
        Metric("iops", "ratio", "higher", "IOPS", "I/O operations", "I/O operations per second"),
        Metric("mb_per_s", "ratio", "higher", "MB/s", "Bandwidth", "bandwidth"),
    )
}
"""Metrics of other tools that no run of pgstrata has."""

_LOWER = ("latency", "load", "time", "space", "size", "wal", "lag", "cv", "stall", "failed", "retried", "late")
_SUFFIXES: tuple[tuple[str, Unit], ...] = (
    ("_ms", "ms"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("_fraction", "%"),
    ("_per_hour", "per hour"),
    ("tps", "TPS"),
)


def metric_of(name: str) -> Metric:
    """Return the metric of that name.

    An imported metric is a ratio, better when higher unless its name contains cost; its suffix gives the unit. A metric
    of a tool that names its own units says itself which direction is better, and its name is the unit.
    """
    known = METRICS.get(name) or _IMPORTED.get(name)
    if known is not None:
        return known
    for better in get_args(Better):
        if name.endswith(end := f"_{better}_is_better"):
            title = name.removesuffix(end).replace("_", " ")
            return Metric(name, "ratio", better, "", title, title)
    cost = name.startswith(_LOWER) or name.endswith(("_ms", "_s", "_us", "_bytes"))
    unit: Unit = next((unit for suffix, unit in _SUFFIXES if name.endswith(suffix)), "")
    title = name.replace("_", " ")
    return Metric(name, "ratio", "lower" if cost else "higher", unit, title, title)


def in_order(names: Set[str]) -> tuple[str, ...]:
    """Sort known names by the table, others after them by name."""
    return tuple(m for m in METRICS if m in names) + tuple(sorted(names - METRICS.keys()))
