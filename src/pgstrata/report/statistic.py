"""Statistics that authors of published comparisons used, beside ours: maximum, mean, least of the runs."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.analyze.findings import CellFinding
from pgstrata.report.pairs import Index


@dataclass(frozen=True)
class AuthorRow:
    """Plain figures over the valid runs of a stack, TPS; they carry no statement of certainty."""

    name: str
    runs: int
    estimate: float | None
    first_three_max: float
    mean: float
    least: float
    greatest: float


def author_rows(index: Index, cell: CellFinding) -> tuple[AuthorRow, ...]:
    """A row for each stack with runs, best first."""
    rows = []
    for stack in index.stacks_of(cell):
        found = stack.metrics.get("tps")
        runs = [v for v in found.runs if v is not None] if found else []
        if found and runs:
            mean = sum(runs) / len(runs)
            rows.append(AuthorRow(stack.name, len(runs), found.estimate, max(runs[:3]), mean, min(runs), max(runs)))
    return tuple(rows)
