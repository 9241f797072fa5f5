"""How a metric is compared: as a ratio (logarithms) or a difference, and which direction is better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.findings import MetricScale

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """A metric of a run."""

    name: str
    scale: MetricScale
    better: Literal["higher", "lower"]
    title: str
    unit: str = ""

    @property
    def sign(self) -> int:
        """Model values are oriented so that higher is better."""
        return 1 if self.better == "higher" else -1

    def to_model(self, value: float | None) -> float:
        """The value on the scale of the model, higher is better; nan where it has none (zero has no logarithm)."""
        if value is None or not math.isfinite(value):
            return math.nan
        if self.scale == "difference":
            return self.sign * value
        return self.sign * math.log(value) if value > 0 else math.nan

    def from_model(self, level: float) -> float:
        """The metric's own value of a model value."""
        return self.sign * level if self.scale == "difference" else math.exp(self.sign * level)

    def bound(self, margin: float) -> float:
        """The margin on the scale of the model: ln(1 + margin) of ratios, the margin itself of differences."""
        return math.log1p(margin) if self.scale == "ratio" else margin

    def margin_of(self, bound: float) -> str:
        """A bound on the scale of the model as a margin in words: `2.1 %`, `0.5 s`."""
        if not math.isfinite(bound):
            return "out of reach"
        if self.scale == "ratio":
            return f"{100 * math.expm1(bound):.1f}".removesuffix(".0") + " %"
        return f"{bound:.3g} {self.unit}".rstrip()


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("tps", "ratio", "higher", "throughput", "tps"),
        Metric("latency_avg_ms", "ratio", "lower", "mean latency", "ms"),
        Metric("latency_stddev_ms", "ratio", "lower", "standard deviation of latency", "ms"),
        Metric("latency_p50_ms", "ratio", "lower", "median latency", "ms"),
        Metric("latency_p95_ms", "ratio", "lower", "95th percentile of latency", "ms"),
        Metric("latency_p99_ms", "ratio", "lower", "99th percentile of latency", "ms"),
        Metric("latency_p999_ms", "ratio", "lower", "99.9th percentile of latency", "ms"),
        Metric("cv_1s", "ratio", "lower", "variation from second to second"),
        Metric("cv_15s", "ratio", "lower", "variation of 15 s means"),
        Metric("p1_to_median", "ratio", "higher", "1st percentile of throughput over its median"),
        Metric("half_fraction", "difference", "lower", "share of seconds below half the median"),
        Metric("stall_fraction", "difference", "lower", "share of seconds below a tenth of the median"),
        Metric("longest_stall_s", "difference", "lower", "longest stall", "s"),
        Metric("trend_per_hour", "difference", "higher", "trend of throughput, share an hour"),
        Metric("load_s", "ratio", "lower", "time to load", "s"),
        Metric("space_physical_bytes", "ratio", "lower", "space used", "bytes"),
        Metric("space_database_bytes", "ratio", "lower", "size of the database", "bytes"),
        Metric("wal_bytes", "ratio", "lower", "WAL written", "bytes"),
        Metric("wal_bytes_per_transaction", "ratio", "lower", "WAL a transaction", "bytes"),
        Metric("failed_fraction", "difference", "lower", "share of failed, late or skipped transactions"),
    )
}

_LOWER = ("latency", "load", "time", "space", "size", "wal", "lag", "cv", "stall", "failed", "retried", "late")


def metric_of(name: str) -> Metric:
    """The metric of that name; one that an import brought is a ratio, better when higher unless its name says cost."""
    known = METRICS.get(name)
    if known is not None:
        return known
    cost = name.startswith(_LOWER) or name.endswith(("_ms", "_s", "_us", "_bytes"))
    return Metric(name, "ratio", "lower" if cost else "higher", name.replace("_", " "))
