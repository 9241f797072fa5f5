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
    """The level fitted over stacks and blocks, in the unit of the metric; null when it was not measured."""
    low: float | None = None
    high: float | None = None
    runs: tuple[float | None, ...] = ()
    """The value of each valid run, in the order of `trials`."""


class Excluded(Finding):
    """A run that does not count, why, and which trial it was."""

    trial: str
    block: int
    reason: str


class DurabilityFinding(Finding):
    """Class from configuration; verdict and counts from crash trials, where there were any."""

    class_: str = Field(alias="class")
    """What the configuration promises about acknowledged commits."""
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
    """Valid runs."""
    excluded: tuple[Excluded, ...] = ()
    unsupported: str | None = None
    """Why this host cannot build it, and what would mend that."""
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
    """a over b, or a minus b where `scale` is `difference`."""
    low: float | None
    high: float | None
    level: float
    """Confidence of the interval, for example 0.95."""
    kind: Kind
    """Which data the interval rests on: all blocks of the screening, or fresh pairs."""
    verdict: Verdict
    """Of a against b, whichever direction of the metric is good."""
    pairs: int
    """Pairs that the estimate rests on."""
    needed_pairs: int | None = None
    """Additional pairs that would settle the margin, by the forecast."""
    margin: float | None = None
    """Within which the two count as practically equal: a share, or in the metric's unit; null if none was declared."""
    proven: bool = False
    """The interval excludes no difference, for the declared primary metric, with confirmation's fresh data."""
    smallest_provable: float | None = None
    """The smallest difference that so many pairs can prove: half width of the interval, as a share (ratio scale)."""
    acceptable_margin: float | None = None
    """The smallest margin within which the two are equal already."""
    sigma: float | None = None
    """Standard deviation of one paired difference, on the scale of the model (logarithm for ratios)."""
    warning: str = ""
    """A second estimate that disagrees; empty when there is none."""
    sentence: str = ""


class Chosen(Finding):
    name: str
    probability_within_margin: float | None = None
    """At least so probable; null before screening can say."""


class CellFinding(Finding):
    """One cell of the grid: its answer in words."""

    id: str
    script: str
    scale: int
    clients: int
    rate_tps: float | None = None
    """Scheduled transactions a second of an open-loop cell: latency at matched load."""
    ranking: tuple[str, ...]
    chosen: Chosen | None
    words: tuple[str, ...]
    """Sentences; names stand between backticks, verdicts between double asterisks."""


class CampaignFinding(Finding):
    name: str
    primary: str
    """The metric that was declared to decide."""
    margin: float
    """Share within which two stacks count as practically equal."""
    seed: int
    host: dict[str, Any]
    postgres_version: str
    """Of the server under test, as it says itself."""
    origin: str = "run"
    notices: tuple[str, ...] = ()
    """What a reader must know before any figure: imported, unpaired, functional only, ..."""
    machine_time_s: float = 0.0
    """Time that all trials took together."""
    rejected: dict[str, int] = {}
    """Counts of what an import rejected, by reason."""


class PublishedFinding(Finding):
    """What a study's author published for a stack, beside what was measured: only ratios can be compared."""

    study: str
    stack: str
    cell: str
    metric: str
    value: float | None
    """As published, in the unit of the metric."""
    baseline: str
    """Stack that both ratios refer to."""
    ratio: float | None
    """Published value over that of the baseline."""
    measured_ratio: float | None
    """The same ratio here; without interval where nothing is compared (functional only)."""
    measured_low: float | None = None
    measured_high: float | None = None
    approximate: bool = False
    """Read from text, not from a table."""
    other_scale: bool = False
    """Published for another scale than the one measured."""
    note: str = ""


class Findings(Finding):
    schema_: str = Field(REPORT_SCHEMA, alias="schema")
    campaign: CampaignFinding
    cells: tuple[CellFinding, ...]
    stacks: tuple[StackFinding, ...]
    comparisons: tuple[Comparison, ...]
    ranking: tuple[str, ...]
    """Best first, of the only cell or the first."""
    chosen: Chosen | None
    published: tuple[PublishedFinding, ...] = ()
    """Figures of the study that the campaign repeats, where it repeats one."""
    published_source: str = ""
    """Who published them, on what, and which statistic they are."""
