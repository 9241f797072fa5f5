"""Sentences on the steadiness of the runs of a stack: stalls, trends, checkpoints, periods, changes of level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pgstrata.analyze.campaign.statements import CheckpointCost, LevelChanges, Period, SoakTrend, Stalls, Trend
from pgstrata.analyze.campaign.steadiness import NOTABLE_HALF, NOTABLE_STALL, NOTABLE_STALL_S
from pgstrata.report.sentences.figures import percent
from pgstrata.report.sentences.markup import quoted
from pgstrata.spec.units import render_duration

NOTABLE_SLOPE = 0.01
"""Minimum slope of soak runs to report, share per hour."""
_FEW = 3
_FIFTHS = ("first", "second", "third", "fourth", "last")

Remark = Stalls | Trend | CheckpointCost | Period | LevelChanges
"""Statements on the steadiness of the runs of one stack: a cell with many stacks has many of them."""


def remark_detail(remark: Remark) -> str:
    """Return the figures of a remark."""
    match remark:
        case Stalls():
            return _stalled(remark)
        case CheckpointCost():
            return (
                f"slowest in the {_FIFTHS[remark.slowest_fifth]} fifth of the cycle, by {percent(remark.depth)} of its "
                "mean against the fastest"
            )
        case Trend():
            return f"{'falls' if remark.per_hour < 0 else 'rises'} by {percent(abs(remark.per_hour))} an hour"
        case Period():
            swing = f"by {percent(remark.swing)}, " if remark.swing is not None else ""
            return f"{swing}with a period of {remark.period_s:.0f} s"
        case LevelChanges():
            step = f", by {percent(remark.step)} at most" if remark.step is not None else ""
            if len(remark.at_s) > _FEW:
                return f"{len(remark.at_s)} times{step}"
            return f"at {', '.join(render_duration(t) for t in remark.at_s)}{step}"
    assert_never(remark)


def _stalled(statement: Stalls) -> str:
    shares = []
    if statement.half_fraction >= NOTABLE_HALF:
        shares.append(f"{percent(statement.half_fraction)} below half of its own median")
    if statement.stall_fraction >= NOTABLE_STALL or statement.longest_stall_s >= NOTABLE_STALL_S:
        longest = f"the longest stall: {statement.longest_stall_s:.0f} s"
        shares.append(f"{percent(statement.stall_fraction)} below a tenth of its own median ({longest})")
    return f"of its seconds, {' and '.join(shares)}"


def remark_words(remark: Remark) -> str:
    """Return the sentence of a remark."""
    name, detail = quoted(remark.subject), remark_detail(remark)
    soak = "Soak: " if isinstance(remark, Stalls | LevelChanges) and remark.soak else ""
    match remark:
        case Stalls():
            return f"{soak}{name} **stalls**: {detail}."
        case CheckpointCost():
            return f"{name} follows the checkpoints: {detail}."
        case Trend():
            return f"Throughput of {name} drifts within a run: it {detail}; a longer run would show more."
        case Period():
            return f"Throughput of {name} swings {detail}."
        case LevelChanges():
            return f"{soak}{name} changed its level within a run, {detail}."
    assert_never(remark)


def soak_words(trends: Sequence[SoakTrend]) -> str:
    """Describe the trend of throughput in the long runs of one stack, or of several."""
    moved = "; ".join(f"{quoted(t.subject)} {_moved(t.per_hour)}" for t in trends)
    first = trends[0]
    times = "one run" if first.runs == 1 else f"{first.runs} runs"
    each = " each" if len(trends) > 1 else ""
    return f"Soak: {moved}; over {times}{each} of {render_duration(first.duration_s)} (median Theil-Sen slope)."


def _moved(slope: float) -> str:
    if abs(slope) < NOTABLE_SLOPE:
        return "keeps its throughput"
    return f"{'loses' if slope < 0 else 'gains'} {percent(abs(slope))} an hour"
