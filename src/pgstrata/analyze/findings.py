"""What analysis found: the types of `report --format json` (schema pgstrata.report/1, docs/reference/report-json.md).

Every number that a report shows is here or in the record; renderers compute nothing.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pgstrata.analyze.finding import Cause, Finding, Kind, MetricScale, Source, TimeKind, Verdict
from pgstrata.analyze.statements import Statement
from pgstrata.record.cluster import ClusterFound, PowerCutNodes
from pgstrata.record.schema import REPORT_SCHEMA
from pgstrata.spec.crash_trials import ScriptName


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
    ignored_flushes: str = "0"
    """What the disk of the crash trials did about flushes: ignored `all`, or the last so many."""
    script: ScriptName = "ledger"
    """What the sessions of the crash trials wrote: the ledger, or pgbench's `tpcb-like`."""
    fault: str = ""
    """What was made to fail while PostgreSQL wrote, before power was lost; empty where power cuts were all."""
    panicked: bool = False
    """Whether PostgreSQL ended itself then."""
    amcheck: bool | None = None
    """Whether the server of the crash trials had it to look at tables and indexes; null without crash trials."""
    nested: int = 0
    """Of the states, those in which power was lost again during a recovery."""
    cluster: ClusterFound | None = None
    """Of a cluster: what the loss of nodes takes; `states` are the failures that were carried out."""
    power: PowerCutNodes | None = None
    """Of a cluster all of whose nodes lost power at once, in so many ways as there are `states`."""
    untested: str = ""
    """Why there is no verdict, where power cuts were asked for."""


class DiskFinding(Finding):
    """What a modelled disk of a stack did by its own account: sums over the runs, by time or by transaction."""

    disk: str
    model: str
    stretch: float
    runs: int
    reads_per_s: float
    writes_per_s: float
    flushes_per_s: float
    flushes_per_transaction: float | None
    seeks_per_transaction: float | None
    """Movements of an arm; 0 on a medium that has none."""
    queue: float
    """Requests under way, on average."""
    busy_share: float
    seek_share: float
    """Of the time of the runs."""
    errors: int
    late_median_percent: int | None
    late_p99_percent: int | None
    """How late answers left the program that models the disk, in percent of the time that the model gives them."""


class NodeFinding(Finding):
    """What a node of a cluster did: rates over the time of the runs, and of the lags the median run."""

    node: str
    host: str
    """Where it is not the primary's; else empty."""
    runs: int
    processors: float | None
    """That its server's processes used, on average."""
    received_bytes_per_s: float | None
    sent_bytes_per_s: float | None
    disk_read_bytes_per_s: float | None
    disk_written_bytes_per_s: float | None
    write_lag_ms: float | None
    flush_lag_ms: float | None
    replay_lag_ms: float | None
    replay_lag_max_ms: float | None
    """Of all runs."""
    behind_max_bytes: int | None
    reads_share: float | None
    writes_share: float | None
    """Of the statements that a pooler sent to all nodes; None without one, and where it sent none."""
    checked_reads: int | None
    stale_reads: int | None
    """Reads on this standby right after a commit was acknowledged, of all runs, and how many of them lacked it."""
    stale_median_ms: float | None
    stale_max_ms: float | None
    """Of the stale ones: how long after the acknowledgement a read had it; the median of the runs' medians, and the
    longest."""
    watched_commits: int | None
    released_commits: int | None
    """Commits that waited for standbys, of all runs, and those whose last missing acknowledgement was this one's."""
    release_median_ms: float | None
    release_p99_ms: float | None
    """Of those: from the record of the commit to that acknowledgement; the median of the runs' medians, and the largest
    of their 99th percentiles."""


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
    disks: tuple[DiskFinding, ...] = ()
    """Of its modelled disks; none for disks that keep no account."""
    nodes: tuple[NodeFinding, ...] = ()
    """Of a cluster."""


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
    """Further pairs until a verdict, if the difference stays as it is."""
    needed_s: float | None = None
    """Machine time of those pairs; null for imports, which cannot be continued."""
    source: Source = "screening"
    """Whose runs it rests on."""
    leaning: Literal["better", "worse"] | None = None
    """Direction of a proven difference between two that are equal within the margin."""
    margin: float | None = None
    """Within which the two count as practically equal: a share, or in the metric's unit; null if none was declared."""
    one_look: bool = False
    """The interval holds for a declared number of blocks and not after more of them; others hold at any look."""
    proven: bool = False
    """The interval excludes no difference, for the declared primary metric, with confirmation's fresh data."""
    smallest_provable: float | None = None
    """The smallest difference that these pairs can prove: half width of the interval, as a share (ratio scale)."""
    acceptable_margin: float | None = None
    """The smallest margin within which the two are equal already."""
    sigma: float | None = None
    """Standard deviation of one paired difference, on the scale of the model (logarithm for ratios)."""
    cross_check: float | None = None
    """The Hodges-Lehmann estimate of the same ratio or difference, where it differs by more than half a margin."""


class Chosen(Finding):
    """The best of its durability class; null while a verdict against any other stack of that class is open."""

    name: str
    class_: str = Field(alias="class")
    """The durability that it was chosen for."""
    probability_within_margin: float | None = None
    """Lower bound of the probability, valid as its intervals are; null where it is the only stack of its class."""
    left_behind: tuple[str, ...] = ()
    """Stacks of its class without a verdict of their own, which screening left behind the runner-up."""


class CellFinding(Finding):
    """One cell of the grid: its answer."""

    id: str
    script: str
    """Without folder and ending, where it is a file."""
    scale: int
    scaled: bool = True
    """False where the user's own database was loaded, which has no scale."""
    clients: int
    rate_tps: float | None = None
    """Scheduled transactions a second of an open-loop cell: latency at matched load."""
    ranking: tuple[str, ...]
    chosen: Chosen | None
    statements: tuple[Statement, ...]
    """What is said, the most important first."""
    screened: bool = False
    """Levels are of the screening's runs, and a pair that was confirmed is judged by its fresh runs alone."""


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
    rejected: dict[str, int] = Field(default_factory=dict)
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


class EventTime(Finding):
    """Session time in one wait event."""

    name: str
    """As the server calls it; `Running` is no wait, `idle` is between statements."""
    ms: float
    """A transaction."""
    share: float
    """Of the session time."""


class TimePart(Finding):
    """Session time of one kind; those of a profile add up to its `time_ms`."""

    kind: TimeKind
    ms: float
    """A transaction, mean of the runs."""
    low: float | None
    """Of the 95 % t interval over the runs."""
    high: float | None
    share: float
    """Of the session time."""
    events: tuple[EventTime, ...]
    """The wait events with the most time, at most three."""


class FigureMean(Finding):
    """Mean over runs, with the 95 % t interval; null of a single run."""

    mean: float
    low: float | None
    high: float | None


class StackProfile(Finding):
    """Where the sessions' time went on one stack in one cell, and what its transactions cost the machine."""

    name: str
    cell: str
    runs: int
    """That were read: the last ones, where there are many."""
    time_ms: float
    """Session time a transaction: clients over transactions a second."""
    parts: tuple[TimePart, ...]
    figures: dict[str, FigureMean]
    """What was not recorded is left out."""
    mostly: Cause | None = None
    """What at least half of the session time went to, as far as the record shows it."""
    behind_locks: TimePart | None = None
    """Where locks take the most: what sessions did most that waited neither for locks nor for the client."""


class WhyPart(Finding):
    """How much more session time of one kind a transaction takes on one stack than on the other."""

    kind: TimeKind
    cause: Cause
    difference_ms: float
    low: float | None
    high: float | None
    p: float
    """Of no difference: paired t test over the blocks."""
    beyond_noise: bool
    """By Holm's procedure at 5 % over every test of the cell."""
    share: float
    """Of the whole difference in session time a transaction."""
    a_share: float
    """Of the session time on stack a, in the blocks of both."""
    b_share: float


class FigurePair(Finding):
    """A figure of both stacks whose intervals lie apart."""

    name: str
    a: float
    b: float


class Why(Finding):
    """Why transactions take longer on stack a than on b, the best: exploratory, an account of recorded time."""

    a: str
    b: str
    cell: str
    a_ms: float
    """Session time a transaction on stack a, mean over the blocks of both; profiles have that of all its runs."""
    b_ms: float
    difference_ms: float
    low: float | None
    high: float | None
    p: float
    """Of no difference: paired t test over the blocks, of the logarithms of the times."""
    beyond_noise: bool
    """Whether there is anything to explain; without it no cause is named."""
    pairs: int
    tests: int
    """In the cell; the error rate is shared among them."""
    cause: Cause | None
    """Of the part that accounts for most, where it is at least half; null where there is nothing to explain."""
    parts: tuple[WhyPart, ...]
    """Those that account for most first."""
    evidence: tuple[FigurePair, ...] = ()
    """Of the figures that belong to the cause, those that differ clearly."""


class HostFinding(Finding):
    """A stack on one of several hosts; `ratio` and `verdict` are against the first of the ranking, there alone."""

    host: str
    stack: str
    runs: int
    level: float | None
    """By this host's own blocks, in the unit of the metric; null where it was not measured often enough."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "undecided"
    disagrees: bool = False  # with the other hosts, by more than the runs scatter


class HostsFinding(Finding):
    """Hosts and stacks of one cell of a campaign on several hosts."""

    cell: str
    metric: str
    scale: MetricScale
    against: str
    rows: tuple[HostFinding, ...]
    spread: dict[str, float | None] = Field(default_factory=dict)
    """By stack: standard deviation of its difference from host to host, on the scale of the model, or null."""


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
    """Who published them, measured on what, and which statistic they are."""
    profiles: tuple[StackProfile, ...] = ()
    """Of every stack and cell whose sessions were recorded."""
    whys: tuple[Why, ...] = ()
    """Of every ranked stack against the best of its cell."""
    hosts: tuple[HostsFinding, ...] = ()
    """Of every cell of a campaign on several hosts."""
