"""Sentences on slices: where they and whole runs differ, and what their order and builds did to them."""

from __future__ import annotations

from typing import assert_never

from pgstrata.analyze.campaign.statements import AgeingBuilds, TurnOrder, UnlikeBuilds, WholeRunsApart
from pgstrata.report.sentences.figures import percent, render_count
from pgstrata.report.sentences.markup import quoted


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
