"""Hints on reading the columns of a verdict table: the runs behind a level, and the basis of a ratio."""

from __future__ import annotations

from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.campaign.statements import DeclaredBlocks
from pgstrata.analyze.findings import CellFinding, Findings
from pgstrata.report.tables.hosts import hosts_of_cell


def reading_words(findings: Findings, cell: CellFinding, *, paired: bool) -> str:
    """Return the hints. `paired` is false for imports whose runs do not belong to blocks shared by all stacks."""
    level = metric_of(findings.campaign.primary).title
    looks = "are of the declared blocks" if _has_declared_blocks(cell) else "hold whenever one looks"
    if hosts_of_cell(findings, cell) is not None:
        return f"{level} is a stack's level over the hosts, against best the mean of the hosts' own differences."
    if not paired:
        return f"{level} is the level of a stack's runs, against best the difference of two levels. Intervals {looks}."
    runs = "the screening's runs" if cell.screened else "a stack's runs"
    fresh = ", of fresh pairs alone where there are any" if cell.screened else ""
    return (
        f"{level} is the mean of {runs}, corrected for blocks in which all stacks were slow or fast; against best is "
        f"the difference within blocks{fresh}. Intervals {looks}."
    )


def _has_declared_blocks(cell: CellFinding) -> bool:
    return any(isinstance(s, DeclaredBlocks) for s in cell.statements)
