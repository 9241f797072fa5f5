"""Series of single runs, thinned for drawing: read one run at a time, never all in memory.

A run with more seconds than there are points is cut into buckets of equal width; each keeps its smallest, mean and
largest second, so that no stall and no burst disappears. The page states the width of the buckets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgstrata.analyze.stats.interval import Floats
from pgstrata.analyze.stats.jitter import STALL
from pgstrata.record.parquet import Table
from pgstrata.record.reader import CellData

RUNNING_MEAN_S = 15
SMOOTHED_FROM_S = 2 * RUNNING_MEAN_S
"""Minimum length: the running mean of a shorter run would be almost constant."""
POINTS_OF_ALL_RUNS = 60_000
POINTS_OF_ALL_DEVICES = 30_000


@dataclass(frozen=True)
class RunSeries:
    """Throughput and mean latency of one run; lists are parallel, one entry per bucket of `width_s`."""

    width_s: float
    mean: list[float | None]
    low: list[float | None] | None
    high: list[float | None] | None
    smooth: list[float | None] | None
    """The running mean; None for runs that are too short."""
    latency: list[float | None]
    checkpoints: list[tuple[float, float, str]]
    stalls: list[tuple[float, float]]


@dataclass(frozen=True)
class DeviceSeries:
    """Activity of one block device of the stack during one run; means of buckets of `width_s`."""

    device: str
    role: str
    width_s: float
    read_bytes: list[float | None]
    write_bytes: list[float | None]
    writes: list[float | None]
    flushes: list[float | None]
    utilisation: list[float | None]


@dataclass(frozen=True)
class Resolution:
    """Maximum number of points per run, so that the whole page stays small."""

    run_points: int
    device_points: int

    @classmethod
    def of(cls, runs: int, devices: int = 2) -> Resolution:
        count = max(runs, 1)
        return cls(
            run_points=int(np.clip(POINTS_OF_ALL_RUNS // count, 60, 900)),
            device_points=int(np.clip(POINTS_OF_ALL_DEVICES // (count * devices), 30, 300)),
        )


def run_series(cell: CellData, points: int) -> RunSeries | None:
    """Return the progress of a run, its checkpoints and stalls; None if the client printed no progress."""
    table = cell.table("progress", ["t_s", "tps", "latency_ms"])
    t_s, tps, latency = table.values()
    if t_s.size < 2:
        return None
    step_s = max(1.0, round(float(np.median(np.diff(t_s)))))
    at = np.maximum(np.rint(t_s / step_s).astype(int) - 1, 0)
    seconds = np.zeros(int(at.max()) + 1)
    seconds[at] = np.nan_to_num(tps)
    latencies = np.full(len(seconds), np.nan)
    latencies[at] = latency
    width = max(1, -(-len(seconds) // points))
    smooth = None
    if len(seconds) * step_s >= SMOOTHED_FROM_S:
        smooth = running_mean(seconds, max(1, round(RUNNING_MEAN_S / step_s)))
    return RunSeries(
        width_s=width * step_s,
        mean=_short(buckets(seconds, width, "mean")),
        low=_short(buckets(seconds, width, "low")) if width > 1 else None,
        high=_short(buckets(seconds, width, "high")) if width > 1 else None,
        smooth=None if smooth is None else _short(buckets(smooth, width, "mean")),
        latency=_short(buckets(latencies, width, "mean")),
        checkpoints=_checkpoints(cell),
        stalls=stalls(seconds, step_s),
    )


def device_series(cell: CellData, points: int) -> list[DeviceSeries]:
    """Return the activity of the stack's devices during a run; empty if they were not sampled."""
    table = cell.table("devices", ["t_s", "device", "role", *_DEVICE_COLUMNS])
    t_s, names, roles = (table[name] for name in ("t_s", "device", "role"))
    found = []
    for device in dict.fromkeys(names):
        rows = names == device
        found.append(_one_device(str(device), str(roles[rows][0]), t_s[rows], table, rows, points))
    return found


_DEVICE_COLUMNS = ("read_bytes_per_s", "write_bytes_per_s", "writes_per_s", "flushes_per_s", "utilisation")


def _one_device(
    device: str, role: str, t_s: Floats, columns: Table, rows: NDArray[np.bool_], points: int
) -> DeviceSeries:
    step_s = max(1.0, round(float(np.median(np.diff(t_s))))) if len(t_s) > 1 else 1.0
    width = max(1, -(-len(t_s) // points))
    means = [_short(buckets(columns[name][rows], width, "mean")) for name in _DEVICE_COLUMNS]
    return DeviceSeries(device, role, width * step_s, *means)


def buckets(values: Floats, width: int, what: str) -> Floats:
    """Return mean, minimum or maximum of each `width` neighbours; a bucket without numbers is NaN."""
    if width == 1:
        return values
    count = -(-len(values) // width)
    padded = np.full(count * width, np.nan)
    padded[: len(values)] = values
    folded = padded.reshape(count, width)
    known = ~np.isnan(folded)
    empty = ~known.any(axis=1)
    match what:
        case "low":
            result = np.where(known, folded, np.inf).min(axis=1)
        case "high":
            result = np.where(known, folded, -np.inf).max(axis=1)
        case _:
            result = np.where(known, folded, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return np.where(empty, np.nan, result)


def running_mean(values: Floats, width: int) -> Floats:
    """Return the centred running mean over `width` values; the window is cut at both ends."""
    total = np.concatenate(([0.0], np.cumsum(values)))
    at = np.arange(len(values))
    first = np.maximum(at - width // 2, 0)
    last = np.minimum(at + (width - width // 2), len(values))
    result: Floats = (total[last] - total[first]) / (last - first)
    return result


def stalls(seconds: Floats, step_s: float) -> list[tuple[float, float]]:
    """Return start and end of every stretch of seconds below a tenth of the run's median."""
    below = seconds < STALL * np.median(seconds)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], below, [False])).astype(int)))
    return [(float(a) * step_s, float(b) * step_s) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _checkpoints(cell: CellData) -> list[tuple[float, float, str]]:
    columns = cell.table("checkpoints", ["start_t_s", "end_t_s", "kind"]).values()
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(round(a, 1), round(b, 1), kind or "") for a, b, kind in rows if not (math.isnan(a) or math.isnan(b))]


def _short(values: Floats) -> list[float | None]:
    """Round to four significant digits, without a point if all are whole numbers: the page is text."""
    known = np.isfinite(values)
    rounded = _four_digits(np.where(known, values, 0.0))
    short: list[float | None] = (rounded.astype(np.int64) if (rounded % 1 == 0).all() else rounded).tolist()
    if not known.all():
        short = [v if k else None for v, k in zip(short, known, strict=True)]
    return short


def _four_digits(values: Floats) -> Floats:
    size = np.abs(values)
    digits = 3 - np.floor(np.log10(np.where(size > 0, size, 1.0)))
    factor = 10.0 ** np.maximum(digits, 0)  # numbers of five digits and more are rounded to whole ones
    result: Floats = np.round(values * factor) / factor
    return result
