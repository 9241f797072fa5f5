"""Results of the analysis: the types of `report --format json` (schema pgstrata.report/1,
docs/reference/report-json.md).

Every number that a report shows is here or in the record; renderers compute nothing.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pgstrata.analyze.campaign.statements import PairFigures, Statement
from pgstrata.analyze.finding import (
    Cause,
    Finding,
    Kind,
    MetricScale,
    TimeKind,
    Transactions,
    TuningFinding,
    Uncounted,
    Verdict,
)
from pgstrata.record.crash import CrashFound
from pgstrata.record.schema import REPORT_SCHEMA
from pgstrata.spec.crash_request import ScriptName


class MetricFinding(Finding):
    """One metric of one stack: the estimate with its interval, and every run's own value."""

    estimate: float | None
    """The level fitted over stacks and blocks, in the unit of the metric; null if it was not measured."""
    low: float | None = None
    high: float | None = None
    runs: tuple[float | None, ...] = ()
    """The value of each valid run, in the order of `trials`."""


class Excluded(Finding):
    """A run that does not count, with the reason and its trial."""

    trial: str
    block: int
    reason: str


class DurabilityFinding(Finding, CrashFound):
    """Class from the configuration; verdict and counts from crash trials, if there were any."""

    class_: str = Field(alias="class")
    """Durability of acknowledged commits that the configuration promises."""
    reason: str = ""
    verdict: Literal["held", "repair", "lost", "corrupt", "unknown", "not_tested"] = "not_tested"
    lost_acknowledged_max: int | None = None
    ignored_flushes: str = "0"
    """Flushes that the disk of the crash trials ignored: `all`, or the number of last ones."""
    script: ScriptName = "ledger"
    """Workload of the sessions in the crash trials: the ledger, or `tpcb-like`."""
    fault: str = ""
    """Fault injected while PostgreSQL wrote, before power was lost; empty if power cuts were the only fault."""
    amcheck: bool | None = None
    """True if the server of the crash trials had amcheck to check tables and indexes; null without crash trials."""
    untested: str = ""
    """Reason why there is no verdict although power cuts were requested."""


class DiskFinding(Finding):
    """Activity of a modelled disk of a stack, by its own counters: sums over the runs, by time or by transaction."""

    disk: str
    model: str
    stretch: float
    runs: int
    reads_per_s: float
    writes_per_s: float
    flushes_per_s: float
    flushes_per_transaction: float | None
    seeks_per_transaction: float | None
    """Movements of an arm; 0 on a medium without one."""
    queue: float
    """Requests in flight, on average."""
    busy_share: float
    seek_share: float
    """Busy and seeking time, as shares of the time of the runs."""
    errors: int
    late_median_percent: int | None
    late_p99_percent: int | None
    """Lateness of answers as they left the disk model: median and 99th percentile, in percent of their modelled
    time."""


class NodeFinding(Finding):
    """Activity of a node of a cluster: rates over the time of the runs; the lags are those of the median run."""

    node: str
    host: str
    """Host of the node if it is not the primary's; else empty."""
    runs: int
    processors: float | None
    """Processors used by its server's processes, on average."""
    received_bytes_per_s: float | None
    sent_bytes_per_s: float | None
    disk_read_bytes_per_s: float | None
    disk_written_bytes_per_s: float | None
    write_lag_ms: float | None
    flush_lag_ms: float | None
    replay_lag_ms: float | None
    replay_lag_max_ms: float | None
    """Maximum over all runs."""
    behind_max_bytes: int | None
    reads_share: float | None
    writes_share: float | None
    """Share of the statements that a pooler sent to all nodes; null without one, and if it sent none."""
    checked_reads: int | None
    stale_reads: int | None
    """Reads on this standby right after a commit was acknowledged, in all runs, and the number of them without that
    commit."""
    stale_median_ms: float | None
    stale_max_ms: float | None
    """Time from the acknowledgement until a read returned the commit, for the stale reads: the median of the runs'
    medians, and the longest."""
    watched_commits: int | None
    released_commits: int | None
    """Commits that waited for standbys, in all runs, and those whose last missing acknowledgement came from this
    one."""
    release_median_ms: float | None
    release_p99_ms: float | None
    """Time from the record of such a commit to that acknowledgement: the median of the runs' medians, and the largest
    of their 99th percentiles."""


class ScriptFinding(Finding):
    """One script of a mix: sums over the runs."""

    script: str
    """Name of the builtin script; of a file without folder and extension."""
    weight: int | None
    """Weight in the mix; null if an import does not know it."""
    runs: int
    transactions: int
    share: float | None
    """Share of the transactions of all scripts; null without transactions."""
    tps: float | None
    latency_avg_ms: float | None
    latency_stddev_ms: float | None
    """Mean and standard deviation of the latency of its transactions; null where a run lacks them, as the standard
    deviation in slices."""
    latency_p99_ms: float | None
    """Mean over the runs of the 99th percentile of each; null where a run has no log of single transactions."""
    failed_share: float | None
    """Share of its attempted transactions that failed or were skipped."""


class CostFinding(Finding):
    """Cost of 10^6 committed transactions of a stack, by the prices of the campaign."""

    currency: str
    per_hour: float
    """Price of an hour of the host and the devices."""
    million: float
    low: float | None
    high: float | None
    """Bounds that follow from those of the throughput; null where that has none."""


class StackFinding(Finding):
    """One stack in one cell of the grid."""

    name: str
    cell: str
    spec: str
    """The stack in short notation."""
    n: int
    """Valid runs."""
    excluded: tuple[Excluded, ...] = ()
    unsupported: str | None = None
    """Reason why this host cannot build it, and a remedy."""
    metrics: dict[str, MetricFinding]
    durability: DurabilityFinding
    trials: tuple[str, ...] = ()
    """Trial ids behind `runs`, in the same order."""
    labels: tuple[str, ...] = ()
    """For example `checkpoint cost not included`, `functional only`, `imported`."""
    transactions: Transactions | None = None
    """Outcome of the transactions of its runs; null if an import does not know it."""
    scripts: tuple[ScriptFinding, ...] = ()
    """Scripts of its workload, if that is a mix."""
    disks: tuple[DiskFinding, ...] = ()
    """Its modelled disks; disks without counters are left out."""
    nodes: tuple[NodeFinding, ...] = ()
    """Its nodes, for a cluster."""
    cost: CostFinding | None = None
    """Null without a price, and without a throughput."""


class Comparison(PairFigures):
    """Stack a against stack b in one metric; `ratio` is exp(difference) on the ratio scale."""

    a: str
    b: str
    cell: str
    scale: MetricScale
    ratio: float | None
    """a over b, or a minus b where `scale` is `difference`."""
    level: float
    """Confidence of the interval, for example 0.95."""
    kind: Kind
    """Data that the interval rests on: all blocks of the screening, or fresh pairs."""
    verdict: Verdict
    """Verdict on a against b, independent of the direction in which the metric is better."""
    pairs: int
    """Number of pairs behind the estimate."""
    needed_pairs: int | None = None
    """Further pairs until a verdict, if the difference stays as it is."""
    needed_s: float | None = None
    """Machine time of those pairs; null for imports, which cannot be continued."""
    margin: float | None = None
    """Margin within which the two count as practically equal: a share, or in the metric's unit; null if none was
    declared."""
    one_look: bool = False
    """True if the interval holds for a declared number of blocks and not after more; other intervals hold at any
    look."""
    proven: bool = False
    """True if the interval excludes no difference, for the declared primary metric, in runs of this campaign."""
    smallest_provable: float | None = None
    """The smallest difference that these pairs can prove: half width of the interval, as a share (ratio scale)."""
    sigma: float | None = None
    """Standard deviation of one paired difference, on the scale of the model (logarithm for ratios)."""
    cross_check: float | None = None
    """The Hodges-Lehmann estimate of the same ratio or difference, if it differs by more than half a margin."""


class Chosen(Finding):
    """The best of its durability class; null while a verdict against any other stack of that class is open."""

    name: str
    class_: str = Field(alias="class")
    """The durability that it was chosen for."""
    probability_within_margin: float | None = None
    """Lower bound of the probability, valid like the intervals; null for the only stack of its class."""
    left_behind: tuple[str, ...] = ()
    """Stacks of its class without a verdict of their own, ranked below the runner-up by screening."""


class CellFinding(Finding):
    """One cell of the grid: its answer."""

    id: str
    script: str
    """Name of the script; of a file without folder and extension."""
    scale: int
    scaled: bool = True
    """False if the user's own database, which has no scale, was loaded."""
    clients: int
    rate_tps: float | None = None
    """Scheduled transactions per second of an open-loop cell: latency at matched load."""
    ranking: tuple[str, ...]
    chosen: Chosen | None
    statements: tuple[Statement, ...]
    """Statements on the cell, the most important first."""
    screened: bool = False
    """True if levels are of the screening's runs; a confirmed pair is judged by its fresh runs alone."""


class CampaignFinding(Finding):
    name: str
    wanted_tps: float | None = None
    """`price.rate`: transactions a second to provide at the lowest price."""
    primary: str
    """The metric that was declared to decide."""
    margin: float
    """Share within which two stacks count as practically equal."""
    seed: int
    host: dict[str, Any]
    postgres_version: str
    """Version of the server under test, as reported by the server."""
    origin: str = "run"
    notices: tuple[str, ...] = ()
    """Notices that a reader must know before any figure: imported, unpaired, functional only, ..."""
    machine_time_s: float = 0.0
    """Total time of all trials."""
    rejected: dict[str, int] = Field(default_factory=dict)
    """Number of items that an import rejected, by reason."""


class PublishedFinding(Finding):
    """Published figure of a study's author for a stack, next to the measured one: only ratios can be compared."""

    study: str
    stack: str
    cell: str
    metric: str
    value: float | None
    """The published value, in the unit of the metric."""
    baseline: str
    """Stack that both ratios are relative to."""
    ratio: float | None
    """Published value over that of the baseline."""
    measured_ratio: float | None = None
    """The same ratio in this campaign; without interval if nothing is compared (functional only)."""
    measured_low: float | None = None
    measured_high: float | None = None
    approximate: bool = False
    """Read from text, not from a table."""
    other_scale: bool = False
    """True if the figure was published for another scale than the measured one."""
    note: str = ""
    outcome: Literal["agrees", "differs", "cannot be told"] | None = None
    """Agreement of the measured ratio with the published one; null for the baseline."""
    reason: str = ""
    """Explanation of a difference by this campaign's own figures, or of what is missing."""


class EventTime(Finding):
    """Session time in one wait event."""

    name: str
    """Name in the server; `Running` is no wait, `idle` is between statements."""
    ms: float
    """Milliseconds per transaction."""
    share: float
    """Share of the session time."""


class TimePart(Finding):
    """Session time of one kind; the kinds of a profile add up to its `time_ms`."""

    kind: TimeKind
    ms: float
    """Milliseconds per transaction, mean of the runs."""
    low: float | None
    """Bounds of the 95 % t interval over the runs."""
    high: float | None
    share: float
    """Share of the session time."""
    events: tuple[EventTime, ...]
    """The wait events with the most time, at most three."""


class FigureMean(Finding):
    """Mean over runs, with the 95 % t interval; its bounds are null for a single run."""

    mean: float
    low: float | None
    high: float | None


class StackProfile(Finding):
    """Distribution of the sessions' time on one stack in one cell, and the cost of its transactions for the machine."""

    name: str
    cell: str
    runs: int
    """Number of runs read: the last ones, if there are many."""
    time_ms: float
    """Session time per transaction: clients over transactions per second."""
    parts: tuple[TimePart, ...]
    figures: dict[str, FigureMean]
    """Figures by name, without those that were not recorded."""
    mostly: Cause | None = None
    """Cause of at least half of the session time, as far as the record shows it."""
    behind_locks: TimePart | None = None
    """If locks take the most: the largest kind of time of sessions that waited neither for locks nor for the client."""


class WhyPart(Finding):
    """Additional session time of one kind per transaction on one stack compared with the other."""

    kind: TimeKind
    cause: Cause
    difference_ms: float
    low: float | None
    high: float | None
    p: float
    """p of no difference: paired t test over the blocks."""
    beyond_noise: bool
    """True if significant by Holm's procedure at 5 % over every test of the cell."""
    share: float
    """Share of the whole difference in session time per transaction."""
    a_share: float
    """Share of the session time on stack a, in the blocks of both."""
    b_share: float


class FigurePair(Finding):
    """A figure of both stacks whose intervals do not overlap."""

    name: str
    a: float
    b: float


class Why(Finding):
    """Reasons why transactions take longer on stack a than on b, the best: exploratory, from recorded time."""

    a: str
    b: str
    cell: str
    a_ms: float
    """Session time per transaction on stack a, mean over the blocks of both; profiles have that of all its runs."""
    b_ms: float
    difference_ms: float
    low: float | None
    high: float | None
    p: float
    """p of no difference: paired t test over the blocks, of the logarithms of the times."""
    beyond_noise: bool
    """True if there is a difference to explain; otherwise no cause is named."""
    pairs: int
    tests: int
    """Number of tests in the cell; the error rate is divided among them."""
    cause: Cause | None
    """Cause of the largest part, if it is at least half; null if there is nothing to explain."""
    parts: tuple[WhyPart, ...]
    """Parts of the difference, the largest first."""
    uncounted: Uncounted = Field(default_factory=dict)
    """The same as in comparisons."""
    evidence: tuple[FigurePair, ...] = ()
    """Figures that belong to the cause and differ clearly."""


class HostFinding(Finding):
    """A stack on one of several hosts; `ratio` and `verdict` compare it with the first of the ranking, on that host
    alone."""

    host: str
    stack: str
    runs: int
    level: float | None
    """Level by this host's own blocks, in the unit of the metric; null if it was not measured often enough."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "undecided"
    disagrees: bool = False  # differs from the other hosts by more than the runs scatter


class HostsFinding(Finding):
    """Hosts and stacks of one cell of a campaign on several hosts."""

    cell: str
    metric: str
    scale: MetricScale
    against: str
    rows: tuple[HostFinding, ...]
    spread: dict[str, float | None] = Field(default_factory=dict)
    """Standard deviation of a stack's difference from host to host, on the scale of the model, or null; by stack."""


class SliceEffect(Finding):
    """One test for an effect that would bias or blur slices."""

    what: Literal["age", "place", "predecessor", "memory"]
    """Age of a build: change against the other stacks from one slice to the next. Place: first turn of a round against
    the last. Predecessor: turns right after the stack against those after others. Memory: correlation with the block
    before."""
    stack: str
    """Empty for the place, which concerns all."""
    amount: float | None
    """A ratio, of memory the correlation; null if the order does not show it."""
    p: float | None
    """Over all looks and stacks; null before the first reading."""
    level: float
    told: bool
    """True if p is below the level, which was set beforehand."""


class SlicesFinding(Finding):
    """Evidence on the slices of a cell: exploratory tests, and components of the scatter of a pair of stacks."""

    cell: str
    blocks: int
    slices: int
    """Turns of each stack in a block."""
    next_reading: int | None
    """Number of blocks at which the tests are read next; null after the last reading."""
    effects: tuple[SliceEffect, ...]
    between: float | None
    """Standard deviation from build to build (logarithm); null with too few blocks, like its 90 % interval."""
    between_low: float | None
    between_high: float | None
    within: float | None
    """Standard deviation from slice to slice of a build."""
    unlike_builds: bool
    """True if builds evidently differ by more than slices were designed for."""


class Findings(Finding):
    schema_: str = Field(REPORT_SCHEMA, alias="schema")
    campaign: CampaignFinding
    cells: tuple[CellFinding, ...]
    stacks: tuple[StackFinding, ...]
    comparisons: tuple[Comparison, ...]
    ranking: tuple[str, ...]
    """Best first, in the only cell or the first."""
    chosen: Chosen | None
    published: tuple[PublishedFinding, ...] = ()
    """Figures of the study that the campaign repeats, if it repeats one."""
    published_source: str = ""
    """Publisher, measured system, and the statistic published."""
    profiles: tuple[StackProfile, ...] = ()
    """Profiles of all stacks and cells with recorded sessions."""
    whys: tuple[Why, ...] = ()
    """Comparisons of every ranked stack with the best of its cell."""
    hosts: tuple[HostsFinding, ...] = ()
    """Results by host, for every cell of a campaign on several hosts."""
    slices: tuple[SlicesFinding, ...] = ()
    """Evidence on slices, for every cell that was measured in them."""
    tuning: TuningFinding | None = None
    """Effects of the factors, for a screening of `pgstrata tune`."""
