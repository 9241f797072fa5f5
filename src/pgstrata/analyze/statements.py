"""What can be said of a cell: typed, so that every report makes the same sentences of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pgstrata.analyze.finding import Finding, Source, Verdict


class StatementBase(Finding):
    """One thing that is said of a cell; reports make the sentence of it."""


class NoVerdict(StatementBase):
    """Nothing can be compared, and why."""

    about: Literal["no verdict"] = "no verdict"
    reason: Literal["emulated", "single runs", "alone", "too few runs", "no candidate"]
    subject: str = ""
    """The stack that is alone, or the durability that no stack has."""


class Choice(StatementBase):
    """The leader of its durability class, and whether it is chosen."""

    about: Literal["choice"] = "choice"
    subject: str
    relation: Literal["chosen", "leads", "only one"]
    metric: str
    margin: float
    class_: str | None = Field(None, alias="class")
    """The durability that the choice is limited to, where there are stacks that promise less."""


class PairStatement(StatementBase):
    """A verdict on two stacks: the fields of the comparison that a sentence needs."""

    about: Literal["pair"] = "pair"
    subject: str
    relation: Verdict
    object: str
    metric: str
    amount: float
    """Subject over object, or their difference, by the scale of the metric."""
    low: float | None
    high: float | None
    certainty: Literal["proven", "shown", "open"]
    source: Source
    margin: float
    leaning: Literal["better", "worse"] | None = None
    sigma: float | None = None
    """Standard deviation of one paired difference; null while it is not known, so that nothing can be forecast."""
    settled_by_pairs: int | None = None
    settled_by_s: float | None = None
    acceptable_margin: float | None = None


class NotConfirmed(StatementBase):
    """Leader and runner-up that got no fresh pairs, and what that many could prove."""

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


class Behind(StatementBase):
    """Stacks that are behind the subject by screening or by an import; values are ratios or differences to it."""

    about: Literal["behind"] = "behind"
    subject: str
    metric: str
    others: tuple[Amount, ...]
    source: Source


class Price(StatementBase):
    """What durability costs: a stack that promises less, against the best of those that can be chosen."""

    about: Literal["price"] = "price"
    subject: str
    object: str
    metric: str
    amount: float
    low: float | None
    high: float | None
    class_: str = Field(alias="class")
    proven: bool = False
    """Whether a verdict says that it is better: of several pairs Holm's procedure has one before the interval has."""


class BadModeStatement(StatementBase):
    """Runs of a stack that lie far below its others, though the machine was as usual."""

    about: Literal["bad mode"] = "bad mode"
    subject: str
    metric: str
    bad: int
    runs: int
    amount: float
    """A bad run over the others, or their difference."""
    blocks: tuple[int, ...]


class FarRun(Finding):
    """A run far from the others of its stack."""

    stack: str
    block: int
    fresh: bool
    """Of the fresh pairs, not of the screening."""
    amount: float
    """Over the median of the stack's runs, or their difference."""


class LevelsApart(StatementBase):
    """The levels of two stacks, fitted over the screening, differ from what fresh pairs say of them."""

    about: Literal["levels apart"] = "levels apart"
    subject: str
    object: str
    metric: str
    of_levels: float
    """Subject over object, or their difference, as `of_pairs`."""
    of_pairs: float
    far_run: FarRun | None = None
    """What that is due to most; null where no single run is far off."""


class NotCompared(StatementBase):
    """Stacks with too few runs in common with the others."""

    about: Literal["not compared"] = "not compared"
    names: tuple[str, ...]


class DeclaredBlocks(StatementBase):
    """The intervals of a cell hold for the number of blocks that was declared, and for no other."""

    about: Literal["declared blocks"] = "declared blocks"
    blocks: int


class BestLength(StatementBase):
    """Runs were far from the length that makes the most of the machine's time."""

    about: Literal["run length"] = "run length"
    best_s: float
    length_s: float


class Stalls(StatementBase):
    """Throughput that breaks off; medians over the runs."""

    about: Literal["stalls"] = "stalls"
    subject: str
    half_fraction: float
    stall_fraction: float
    longest_stall_s: float
    soak: bool = False


class Trend(StatementBase):
    """Throughput that falls or rises within runs; share an hour."""

    about: Literal["trend"] = "trend"
    subject: str
    per_hour: float


class SoakTrend(StatementBase):
    """What the long runs of a stack showed; share an hour."""

    about: Literal["soak"] = "soak"
    subject: str
    runs: int
    duration_s: float
    per_hour: float


class CheckpointCost(StatementBase):
    """Throughput that follows the checkpoints: slowest in a fifth of the cycle (from 0), by that share of its mean."""

    about: Literal["checkpoints"] = "checkpoints"
    subject: str
    slowest_fifth: int
    depth: float


class Period(StatementBase):
    """Throughput that swings."""

    about: Literal["period"] = "period"
    subject: str
    period_s: float
    swing: float | None = None
    """From crest to trough, as a share of the mean."""


class LevelChanges(StatementBase):
    """When throughput changed its level within a run, from its begin."""

    about: Literal["levels"] = "levels"
    subject: str
    at_s: tuple[float, ...]
    step: float | None = None
    """The greatest change, as a share of the mean."""
    soak: bool = False


class MatchedLoad(StatementBase):
    """Latency at one rate, the same for every stack, lowest first."""

    about: Literal["matched load"] = "matched load"
    rate_tps: float
    metric: str
    levels: tuple[Amount, ...]


class Capacity(StatementBase):
    """The highest rate that kept the objective, best first."""

    about: Literal["capacity"] = "capacity"
    percentile: str
    objective_ms: float
    rates_tps: tuple[Amount, ...]
    unknown: tuple[str, ...] = ()
    """Stacks whose runs had too few transactions for the percentile."""
    least_transactions: int | None = None
    """Of a run that knows the percentile."""


class LateDisks(StatementBase):
    """Modelled disks of a stack that answered later than their model has it: the host was not fast enough."""

    about: Literal["late disks"] = "late disks"
    subject: str
    models: tuple[str, ...]
    median_percent: int
    """Of the disk that was latest, in percent of the time that an answer was to take; 100 is 100 and more."""
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
    | NotCompared
    | DeclaredBlocks
    | BestLength
    | LateDisks
    | WithinRuns
    | MatchedLoad
    | Capacity,
    Field(discriminator="about"),
]
