"""Figures that a study's author published, to be shown beside the measured ones: only ratios can be compared."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.report.pairs import Index


@dataclass(frozen=True)
class Published:
    """The published throughput of each arm, by the name of the stack that reproduces it."""

    study: str
    source: str
    baseline: str
    """Stack that the ratios refer to."""
    tps: dict[str, float]
    statistic: str = ""
    """What the author gave: `maximum of 3`, `mean of 10`."""
    notes: dict[str, str] | None = None


@dataclass(frozen=True)
class PublishedRow:
    """One arm: ratio to the baseline as published, and as measured here."""

    name: str
    published_tps: float
    published_ratio: float
    ratio: float | None
    low: float | None
    high: float | None
    note: str = ""


def published_rows(index: Index, cell: str, published: Published) -> tuple[PublishedRow, ...]:
    """A row for each published arm, measured here or not; the ratio here is the comparison's, never a new one."""
    base = published.tps[published.baseline]
    rows = []
    for name, tps in published.tps.items():
        pair = index.pair(cell, name, published.baseline, "tps")
        rows.append(
            PublishedRow(
                name=name,
                published_tps=tps,
                published_ratio=tps / base,
                ratio=1.0 if name == published.baseline else pair.ratio if pair else None,
                low=pair.low if pair else None,
                high=pair.high if pair else None,
                note=(published.notes or {}).get(name, ""),
            )
        )
    return tuple(rows)
