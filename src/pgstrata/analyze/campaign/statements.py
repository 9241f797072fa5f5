"""Statements about a cell: typed, so that every report makes the same sentences of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pgstrata.analyze.finding import Finding, Modes, Rounds, Source, Uncounted, Unlike, Verdict


class StatementBase(Finding):
    """One statement about a cell; reports convert it to a sentence."""


class Claim(StatementBase):
    """A statement that compares stacks, by their committed transactions alone."""

    uncounted: Uncounted = Field(default_factory=dict)
    """Transactions of the stacks concerned, if a share of 0.001 or more failed, was skipped, late or retried: figures
    are of the committed ones alone."""
    unlike: Unlike = Field(default_factory=dict)
    """Servers, checksums, networks or client machines in which the stacks concerned differ."""


class NoVerdict(StatementBase):
    """Reason why nothing can be compared."""

    about: Literal["no verdict"] = "no verdict"
    reason: Literal["emulated", "single runs", "alone", "too few runs", "no candidate"]
    subject: str = ""
    """The only stack, or the durability that no stack has."""


class Choice(Claim):
    """The leader of its durability class; tells if it is chosen."""

    about: Literal["choice"] = "choice"
    subject: str
    relation: Literal["chosen", "leads", "only one"]
    metric: str
    margin: float
    class_: str | None = Field(None, alias="class")
    """The durability that the choice is limited to, if some stacks promise less."""
    bad_mode_cost: float | None = None
    """If only a bad mode keeps the subject from being chosen: the ratio or difference of its mean to that of its other
    runs."""


class PairFigures(Claim):
    """Figures of two stacks that a comparison and the statement on it share."""

    metric: str
    low: float | None
    high: float | None
    source: Source = "screening"
    """Origin of the runs behind the comparison."""
    leaning: Literal["better", "worse"] | None = None
    """Direction of a proven difference between two that are equal within the margin."""
    acceptable_margin: float | None = None
    """The smallest margin within which the two are equal already."""
    unseen_mode: float | None = None
    """For an equal pair: a mode in a smaller share of the runs could have been missed (confidence 0.95)."""
    rounds: Rounds | None = None
    """Null without blocks (imports), over hosts, and for metrics that were not declared."""
    modes: Modes | None = None
    """Null unless two modes keep the pair undecided."""


class PairStatement(PairFigures):
    """A verdict on two stacks: the fields of the comparison that a sentence needs."""

    about: Literal["pair"] = "pair"
    subject: str
    relation: Verdict
    object: str
    amount: float
    """Subject over object, or their difference, depending on the scale of the metric."""
    certainty: Literal["proven", "shown", "open"]
    margin: float
    sigma: float | None = None
    """Standard deviation of one paired difference; null while unknown, so that no forecast is possible."""
    settled_by_pairs: int | None = None
    settled_by_s: float | None = None


class NotConfirmed(StatementBase):
    """Leader and runner-up without fresh pairs, and the margin that `pairs` fresh pairs could prove."""

    about: Literal["not confirmed"] = "not confirmed"
    subject: str
    object: str
    metric: str
    pairs: int
    provable_margin: float | None


class Amount(Finding):
    """A stack with a figure."""

    name: str
    value: float


class Behind(Claim):
    """Stacks worse than the subject by screening or by an import; values are ratios or differences to it."""

    about: Literal["behind"] = "behind"
    subject: str
    metric: str
    others: tuple[Amount, ...]
    source: Source


class Price(Claim):
    """The price of durability: a stack that promises less, against the best of those that can be chosen."""

    about: Literal["price"] = "price"
    subject: str
    object: str
    metric: str
    amount: float
    low: float | None
    high: float | None
    class_: str = Field(alias="class")
    proven: bool = False
    """True if a verdict shows that it is better. With several pairs, Holm's procedure can prove it before the interval
    does."""


class BadModeStatement(StatementBase):
    """Runs of a stack far below its other runs while the machine was as usual."""

    about: Literal["bad mode"] = "bad mode"
    subject: str
    metric: str
    bad: int
    runs: int
    amount: float
    """A bad run over the other runs, or their difference."""
    blocks: tuple[int, ...]


class FarRun(Finding):
    """A run far from the others of its stack."""

    stack: str
    block: int
    fresh: bool
    """True for a run of the fresh pairs, false for one of the screening."""
    amount: float
    """The run over the median of the stack's runs, or their difference."""


class LevelsApart(Claim):
    """Disagreement between the levels of two stacks, fitted over the screening, and their fresh pairs."""

    about: Literal["levels apart"] = "levels apart"
    subject: str
    object: str
    metric: str
    of_levels: float
    """Subject over object, or their difference, like `of_pairs`."""
    of_pairs: float
    far_run: FarRun | None = None
    """The run that contributes most; null if no single run is far off."""


class Remembering(StatementBase):
    """Two stacks whose difference in one block resembles that in the block before."""

    about: Literal["remembering"] = "remembering"
    subject: str
    object: str
    correlation: float
    pairs: int
    worth_pairs: float
    """Number of independent pairs with the same information."""


class WholeRunsApart(StatementBase):
    """Two stacks whose whole runs contradict their slices: a ratio of each, subject over object."""

    about: Literal["whole runs apart"] = "whole runs apart"
    subject: str
    object: str
    whole: float
    slices: float
    runs: int
    """Number of blocks with whole runs of both."""


class AgeingBuilds(StatementBase):
    """A stack that gains or loses on the others while a build of it is used."""

    about: Literal["ageing builds"] = "ageing builds"
    subject: str
    ratio: float
    """Change against the mean of the others from one slice to the next."""
    slices: int
    """Slices of a block: the verdicts are of these."""


class TurnOrder(StatementBase):
    """A turn depends on the order: on its place in the round, or on the stack whose turn came before."""

    about: Literal["turn order"] = "turn order"
    effect: Literal["place", "predecessor"]
    subject: str
    """The stack that came before; empty for the place."""
    ratio: float
    """First turn of a round over the last one, or turns right after the subject over those after the others."""


class UnlikeBuilds(StatementBase):
    """Builds of a stack differ by more than slices were designed for: standard deviations of a pair, with the 90 %
    interval."""

    about: Literal["unlike builds"] = "unlike builds"
    between: float
    low: float
    high: float
    most: float
    """Scatter for which slices were designed."""


class Growing(StatementBase):
    """Two stacks whose difference grows or shrinks over the blocks of the campaign."""

    about: Literal["growing"] = "growing"
    subject: str
    object: str
    metric: str
    first: float
    """Subject over object, or their difference, by a line through all blocks: value in the first block, ..."""
    last: float
    pairs: int


class LostCount(Finding):
    """Lost runs of a stack."""

    name: str
    lost: int
    runs: int
    """Runs that were lost, out of all."""


class LostRuns(StatementBase):
    """Stacks lost different numbers of runs (failed, excluded): the comparison may be biased by the missing runs."""

    about: Literal["lost runs"] = "lost runs"
    counts: tuple[LostCount, ...]
    """One entry for each compared stack, including stacks without any loss."""


class NotCompared(StatementBase):
    """Stacks that share too few runs with the others."""

    about: Literal["not compared"] = "not compared"
    names: tuple[str, ...]


class DeclaredBlocks(StatementBase):
    """The intervals of a cell hold for the declared number of blocks only."""

    about: Literal["declared blocks"] = "declared blocks"
    blocks: int


class BestLength(StatementBase):
    """Runs were far from the length that makes the best use of the machine's time."""

    about: Literal["run length"] = "run length"
    best_s: float
    length_s: float


class Stalls(StatementBase):
    """Throughput that stalls; medians over the runs."""

    about: Literal["stalls"] = "stalls"
    subject: str
    half_fraction: float
    stall_fraction: float
    longest_stall_s: float
    soak: bool = False


class Trend(StatementBase):
    """Throughput that falls or rises within runs; share per hour."""

    about: Literal["trend"] = "trend"
    subject: str
    per_hour: float


class SoakTrend(StatementBase):
    """Trend in the long runs of a stack; share per hour."""

    about: Literal["soak"] = "soak"
    subject: str
    runs: int
    duration_s: float
    per_hour: float


class CheckpointCost(StatementBase):
    """Throughput that follows the checkpoints: slowest fifth of the cycle (from 0), and the loss there as a share of
    the mean."""

    about: Literal["checkpoints"] = "checkpoints"
    subject: str
    slowest_fifth: int
    depth: float


class Period(StatementBase):
    """Throughput that swings periodically."""

    about: Literal["period"] = "period"
    subject: str
    period_s: float
    swing: float | None = None
    """Crest to trough, as a share of the mean."""


class LevelChanges(StatementBase):
    """Times of changes in the level of throughput within a run, from its start."""

    about: Literal["levels"] = "levels"
    subject: str
    at_s: tuple[float, ...]
    step: float | None = None
    """Largest change, as a share of the mean."""
    soak: bool = False


class MatchedLoad(Claim):
    """Latency at the same rate for every stack, lowest first."""

    about: Literal["matched load"] = "matched load"
    rate_tps: float
    metric: str
    levels: tuple[Amount, ...]


class CapacityBracket(Finding):
    """The rates between which a stack's capacity lies: all runs at the lower one met the objective, all runs at the
    higher one missed it."""

    name: str
    low_tps: float | None
    high_tps: float | None
    """Null if no rate missed the objective above all that met it."""
    runs: int
    """Runs at the lower rate; at the higher one without a lower one."""
    unfinished: bool
    """True if the search would have tried further rates or repeated one."""


class Capacity(StatementBase):
    """The highest rate that met the objective, best first."""

    about: Literal["capacity"] = "capacity"
    percentile: str
    objective_ms: float
    brackets: tuple[CapacityBracket, ...]
    untried: tuple[str, ...] = ()
    """Compared stacks without a run at a scheduled rate."""
    out_of_budget: bool = False
    """True if the budget ended the search."""
    unknown: tuple[str, ...] = ()
    """Stacks whose runs had too few transactions for the percentile."""
    least_transactions: int | None = None
    """Minimum number of transactions in a run for the percentile to be known."""


class LateDisks(StatementBase):
    """Modelled disks of a stack that answered later than their model specifies: the host was not fast enough."""

    about: Literal["late disks"] = "late disks"
    subject: str
    models: tuple[str, ...]
    median_percent: int
    """Lateness of the latest disk, in percent of the modelled time of an answer; 100 means 100 or more."""
    p99_percent: int


WithinRuns = Stalls | Trend | SoakTrend | CheckpointCost | Period | LevelChanges
Statement = Annotated[
    NoVerdict
    | Choice
    | PairStatement
    | NotConfirmed
    | Behind
    | Price
    | BadModeStatement
    | LevelsApart
    | Remembering
    | WholeRunsApart
    | AgeingBuilds
    | TurnOrder
    | UnlikeBuilds
    | Growing
    | LostRuns
    | NotCompared
    | DeclaredBlocks
    | BestLength
    | LateDisks
    | WithinRuns
    | MatchedLoad
    | Capacity,
    Field(discriminator="about"),
]
