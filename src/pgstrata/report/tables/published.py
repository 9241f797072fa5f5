"""Figures that a study's author published, joined to the measured ones: only ratios can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pgstrata.analyze.findings import Findings, PublishedFinding
from pgstrata.report.tables.agreement import with_outcomes
from pgstrata.report.tables.pairs import Index


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure: the author's value for a stack, in one cell of this campaign."""

    stack: str
    cell: str
    metric: str
    value: float | None
    baseline: str
    ratio: float | None
    approximate: bool = False
    other_scale: bool = False
    note: str = ""


def add_published(findings: Findings, study: str, source: str, figures: Iterable[PublishedFigure]) -> Findings:
    """Return the findings with each published figure next to the measured ratio, and whether the two agree.

    That ratio comes from the comparison, with its interval. If nothing is compared (functional only), it is the
    quotient of the two estimates, without an interval.
    """
    index = Index(findings)
    disks = {(stack.cell, stack.name): stack.disks for stack in findings.stacks}
    rows = with_outcomes((_joined(index, study, figure) for figure in figures), disks)
    return findings.model_copy(update={"published": rows, "published_source": source})


def _joined(index: Index, study: str, figure: PublishedFigure) -> PublishedFinding:
    pair = index.pair(figure.cell, figure.stack, figure.baseline, figure.metric)
    compared = pair is not None and pair.scale == "ratio"
    return PublishedFinding(
        study=study,
        **vars(figure),
        measured_ratio=pair.ratio if pair and compared else _quotient(index, figure),
        measured_low=pair.low if pair and compared else None,
        measured_high=pair.high if pair and compared else None,
    )


def _quotient(index: Index, figure: PublishedFigure) -> float | None:
    estimates = []
    for name in (figure.stack, figure.baseline):
        stack = index.stack(figure.cell, name)
        found = stack.metrics.get(figure.metric) if stack else None
        estimates.append(found.estimate if found else None)
    upper, lower = estimates
    return None if upper is None or not lower else upper / lower
