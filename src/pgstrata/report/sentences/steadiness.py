"""Sentences on the runs themselves: stalls, trends, checkpoints, periods, changes of level; and on slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pgstrata.analyze.campaign.run_features import NOTABLE_HALF, NOTABLE_STALL, NOTABLE_STALL_S
from pgstrata.analyze.campaign.statements import (
    AgeingBuilds,
    CheckpointCost,
    LevelChanges,
    Period,
    SoakTrend,
    Stalls,
    Trend,
    TurnOrder,
    UnlikeBuilds,
    WholeRunsApart,
)
from pgstrata.report.sentences.figures import percent, render_count
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


_REMARKS: dict[type[Remark], str] = {
    Stalls: "{} **stalls**: {}.",
    CheckpointCost: "{} follows the checkpoints: {}.",
    Trend: "Throughput of {} drifts within a run: it {}; a longer run would show more.",
    Period: "Throughput of {} swings {}.",
    LevelChanges: "{} changed its level within a run, {}.",
}


def remark_words(remark: Remark) -> str:
    """Return the sentence of a remark."""
    soak = "Soak: " if isinstance(remark, Stalls | LevelChanges) and remark.soak else ""
    return soak + _REMARKS[type(remark)].format(quoted(remark.subject), remark_detail(remark))


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


# ---------------------------------------------------------------- slices


def slices_words(statement: WholeRunsApart | AgeingBuilds | TurnOrder | UnlikeBuilds) -> str:
    """Return the sentence for a statement on slices."""
    match statement:
        case WholeRunsApart():
            return (
                f"{quoted(statement.subject)} against {quoted(statement.object)}: **whole runs contradict the "
                f"slices**, {statement.whole:.2f}× in {render_count(statement.runs, 'whole run')} of each and "
                f"{statement.slices:.2f}× in slices of the same builds. Checkpoints or stalls may be the cause, "
                "which slices leave out: compare whole runs (`runs: {design: whole}`)."
            )
        case AgeingBuilds():
            return (
                f"{quoted(statement.subject)} becomes **{_faster(statement.ratio)} while a build of it is used**: by "
                f"{percent(abs(statement.ratio - 1))} from slice to slice, against the other stacks. Verdicts are of "
                f"the first {statement.slices} slices; longer whole runs show where it ends "
                "(`runs: {design: whole}`)."
            )
        case TurnOrder():
            turns = (
                f"slices right after one of {quoted(statement.subject)} are {_faster(statement.ratio)} than the others"
                if statement.effect == "predecessor"
                else f"the first slice of a round is {_faster(statement.ratio)} than the last one"
            )
            return (
                f"**The order of the slices matters**: {turns}, by {percent(abs(statement.ratio - 1))}. It falls on "
                "all stacks alike, because the order is balanced."
            )
        case UnlikeBuilds():
            return (
                f"**Builds of the same stack differ**: two stacks differ by {percent(statement.between)} from build to "
                f"build by chance (90 %: {percent(statement.low)} ... {percent(statement.high)}), and slices are meant "
                f"for {percent(statement.most)}. More blocks help; more slices in a block do not."
            )
    assert_never(statement)


def _faster(ratio: float) -> str:
    return "faster" if ratio > 1 else "slower"
