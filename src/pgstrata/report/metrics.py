"""What a metric is called, which unit it has and which direction is good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["TPS", "ms", "s", "%", "bytes", "per hour", ""]
Good = Literal["high", "low", "neither"]


@dataclass(frozen=True)
class Metric:
    """A metric as readers see it; `%` is stored as a share of one."""

    name: str
    title: str
    unit: Unit
    good: Good
    note: str = ""


_KNOWN = (
    Metric("tps", "Throughput", "TPS", "high", "transactions per second, connection time excluded"),
    Metric("latency_avg_ms", "Mean latency", "ms", "low", "closed loop unless the cell is scheduled by rate"),
    Metric("latency_stddev_ms", "Latency, standard deviation", "ms", "low"),
    Metric("latency_p50_ms", "Latency, median", "ms", "low"),
    Metric("latency_p95_ms", "Latency, 95th percentile", "ms", "low"),
    Metric("latency_p99_ms", "Latency, 99th percentile", "ms", "low"),
    Metric("latency_p999_ms", "Latency, 99.9th percentile", "ms", "low"),
    Metric("cv_1s", "Jitter (CV of 1 s)", "%", "low", "standard deviation over mean of the seconds of a run"),
    Metric("cv_15s", "Jitter (CV of 15 s)", "%", "low", "the same over means of 15 s that do not overlap"),
    Metric("half_fraction", "Seconds below half", "%", "low", "share of seconds below 50 % of the run's median"),
    Metric("stall_fraction", "Stalled seconds", "%", "low", "share of seconds below 10 % of the run's median"),
    Metric("longest_stall_s", "Longest stall", "s", "low", "consecutive seconds below 10 % of the run's median"),
    Metric("p1_to_median", "1st percentile to median", "%", "high", "slowest 1 % of the seconds against the median"),
    Metric("trend_per_hour", "Trend", "per hour", "neither", "Theil-Sen slope within a run"),
    Metric("load_s", "Load time", "s", "low", "pgbench -i, where the data was loaded anew"),
    Metric("space_physical_bytes", "Space on the medium", "bytes", "low", "allocated bytes after the load"),
    Metric("space_database_bytes", "Database size", "bytes", "neither", "pg_database_size after the load"),
    Metric("wal_bytes", "WAL written", "bytes", "low", "during the measured run"),
    Metric("wal_bytes_per_transaction", "WAL per transaction", "bytes", "low"),
    Metric("failed_fraction", "Failed, late or skipped", "%", "low", "share of the transactions"),
)
_BY_NAME = {m.name: m for m in _KNOWN}
_SUFFIXES: tuple[tuple[str, Unit, Good], ...] = (
    ("_ms", "ms", "low"),
    ("_s", "s", "low"),
    ("_bytes", "bytes", "low"),
    ("_fraction", "%", "low"),
    ("_per_hour", "per hour", "neither"),
    ("tps", "TPS", "high"),
)


def metric(name: str) -> Metric:
    """The metric of that name; one that is not known here (a column of an import) is read from its suffix."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    title = name.replace("_", " ")
    for suffix, unit, good in _SUFFIXES:
        if name.endswith(suffix):
            return Metric(name, title, unit, good)
    return Metric(name, title, "", "neither")


def known_metrics() -> tuple[Metric, ...]:
    """Every metric with a name of its own, in the order of showing."""
    return _KNOWN


def known_order(names: set[str]) -> tuple[str, ...]:
    """Names in the order of this module, unknown ones behind, by name."""
    known = tuple(m.name for m in _KNOWN if m.name in names)
    return known + tuple(sorted(names - set(known)))
