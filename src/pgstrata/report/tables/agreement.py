"""Outcome of a repeated comparison: does each measured ratio agree with the published one, and if not, why.

Published ratios have no intervals, so a rule that is fixed here decides: ratios within a factor of ALIKE are alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from pgstrata.analyze.findings import DiskFinding, Findings, PublishedFinding
from pgstrata.analyze.stats.ageing import ranks
from pgstrata.errors import RecordError
from pgstrata.report.sentences.figures import render_factor, render_number
from pgstrata.report.tables.pairs import Index

ALIKE = 1.2
"""Factor within which two ratios agree."""
FEWEST_RANKED = 4
"""Arms that a rank correlation needs: the interval divides by their number less three."""
NO_INTERVAL = "no interval: single runs, too few, or an emulated machine"
_NORMAL_95 = 1.959963984540054

Disks = Mapping[tuple[str, str], Sequence[DiskFinding]]
"""Modelled disks by cell and stack."""


class _Named(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: str


class _OfStack(_Named):
    cell: str
    disks: tuple[DiskFinding, ...] = ()


class StudyReport(BaseModel):
    """Parts of a JSON report, of whatever version, that the table needs."""

    model_config = ConfigDict(extra="ignore")

    campaign: _Named
    stacks: tuple[_OfStack, ...]
    published: tuple[PublishedFinding, ...]

    @classmethod
    def of(cls, findings: Findings, where: str) -> StudyReport:
        """Return what the table needs of these findings; RecordError if they repeat no study."""
        _refuse_unpublished(findings.published, where)
        return cls.model_validate(findings.model_dump(by_alias=True))

    def rows(self) -> tuple[PublishedFinding, ...]:
        return with_outcomes(self.published, {(s.cell, s.name): s.disks for s in self.stacks})


def read_report(file: Path) -> StudyReport:
    """Read a JSON report; RecordError if it is none, or repeats no study."""
    try:
        report = StudyReport.model_validate_json(file.read_bytes())
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror}") from None
    except ValidationError as error:
        raise RecordError(
            f"{file} is no JSON report of a campaign: {error.errors()[0]['msg']}",
            hint="pgstrata report DIR --json writes one",
        ) from None
    _refuse_unpublished(report.published, str(file))
    return report


def _refuse_unpublished(rows: Sequence[PublishedFinding], where: str) -> None:
    if not rows:
        raise RecordError(f"{where} has no published figures", hint="pgstrata studies run NAME repeats a study")


def with_outcomes(rows: Iterable[PublishedFinding], disks: Disks) -> tuple[PublishedFinding, ...]:
    """Return the rows with their outcomes and reasons."""
    rows = tuple(rows)
    told = (_told(row, rows, disks) for row in rows)
    return tuple(
        row.model_copy(update={"outcome": outcome, "reason": reason})
        for row, (outcome, reason) in zip(rows, told, strict=True)
    )


def rank_correlation(rows: Sequence[PublishedFinding]) -> tuple[float, float, float] | None:
    """Spearman's rank correlation of published and measured ratios, with its 95 % interval (Bonett and Wright,
    Psychometrika 65, 2000); None with fewer than FEWEST_RANKED arms, where all ratios of one side are alike, and for
    the very same or the reverse order, which have no such interval."""
    pairs = [
        (row.ratio, row.measured_ratio) for row in rows if row.ratio is not None and row.measured_ratio is not None
    ]
    if len(pairs) < FEWEST_RANKED:
        return None
    published, measured = (ranks(np.asarray(values)) for values in zip(*pairs, strict=True))
    if not np.ptp(published) or not np.ptp(measured):
        return None
    rho = float(np.corrcoef(published, measured)[0, 1])
    if abs(rho) > 1 - 1e-12:
        return None
    half = _NORMAL_95 * math.sqrt((1 + rho * rho / 2) / (len(pairs) - 3))
    return rho, math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)


def table_lines(report: StudyReport) -> list[str]:
    """Return the table of a report in markdown, a line of counts, and the rank correlation."""
    rows = report.rows()
    cells = list(dict.fromkeys(row.cell for row in rows))
    lines = ["| arm | to | published | measured | outcome | reason |", "| --- | --- | ---: | ---: | --- | --- |"]
    for row in rows:
        arm = f"{row.stack}, {row.cell}" if len(cells) > 1 else row.stack
        published = f"{'about ' if row.approximate and row.ratio is not None else ''}{render_factor(row.ratio)}"
        fields = (arm, row.baseline, published, render_measured(row), row.outcome or "", row.reason)
        lines.append("| " + " | ".join(field.replace("|", "\\|") for field in fields) + " |")
    others = [row for row in rows if row.outcome is not None]
    counted = (
        f"{sum(row.outcome == name for row in others)} {name}" for name in ("agrees", "differs", "cannot be told")
    )
    lines += ["", f"{len(others)} arms: {', '.join(counted).replace('agrees', 'agree').replace('differs', 'differ')}."]
    for cell in cells:
        found = rank_correlation([row for row in rows if row.cell == cell])
        if found is not None:
            rho, low, high = found
            where = f" in {cell}" if len(cells) > 1 else ""
            lines[-1] += f" Rank correlation{where} {rho:.2f} ({low:.2f} ... {high:.2f})."
    return lines


def render_measured(row: PublishedFinding) -> str:
    """Format the measured ratio with its interval, if it has one."""
    interval = ""
    if row.measured_low is not None and row.measured_high is not None:
        interval = f" ({render_number(row.measured_low)} … {render_number(row.measured_high)})"
    return render_factor(row.measured_ratio) + interval


def _told(row: PublishedFinding, rows: Sequence[PublishedFinding], disks: Disks) -> tuple[str | None, str]:
    """Return outcome and reason; no outcome for the baseline itself."""
    if row.stack == row.baseline:
        return None, ""
    if row.ratio is None:
        return "cannot be told", "no ratio was published"
    low, high = row.measured_low, row.measured_high
    if row.measured_ratio is None or low is None or high is None:
        return "cannot be told", NO_INTERVAL
    within = row.ratio / ALIKE <= low and high <= row.ratio * ALIKE
    if within or (low <= row.ratio <= high and high / low <= ALIKE * ALIKE):
        return "agrees", ""
    if high < row.ratio / ALIKE or row.ratio * ALIKE < low:
        return "differs", _reason(row, rows, disks)
    return "cannot be told", f"the interval spans a factor of {render_number(high / low)}: more runs would tell"


def _reason(row: PublishedFinding, rows: Sequence[PublishedFinding], disks: Disks) -> str:
    """Return what this campaign's own figures say on a difference."""
    parts = []
    alike = [r for r in rows if (r.cell, r.baseline) == (row.cell, row.baseline) and r.measured_ratio is not None]
    fastest = max(alike, key=lambda r: r.measured_ratio or 0.0)
    if row.ratio is not None and row.ratio > (fastest.measured_high or fastest.measured_ratio or 0.0):
        most = render_factor(fastest.measured_ratio)
        parts.append(f"no arm reaches more than {most} here ({fastest.stack})")
    here, there = (disks.get((row.cell, name), ()) for name in (row.stack, row.baseline))
    if here or there:
        parts.append(f"{_account(row.stack, here)}, {_account(row.baseline, there)}")
    if row.other_scale:
        parts.append("published for another scale")
    return "; ".join(parts) or "nothing recorded tells why"


def _account(stack: str, disks: Sequence[DiskFinding]) -> str:
    """Return how busy the busiest disk of a stack was, and what its transactions cost it."""
    if not disks:
        return f"{stack} has no disk"
    busiest = max(disks, key=lambda disk: disk.busy_share)
    flushes = busiest.flushes_per_transaction
    text = f"the disk of {stack} is busy {busiest.busy_share:.0%} of the time"
    return text if flushes is None else f"{text} with {render_number(flushes)} flushes a transaction"


def add_published(findings: Findings, source: str, figures: Iterable[PublishedFinding]) -> Findings:
    """Return the findings with each published figure next to the measured ratio, and whether the two agree.

    That ratio comes from the comparison, with its interval. If nothing is compared (functional only), it is the
    quotient of the two estimates, without an interval.
    """
    index = Index(findings)
    disks = {(stack.cell, stack.name): stack.disks for stack in findings.stacks}
    rows = with_outcomes((figure.model_copy(update=_measured(index, figure)) for figure in figures), disks)
    return findings.model_copy(update={"published": rows, "published_source": source})


def _measured(index: Index, figure: PublishedFinding) -> dict[str, float | None]:
    pair = index.pair(figure.cell, figure.stack, figure.baseline, figure.metric)
    if pair is None or pair.scale != "ratio":
        return {"measured_ratio": index.quotient(figure.cell, figure.stack, figure.baseline, figure.metric)}
    return {"measured_ratio": pair.ratio, "measured_low": pair.low, "measured_high": pair.high}
