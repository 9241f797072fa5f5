"""What analysis found: the types of `report --format json` (schema pgstrata.report/1, docs/reference/report-json.md).

Every number that a report shows is here or in the record; renderers compute nothing.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pgstrata.record.schema import REPORT_SCHEMA

MetricScale = Literal["ratio", "difference"]
Kind = Literal["screen", "confirm", "equivalence"]
Verdict = Literal["better", "worse", "equal", "undecided"]


class Finding(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class MetricFinding(Finding):
    """One metric of one stack: the estimate with its interval, and every run's own value."""

    estimate: float | None
    low: float | None = None
    high: float | None = None
    runs: tuple[float | None, ...] = ()


class Excluded(Finding):
    """A run that does not count, why, and which trial it was."""

    trial: str
    block: int
    reason: str


class DurabilityFinding(Finding):
    """Class from configuration; verdict and counts from crash trials, where there were any."""

    class_: str = Field(alias="class")
    reason: str = ""
    verdict: Literal["held", "lost", "corrupt", "unknown", "not_tested"] = "not_tested"
    states: int = 0
    lost: int = 0
    corrupt: int = 0
    unknown: int = 0
    lost_acknowledged_max: int | None = None
    first_counterexample: str | None = None


class StackFinding(Finding):
    """One stack in one cell of the grid."""

    name: str
    cell: str
    spec: str
    """Short notation."""
    n: int
    excluded: tuple[Excluded, ...] = ()
    unsupported: str | None = None
    metrics: dict[str, MetricFinding]
    durability: DurabilityFinding
    trials: tuple[str, ...] = ()
    """Trial ids behind `runs`, in the same order."""
    labels: tuple[str, ...] = ()
    """For example `checkpoint cost not included`, `functional only`, `imported`."""


class Comparison(Finding):
    """Stack a against stack b in one metric; `ratio` is exp(difference) on the ratio scale."""

    a: str
    b: str
    cell: str
    metric: str
    scale: MetricScale
    ratio: float | None
    low: float | None
    high: float | None
    level: float
    """Confidence of the interval, for example 0.95."""
    kind: Kind
    verdict: Verdict
    pairs: int
    needed_pairs: int | None = None
    """Additional pairs that would settle the margin, by the forecast."""
    proven: bool = False
    """The interval excludes no difference, for the declared primary metric, with confirmation's fresh data."""
    smallest_provable: float | None = None
    """The smallest difference that so many pairs can prove: half width of the interval, as a share (ratio scale)."""
    acceptable_margin: float | None = None
    """The smallest margin within which the two are equal already."""
    sigma: float | None = None
    """Standard deviation of one paired difference, on the scale of the model (logarithm for ratios)."""
    warning: str = ""
    sentence: str = ""


class Chosen(Finding):
    name: str
    probability_within_margin: float | None = None


class CellFinding(Finding):
    """One cell of the grid: its answer in words."""

    id: str
    script: str
    scale: int
    clients: int
    ranking: tuple[str, ...]
    chosen: Chosen | None
    words: tuple[str, ...]


class CampaignFinding(Finding):
    name: str
    primary: str
    margin: float
    seed: int
    host: dict[str, Any]
    postgres_version: str
    origin: str = "run"
    notices: tuple[str, ...] = ()
    """What a reader must know before any figure: imported, unpaired, functional only, foreign load seen, ..."""
    machine_time_s: float = 0.0
    rejected: dict[str, int] = {}
    """Counts of what an import rejected, by reason."""


class Findings(Finding):
    schema_: str = Field(REPORT_SCHEMA, alias="schema")
    campaign: CampaignFinding
    cells: tuple[CellFinding, ...]
    stacks: tuple[StackFinding, ...]
    comparisons: tuple[Comparison, ...]
    ranking: tuple[str, ...]
    """Best first, of the only cell or the first."""
    chosen: Chosen | None
