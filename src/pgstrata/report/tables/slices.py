"""Checks of the slices, as a table."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.analyze.findings import CellFinding, Findings, SliceEffect, SlicesFinding
from pgstrata.report.sentences.figures import NOT_KNOWN, render_count, render_number, render_percent

TITLE = "Checks of the slices"
EXPLAINED = (
    "Whether turns depend on the age of a build, on their place in a round, on the stack whose turn came before or on "
    "the block before, tested when a campaign has 6, 12 and 24 blocks at levels that were set beforehand. They are no "
    "part of the verdicts: the order of the turns is balanced, and each stack and block counts once. Small effects "
    "stay unseen in few blocks."
)
COLUMNS = ("Check", "Stack", "Size", "p", "Level", "Result")
TEXTS = 2
"""Number of leading columns with words; the others have figures."""
_CHECKS = {
    "age": "From one slice to the next, against the others",
    "place": "First slice of a round against the last",
    "predecessor": "Slices right after the stack against those after others",
    "memory": "Correlation with the block before",
}


def slice_rows(findings: Findings, cell: CellFinding) -> tuple[tuple[str, ...], ...]:
    """Return rows of `COLUMNS`; none if the cell was not measured in slices."""
    return tuple(row for found in findings.slices if found.cell == cell.id for row in _rows(found))


def _rows(found: SlicesFinding) -> Iterator[tuple[str, ...]]:
    for effect in found.effects:
        size = render_number(effect.amount) if effect.what == "memory" else _change(effect.amount)
        p = NOT_KNOWN if effect.p is None else f"{effect.p:.3f}"
        yield _CHECKS[effect.what], effect.stack or "all", size, p, f"{effect.level:g}", _result(found, effect)
    between = render_percent(found.between)
    if found.between_low is not None and found.between_high is not None:
        between += f" ({render_percent(found.between_low)} … {render_percent(found.between_high)})"
    builds = "more than meant for" if found.unlike_builds else ""
    yield "Scatter of two stacks from build to build (90 %)", "all", between, "", "", builds
    yield "Scatter of two stacks from slice to slice", "all", render_percent(found.within), "", "", ""


def _change(ratio: float | None) -> str:
    return NOT_KNOWN if ratio is None else render_percent(ratio - 1, sign=True)


def _result(found: SlicesFinding, effect: SliceEffect) -> str:
    if effect.told:
        return "shown"
    if effect.amount is None:
        return "not visible in this order"
    if effect.p is None and found.next_reading is not None:
        return f"tested after {render_count(found.next_reading, 'block')}"
    return "not shown"
