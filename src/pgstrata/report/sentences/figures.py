"""Numbers as text: sensible digits, a unit on every one, `n/a` for unknown values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from pgstrata.analyze.campaign.scale import Metric
from pgstrata.spec.units import render_duration, render_size

NOT_KNOWN = "n/a"
UNBOUNDED = "no bounds yet"
"""Text for the interval of too few runs, which is infinite."""
WIDEST = 100.0
"""Ratio of upper to lower bound beyond which an interval of a rate or a ratio is not informative."""
LEAST_S = 0.0005
"""Seconds below this are rounding: every figure in seconds is either seconds long or zero."""


def render_number(value: float | None, digits: int = 3) -> str:
    """Return `12,345`, `1,234`, `12.3`, `0.0123`: at least `digits` significant digits, whole numbers in full."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    if abs(value) < 1e-6:
        return "0"
    if abs(value) < 10**digits:
        value = float(f"{value:.{digits}g}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 9)}f}"
    whole = decimals > 0 and value == round(value)
    return text.rstrip("0").rstrip(".") if decimals > digits or whole else text


def render_percent(fraction: float | None, *, sign: bool = False) -> str:
    """Return `12.3 %`, with sign `-12.3 %`; the minus is a typographic one."""
    if fraction is None or not math.isfinite(fraction):
        return NOT_KNOWN
    percent = 100 * fraction
    magnitude = abs(percent)
    if magnitude < 0.005:
        return "0 %"
    decimals = 0 if magnitude >= 100 else 1 if magnitude >= 0.95 or magnitude == 0 else 2
    text = f"{percent:+,.{decimals}f}" if sign else f"{percent:,.{decimals}f}".removesuffix(".0")
    return f"{text} %".replace("-", "−")


def percent(share: float) -> str:
    """Return `12 %`, `1.4 %`: two digits below 10 %."""
    value = 100 * share
    return f"{value:.1f} %".replace(".0 %", " %") if abs(value) < 10 else f"{value:.0f} %"


def render_ratio(ratio: float | None) -> str:
    """Return a ratio in the usual form: `+3.1 %` close to one, `2.4×` from two on."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_KNOWN
    return f"{render_number(ratio)}×" if ratio >= 2 else render_percent(ratio - 1, sign=True)


def render_factor(ratio: float | None) -> str:
    """Return a ratio as a factor, whatever its size: `0.76×`."""
    return NOT_KNOWN if ratio is None else f"{render_number(ratio)}×"


def render_metric(value: float | None, metric: Metric) -> str:
    """Return a value of a metric with its unit; `n/a` if there is none."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    match metric.unit:
        case "bytes":
            return render_size(value)
        case "%":
            return render_percent(value)
        case "per hour":
            return f"{render_percent(value, sign=True)}/h"
        case "s":
            value = value if abs(value) >= LEAST_S else 0.0
            return render_duration(value) if value >= 60 else f"{render_number(value)} s"
        case "":
            return render_number(value)
    return f"{render_number(value)} {metric.unit}"


def is_bounded(low: float | None, high: float | None, metric: Metric) -> bool:
    """Return True if an interval is worth showing: finite, and for a ratio or rate not wider than WIDEST."""
    if low is None or high is None:
        return False
    return metric.scale != "ratio" or 0 < high <= WIDEST * low


def render_interval(low: float | None, high: float | None, metric: Metric) -> str:
    """Return `1,200 … 1,268`, without unit, or that there are no bounds."""
    if low is None or high is None or not is_bounded(low, high, metric):
        return UNBOUNDED
    texts = [render_metric(v, metric).removesuffix(f" {metric.unit}") for v in (low, high)]
    first, _, unit = texts[0].rpartition(" ")
    if first and texts[1].endswith(f" {unit}"):
        texts[0] = first
    return f"{texts[0]} … {texts[1]}"


def render_ratio_interval(low: float | None, high: float | None) -> str:
    """Return `−1.6 … +1.1 %`, or that there are no bounds."""
    if low is None or high is None or high > WIDEST * low:
        return UNBOUNDED
    if high >= 2:
        return f"{render_number(low)} … {render_number(high)}×"
    return f"{render_ratio(low).removesuffix(' %')} … {render_ratio(high)}"


def render_count(count: int, noun: str, plural: str = "") -> str:
    """Return `1 run`, `12 runs`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def render_spread(values: Sequence[float], metric: Metric) -> str:
    """Return the scatter of the runs themselves if there is no interval: `no bounds yet; SD 3.1 %, 980 … 1,050`."""
    if len(values) < 2:
        return f"{UNBOUNDED}; one run" if values else UNBOUNDED
    mean, sd = fmean(values), stdev(values)
    spread = (
        f"SD {render_percent(sd / mean)}" if metric.scale == "ratio" and mean > 0 else f"SD {render_metric(sd, metric)}"
    )
    low, high = (render_metric(v, metric).removesuffix(f" {metric.unit}") for v in (min(values), max(values)))
    return f"{UNBOUNDED}; {spread}, {low} … {high}"
