"""How the columns of a table of verdicts are to be read: which runs a level is of, and what a ratio rests on."""

from __future__ import annotations

from pgstrata.analyze.findings import CellFinding, Findings
from pgstrata.analyze.scale import metric_of
from pgstrata.analyze.statements import DeclaredBlocks
from pgstrata.report.hosts import hosts_of_cell


def reading_words(findings: Findings, cell: CellFinding, *, paired: bool) -> str:
    """`paired` says whether runs belong to blocks that all stacks share; those of some imports do not."""
    level = metric_of(findings.campaign.primary).title
    looks = "are of the declared blocks" if _has_declared_blocks(cell) else "hold whenever one looks"
    if hosts_of_cell(findings, cell) is not None:
        return f"{level} is a stack's level over the hosts, against best the mean of the hosts' own differences."
    if not paired:
        return f"{level} is the level of a stack's runs, against best the difference of two levels. Intervals {looks}."
    runs = "the screening's runs" if cell.screened else "a stack's runs"
    fresh = ", of fresh pairs alone where there are any" if cell.screened else ""
    return (
        f"{level} is the level of {runs} without what a block did to all stacks; against best is the difference within "
        f"blocks{fresh}. Intervals {looks}."
    )


def _has_declared_blocks(cell: CellFinding) -> bool:
    return any(isinstance(s, DeclaredBlocks) for s in cell.statements)
