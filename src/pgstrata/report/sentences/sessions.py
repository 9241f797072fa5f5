"""Comparison of campaigns, in words and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.sessions.comparison import Moved, SessionComparison, SessionUncounted
from pgstrata.report.sentences.figures import render_metric, render_percent
from pgstrata.report.sentences.statements import shares_words

_REFUSED = {
    "no stack in common": "they have no stack in common",
    "no reference": "no second stack ran in enough blocks of both, to tell the drift between them",
    "other metric": "they are about different metrics",
    "unpaired": "an import without blocks cannot be compared over sessions",
}
_VERDICTS = {
    "higher": "more than the reference, proven",
    "lower": "less than the reference, proven",
    "equal": "practically as the reference",
    "undecided": "undecided",
    "unclaimed": "no claim, because with two stacks in common nothing tells how far sessions lie apart",
}


def comparison_lines(found: SessionComparison) -> Iterator[str]:
    """Yield all lines, the drift first."""
    yield f"{found.b} against {found.a}, {metric_of(found.metric).title.lower()}"
    if found.refused is not None:
        yield f"not compared: {_REFUSED[found.refused]}"
    else:
        yield f"reference: {found.reference}; what moved it too is not counted"
    for one in found.moved:
        yield f"  {moved_words(one, found)}"
    for missed in found.uncounted:
        yield f"  {uncounted_line(missed, (found.a, found.b))}"
    for cell, moved in found.reference_moved:
        yield f"the reference itself moved against the other stacks in {cell}: {change_words(moved, found.metric)}"
        yield "HINT: name another reference with --reference"
    for name, a, b in found.differing:
        yield f"differs: {name}: {a} | {b}"
    if found.unmatched:
        yield f"in one of them alone, or of another specification: {', '.join(found.unmatched)}"


def moved_words(one: Moved, found: SessionComparison) -> str:
    """Describe the movement of one stack in one cell."""
    bounds = "no bounds yet"
    if one.low is not None and one.high is not None:
        bounds = f"{change_words(one.low, found.metric)} … {change_words(one.high, found.metric)}"
    moved, drift = change_words(one.raw, found.metric), change_words(one.reference, found.metric)
    return (
        f"{one.stack}, {one.cell}: {moved}, the reference {drift}: {change_words(one.change, found.metric)} ({bounds}) "
        f"in {one.blocks_a} and {one.blocks_b} blocks: {_VERDICTS[one.verdict]}"
    )


def comparison_value(found: SessionComparison) -> dict[str, Any]:
    """Return plain values for programs, with the sentences."""
    value = asdict(found)
    for shown, one in zip(value["moved"], found.moved, strict=True):
        shown["sentence"] = moved_words(one, found)
    return {**value, "uncounted": uncounted_value(found.uncounted, (found.a, found.b))}


def uncounted_line(one: SessionUncounted, names: Sequence[str]) -> str:
    """Return `xfs, c16: committed transactions alone count: in monday 12 % failed`."""
    return (
        f"{one.stack}, {one.cell}: committed transactions alone count: in {names[one.session]} "
        f"{shares_words(one.transactions)}"
    )


def uncounted_value(found: Sequence[SessionUncounted], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return notable transactions as plain values for programs, with the sentences."""
    return [
        {
            "session": one.session,
            "stack": one.stack,
            "cell": one.cell,
            **one.transactions.model_dump(),
            "sentence": uncounted_line(one, names),
        }
        for one in found
    ]


def change_words(value: float, metric: str) -> str:
    """Return `+3.1 %`; a difference if the metric has no logarithm."""
    if metric_of(metric).scale == "difference":
        return render_metric(value, metric_of(metric))
    return f"{'+' if value > 1 else ''}{render_percent(value - 1)}"
